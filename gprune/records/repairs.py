"""Declarations of all repairs, and the record of a pruned model: masks, repairs and recovery.

This table has the names, labels, inputs and effects of each repair, from which keys, estimates, parameter counts, saved
folders and tables follow. The implementations are modules of `gprune.pruning.repair`. A study selects a repair by its
word in `repair.kind`. Nothing here needs torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gprune.records.decisions import PruningMasks, RecoveredWeights
    from gprune.records.model import ModelShape, ModelSize


@dataclass(frozen=True, slots=True)
class Repair:
    """Declaration of a repair, which changes the kept weights to compensate for removed units."""

    name: str
    """name in records"""
    word: str
    """name in `repair.kind`"""
    label: str
    """name in tables and sentences"""
    about: str
    """description in one or two sentences"""
    attribute: str
    """participle that follows the name of a method with this repair, as in: GPrune compensated"""
    needs: Mapping[str, str]
    """kind of the result that each parameter needs: a kind with one result per text, or FITTED or LEARNED"""
    biases: bool
    """whether o_proj and down_proj have a bias afterwards"""
    weights: bool
    """whether the kept columns of o_proj and down_proj change"""
    version: int = 1
    """version of its formula in the keys of results; 0 if its inputs determine the weights"""
    module: str = ""
    """module of `gprune.pruning.repair`, if its name differs from the repair's"""

    @property
    def fitted(self) -> bool:
        """Return True if it is fitted to masks, so that other masks need another fit."""
        return bool({FITTED, LEARNED, ROUTERS} & {*self.needs.values()})


COMPENSATION = "bias_compensation"
FITTED = "repaired"
"""kind of the results with weights fitted to the masks of a method"""
LEARNED = "scales"
"""kind of the results with scales and biases learned for the masks of a method"""
ROUTER, ROUTERS = "router", "routers"
"""word of the repair of models without some experts, and kind of the results with their refitted routers"""


def _fitted_repair(word: str, label: str, about: str, attribute: str, biases: bool) -> Repair:
    needs = {"weights": FITTED}
    return Repair(word, word, label, about, attribute, needs, biases, True, 0, "fitted")


REPAIRS: dict[str, Repair] = {
    repair.name: repair
    for repair in (
        Repair(
            name=COMPENSATION,
            word="bias",
            label="bias compensation",
            about="The mean contribution of the removed neurons is added to a bias, as FLAP does.",
            attribute="compensated",
            needs={"means": "statistics"},
            biases=True,
            weights=False,
            version=0,
        ),
        _fitted_repair(
            "affine",
            "affine repair",
            "Each output channel of o_proj and down_proj is scaled and shifted to replace the removed output.",
            "rescaled",
            True,
        ),
        _fitted_repair(
            "least_squares",
            "least squares",
            "The kept columns of o_proj and down_proj are fitted to replace the removed output, layer by layer.",
            "refitted",
            False,
        ),
        _fitted_repair(
            "least_squares_bias",
            "least squares with a bias",
            "Kept columns of o_proj and down_proj and a bias are fitted to replace the removed output, layer by layer.",
            "refitted with a bias",
            True,
        ),
        _fitted_repair(
            "least_squares_scales",
            "least squares and learned scales",
            "After least squares, factors of kept units and biases are learned and folded in.",
            "refitted and scaled",
            True,
        ),
        Repair(
            name="scales",
            word="scales",
            label="learned scales",
            about="A factor of each kept unit and a bias of each output channel are learned and folded in.",
            attribute="scaled",
            needs={"scales": LEARNED},
            biases=True,
            weights=True,
            version=0,
        ),
    )
}
"""all repairs by name, in the order of application"""
AUTO = Repair(
    name="chosen_repair",
    word="auto",
    label="repair chosen on held-out text",
    about="Several repairs are fitted. The best one on held-out text is used, or none if no repair is better.",
    attribute="repaired as chosen",
    needs={"weights": FITTED},
    biases=True,
    weights=True,
    version=0,
    module="fitted",
)
"""placeholder for a repair that is selected by measurement (`stages.pruned_models`)"""
_ABOUT_ROUTERS = "The routers of a model without some experts are trained to match the dense model's predictions."
REFITTED_ROUTERS = Repair(
    ROUTER, ROUTER, "refitted routers", _ABOUT_ROUTERS, "with refitted routers", {ROUTERS: ROUTERS}, False, False, 0
)
"""the repair of models without some experts (`gprune.pruning.experts.routers`)"""
REPAIR_BY_WORD = {repair.word: repair for repair in (*REPAIRS.values(), AUTO, REFITTED_ROUTERS)}
"""all repairs by their word in `repair.kind`"""


def labels(repairs: Iterable[Repair]) -> str:
    """Return the labels of repairs as one phrase; empty for none."""
    return " and ".join(repair.label for repair in repairs)


def in_order(names: Iterable[str]) -> tuple[Repair, ...]:
    """Return the repairs with these names in the order of application."""
    selected = set(names)
    return tuple(repair for name, repair in REPAIRS.items() if name in selected)


@dataclass(frozen=True, slots=True, eq=False)
class PrunedModel:
    """A pruned model as masks, repairs and recovery of a dense model."""

    masks: PruningMasks
    repairs: tuple[Repair, ...] = ()
    """repairs in the order of application"""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """input records of the repairs by parameter; may be empty if no weights are computed"""
    recovered: RecoveredWeights | None = None
    """low-rank updates by recovery, which are merged into the weights and add no parameters"""

    @classmethod
    def of(cls, pruning: PruningMasks | PrunedModel) -> PrunedModel:
        """Return a pruned model unchanged, or the unrepaired model of masks."""
        return pruning if isinstance(pruning, PrunedModel) else cls(pruning)

    @property
    def biased(self) -> bool:
        """Return True if a repair adds biases to o_proj and down_proj."""
        return any(repair.biases for repair in self.repairs)

    @property
    def repaired_by(self) -> str:
        """Return the labels of its repairs as one phrase; empty for none."""
        return labels(self.repairs)

    def parameters(self, shape: ModelShape, size: ModelSize) -> int:
        """Return the number of parameters of the saved model, including embeddings, norms and biases.

        A folder with equal widths may have more: zeros for biases of its family that the model does not have.
        """
        neurons, groups = (int((~mask).sum()) for mask in (self.masks.ffn, self.masks.heads))
        removed = neurons * (shape.neuron_weights + size.neuron_biases)
        removed += groups * (shape.group_weights + size.group_biases)
        return int(size.parameters - removed + (size.missing_biases if self.biased else 0))
