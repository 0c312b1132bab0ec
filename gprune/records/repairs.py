"""A pruned model as one thing: which units stay, and how the weights of what stays are repaired.

Every repair is declared here, once: what it needs, what it leaves in the model, what it takes and how it is
called. What it does stands in a module of `gprune.pruning.repair`, and a study chooses it for every method by
its word in `repair.kind`. Keys, estimates, counts, saved folders, tables and words follow from this table.
Nothing here needs torch.
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
    """One way to change the weights that stay, for those that leave."""

    name: str
    """as records and plans name it"""
    word: str
    """as `repair.kind` names it"""
    label: str
    """as tables and sentences call it"""
    about: str
    """what it does, in one or two plain sentences"""
    attribute: str
    """what a method is that has it, as in: GPrune compensated"""
    needs: Mapping[str, str]
    """kinds of results by the parameter that takes them: of each text that it is made from, or FITTED"""
    biases: bool
    """whether o_proj and down_proj have a bias afterwards"""
    weights: bool
    """whether the kept columns of o_proj and down_proj change"""
    version: int = 1
    """of its formula, in the keys of what is measured with it; 0 if what it needs says all"""
    module: str = ""
    """of `gprune.pruning.repair`, where it is not that of its name"""

    @property
    def fitted(self) -> bool:
        """True if it is fitted to a method's masks, so that other masks need weights of their own."""
        return bool({FITTED, LEARNED} & {*self.needs.values()})


COMPENSATION = "bias_compensation"
FITTED = "repaired"
"""the kind of result that has weights fitted to the masks of a method"""
LEARNED = "scales"
"""the kind of result that has scales and biases learned for the masks of a method"""


def _fitted(word: str, label: str, about: str, attribute: str, biases: bool) -> Repair:
    needs = {"weights": FITTED}
    return Repair(word, word, label, about, attribute, needs, biases, True, 0, "fitted")


REPAIRS: dict[str, Repair] = {
    repair.name: repair
    for repair in (
        Repair(
            name=COMPENSATION,
            word="bias",
            label="bias compensation",
            about="What removed neurons contribute on average is added to a bias. FLAP does it.",
            attribute="compensated",
            needs={"means": "statistics"},
            biases=True,
            weights=False,
            version=0,
        ),
        _fitted(
            "affine",
            "affine repair",
            "Each output channel of o_proj and down_proj is scaled and shifted towards what is missing.",
            "rescaled",
            True,
        ),
        _fitted(
            "least_squares",
            "least squares",
            "The kept columns of o_proj and down_proj are fitted to what is missing, layer after layer.",
            "refitted",
            False,
        ),
        _fitted(
            "least_squares_bias",
            "least squares with a bias",
            "The kept columns of o_proj and down_proj and a bias are fitted, layer after layer.",
            "refitted with a bias",
            True,
        ),
        _fitted(
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
"""every repair by name, in the order in which they are carried out"""
AUTO = Repair(
    name="chosen_repair",
    word="auto",
    label="repair chosen on held-out text",
    about="Several repairs are fitted, and the one that does best on held-out text is taken, or none.",
    attribute="repaired as chosen",
    needs={"weights": FITTED},
    biases=True,
    weights=True,
    version=0,
    module="fitted",
)
"""stands for one of them, or for none, until the choice is made (`stages.choosing`): no model has it"""
WORDS = {repair.word: repair for repair in (*REPAIRS.values(), AUTO)}
"""every repair by its word in `repair.kind`"""


def labels(repairs: Iterable[Repair]) -> str:
    """Repairs in words; empty for none."""
    return " and ".join(repair.label for repair in repairs)


def in_order(names: Iterable[str]) -> tuple[Repair, ...]:
    """Repairs by their names, in the order in which they are carried out."""
    selected = set(names)
    return tuple(repair for name, repair in REPAIRS.items() if name in selected)


@dataclass(frozen=True, slots=True, eq=False)
class PrunedModel:
    """The pruned weights of a dense model."""

    masks: PruningMasks
    """the units that stay"""
    repairs: tuple[Repair, ...] = ()
    """what is done to their weights, in this order"""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """records that the repairs need, by parameter; nothing if the model is only counted or described"""
    recovered: RecoveredWeights | None = None
    """what training has added to the repaired weights; it is merged into them, and adds no parameter"""

    @classmethod
    def of(cls, pruning: PruningMasks | PrunedModel) -> PrunedModel:
        """A model, or what masks leave where nothing is repaired."""
        return pruning if isinstance(pruning, PrunedModel) else cls(pruning)

    @property
    def biased(self) -> bool:
        """True if o_proj and down_proj have a bias whatever the dense model has."""
        return any(repair.biases for repair in self.repairs)

    @property
    def repaired_by(self) -> str:
        """Its repairs in words; empty if there are none."""
        return labels(self.repairs)

    def parameters(self, shape: ModelShape, size: ModelSize) -> int:
        """Parameters, embeddings, norms and biases included: the count that the saved model has.

        A folder of equal widths may hold more: zeros where its family has biases and the model has none.
        """
        neurons, groups = (int((~mask).sum()) for mask in (self.masks.ffn, self.masks.heads))
        removed = neurons * (shape.neuron_weights + size.neuron_biases)
        removed += groups * (shape.group_weights + size.group_biases)
        return int(size.parameters - removed + (size.missing_biases if self.biased else 0))
