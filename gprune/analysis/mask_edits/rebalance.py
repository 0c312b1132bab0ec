"""Masks after edits at the same budget: what was taken away is given back elsewhere, by the method's scores.

The rule, called *nearest to the cut*: key/value groups are as the method and the person have them. Where the
edits have removed weights, the removed neurons nearest to the method's cut come back, the highest first;
where they have added some, the kept ones nearest to it go, the lowest first. What a person has fixed is never
touched, and every layer keeps a neuron (a block of neurons) and a key/value group.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gprune.analysis.mask_edits.edits import Edit, fixed
from gprune.pipeline import stages
from gprune.pipeline.stages import Results
from gprune.pipeline.stages.baselines import margins_of, ranked_scores
from gprune.pruning.allocation.alignment import margin
from gprune.pruning.sparsity.units import RankedUnits
from gprune.records import Array, ModelShape, Partition, PruningMasks, budget
from gprune.study.methods import METHODS
from gprune.study.pruning_method import Method
from gprune.system.errors import MethodError

RULE = "nearest to the cut"


@dataclass(frozen=True, slots=True, eq=False)
class Edited:
    """Masks after edits, and what became of them."""

    masks: PruningMasks
    """at the budget of the method's own, as near as one neuron (one block of neurons) allows"""
    by_hand: int
    """neurons that the edits decide otherwise than the method"""
    groups: int
    """key/value groups likewise"""
    added: int
    """neurons that came back to meet the budget"""
    removed: int
    """neurons that went to meet the budget"""


def edited(results: Results, method: str, edits: Iterable[Edit], margin: Array | None = None) -> Edited:
    """A method's masks after edits; a later line counts more than an earlier one.

    `margin` is what `margins` gives, formed here where left out. Raises MethodError where the method keeps no
    scores here (see `obstacle`) or the budget cannot be met, SettingsError where an edit names what the model
    does not have, StoreError where the run has not come that far or a result is damaged.
    """
    if reason := obstacle(results, method):
        raise MethodError(reason)
    shape, base = results.get(stages.shape), results.get(stages.masks, METHODS[method].masks)
    found = margins(results, method, base) if margin is None else margin
    partition, alignment = results.get(stages.partition), results.graph.study.sparsity.alignment
    return repaired(shape, base, found, partition, edits, alignment)


def obstacle(results: Results, method: str) -> str:
    """Why a method's masks cannot be edited here, as a sentence; empty where they can."""
    known = METHODS[method]
    if known.decision == "none":
        return f"{known.label} removes nothing: choose a method that prunes"
    if results.graph.study.sparsity.equal:
        return (
            "all layers of this run keep as many units (sparsity.widths equal), which edits would undo: "
            "edit a run of the same settings with sparsity.widths free"
        )
    if known.decision not in ("learned", "gated", "flap", "uniform", "llm_pruner"):
        return (
            f"{known.label} {_why_not(known)}; it keeps no score of every neuron by which a budget could be "
            "met again: choose another method"
        )
    needs = [stages.shape(results.graph), stages.partition(results.graph), *_behind(results, method)]
    needs.append(stages.masks(results.graph, known.masks))
    lacking = next((stage for stage in needs if not results.there(stage)), None)
    return "" if lacking is None else f"{known.label} needs “{lacking.title}”, which is not there"


def _why_not(method: Method) -> str:
    """How a method decides whose masks cannot be edited."""
    if method.plugin is not None:
        return f"is decided by code of {method.plugin.distribution}, which runs in runs only"
    if method.layered:
        return "scores each layer above the pruned ones, in a pass of the model"
    return "decides within groups of neurons, from statistics of every context"


def margins(results: Results, method: str, base: PruningMasks) -> Array:
    """(layers, neurons) by how much a method keeps a neuron: 0 is its cut.

    Of learned masks the rank quantile in the module above the module's threshold; of gates the gate above
    that of the last neuron that is kept; of the others the rank quantile in the layer above the share that
    was removed there, as where widths are rounded. Layers that LLM-Pruner leaves whole are infinitely far
    from its cut.
    """
    known, graph = METHODS[method], results.graph
    if known.decision == "learned":
        learned = stages.learning(graph, method)
        parts = _read(results, {name: learned.needs[name] for name in ("adapted", "heads", "partition")})
        made = results.record(learned)
        scores, heads = parts["adapted"].scores, parts["heads"].heads
        units = RankedUnits.build(results.get(stages.shape), scores, heads, parts["partition"])
        thresholds = np.concatenate([made.thresholds, made.head_thresholds])
        return units.split(units.margins(thresholds))[0]
    needs = _read(results, stages.masks(graph, known.masks).needs)
    if known.decision == "gated":
        gates = needs["learning"].gates.astype(np.float64)
        return gates - np.sort(gates, axis=None)[-int(base.ffn.sum())]
    if known.decision == "llm_pruner":
        return margins_of(needs["scores"].ffn, base.ffn)
    found = ranked_scores(graph.study, known, needs["shape"], needs["parts"])
    return margin(found.ffn, base.ffn)


def repaired(
    shape: ModelShape,
    base: PruningMasks,
    margin: Array,
    partition: Partition,
    edits: Iterable[Edit],
    alignment: int = 1,
) -> Edited:
    """Masks after edits, from the parts; see `edited`.

    `margin` (layers, neurons) says by how much `base` keeps a neuron; `alignment` is the neurons of a block,
    as in the run.
    """
    neurons, groups = fixed(edits, shape, partition)
    ffn, heads = _set(base.ffn, neurons), _set(base.heads, groups)
    _require_something(neurons, heads, groups)
    target = budget.retention(shape, base.ffn, base.heads)
    kept = budget.align(shape, ffn, heads, _beyond(margin, neurons), target, alignment)
    retention = float(budget.retention(shape, kept, heads))
    _require_met(shape, kept, neurons, (retention - target) * shape.decoder_weights, alignment)
    name = f"{base.method} by hand"
    return Edited(
        masks=PruningMasks(name, kept, heads, retention, base.target),
        by_hand=int((ffn != base.ffn).sum()),
        groups=int((heads != base.heads).sum()),
        added=int((kept & ~ffn).sum()),
        removed=int((ffn & ~kept).sum()),
    )


def _behind(results: Results, method: str) -> list[Any]:
    """The stages whose records say how a method has scored."""
    graph = results.graph
    if METHODS[method].decision != "learned":
        return list(stages.needed(stages.masks(graph, METHODS[method].masks)))
    learned = stages.learning(graph, method)
    return [learned, *(learned.needs[name] for name in ("adapted", "heads", "partition"))]


def _read(results: Results, needs: Any) -> dict[str, Any]:
    return stages.resolve(needs, results.record)


def _set(mask: Array, signs: Array) -> Array:
    return np.where(signs == 0, mask, signs > 0)


def _beyond(margin: Array, signs: Array) -> Array:
    """Margins with what is fixed above or below all others, and no infinity among them."""
    values = np.asarray(margin, dtype=np.float64)
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    clipped: Array = np.clip(np.nan_to_num(values, nan=low), low - 1, high + 1)
    clipped[signs > 0], clipped[signs < 0] = high + 2, low - 2
    return clipped


def _require_something(neurons: Array, heads: Array, groups: Array) -> None:
    """Checks that no layer is left without a neuron or without a key/value group."""
    for what, gone in (("neurons", (neurons < 0).all(axis=1)), ("key/value groups", ~heads.any(axis=1))):
        if gone.any():
            layer = int(np.flatnonzero(gone)[0])
            count = (neurons if what == "neurons" else groups).shape[1]
            raise MethodError(
                f"layer {layer} would lose all its {count} {what}: keep at least one of them in every layer"
            )


def _require_met(shape: ModelShape, kept: Array, signs: Array, excess: float, alignment: int) -> None:
    """Checks that the budget is met and that nothing which a person has fixed was touched for it."""
    lost, forced = (kept[signs > 0] == 0).any(), kept[signs < 0].any()
    # half a neuron, or half a block
    allowed = alignment * shape.neuron_weights / 2 + 0.5
    if lost or forced or abs(excess) > allowed:
        weights = "too few" if forced or excess < -allowed else "too many"
        raise MethodError(
            f"the budget cannot be met again: the list leaves {weights} weights, and too few neurons are "
            "free to make up for it. Take lines off the list"
        )
