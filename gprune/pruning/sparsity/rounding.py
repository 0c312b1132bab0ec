"""Rank units against learned thresholds, and round the thresholds to masks that meet the target exactly (section 3.3).

Units are in one flat order: the neurons of all layers, then the key/value groups of all layers. Thresholds are ordered
likewise: one per module, then one per layer's attention. Rank quantiles of units are compared with them (Eq. 10).

For exact masks, a common shift of all thresholds brings the masks near the target. Then the neurons nearest their
thresholds are added or removed until the target is met, because a key/value group is too coarse a unit. Every layer
keeps at least one neuron and one key/value group. With an alignment, widths are multiples of a block, and a layer keeps
at least one block. The module does not import torch, so that the app can evaluate other thresholds quickly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from gprune.pruning.ranking import GroupedRanks
from gprune.records import Array, ModelShape, Partition, PruningMasks, budget
from gprune.system.errors import SettingsError

# quantiles of fixed groups: as thresholds are in [0, 1], their margins lie outside [-1, 1], the range of free units
_ALWAYS, _NEVER = 3.0, -2.0


@dataclass(frozen=True, slots=True, eq=False)
class RankedUnits:
    """Quantiles of all units and the indices of their thresholds."""

    shape: ModelShape
    quantiles: Array
    """(units,) float32 rank quantile in (0, 1): neurons within the module, key/value groups within the layer"""
    threshold_index: Array
    """(units,) int64 index of the unit's threshold"""
    modules: int
    """number of FFN thresholds; they come before the attention thresholds"""
    free_groups: bool = True
    """True if thresholds select the key/value groups; else the groups are fixed by quantiles outside [0, 1]"""

    @classmethod
    def build(cls, shape: ModelShape, scores: Array, head_scores: Array, partition: Partition) -> RankedUnits:
        """Rank all units of a decoder.

        Args:
            shape: sizes of the decoder.
            scores: (layers, neurons) importance scores, higher is more important.
            head_scores: (layers, key/value groups) importance scores.
            partition: modules of the neurons.
        """
        layer = np.repeat(np.arange(shape.layers), shape.kv_heads)
        threshold_index = np.concatenate([partition.global_labels.ravel(), partition.modules + layer])
        neurons = quantiles(GroupedRanks(partition.global_labels.ravel()), scores)
        groups = quantiles(GroupedRanks(layer), head_scores)
        ranked = np.concatenate([neurons, groups])
        return cls(shape, ranked, threshold_index.astype(np.int64, copy=False), partition.modules)

    def with_groups(self, mask: Array) -> RankedUnits:
        """Return the same units with a fixed (layers, key/value groups) bool mask of the groups."""
        fixed_quantiles = self.quantiles.copy()
        self.split(fixed_quantiles)[1][:] = np.where(mask, _ALWAYS, _NEVER)
        return replace(self, quantiles=fixed_quantiles, free_groups=False)

    @property
    def thresholds(self) -> int:
        """Return the number of thresholds: one for each module, and one for each layer's attention."""
        return self.modules + self.shape.layers

    def margins(self, thresholds: Array) -> Array:
        """Return (units,) float64 quantile minus threshold; a unit is kept if this is 0 or more."""
        # float64, because a shift between two close margins may not exist in float32
        difference: Array = self.quantiles - np.asarray(thresholds, dtype=np.float64)[self.threshold_index]
        return difference

    def split(self, units: Array) -> tuple[Array, Array]:
        """Split flat (units,) values into (layers, neurons) and (layers, key/value groups)."""
        neurons = self.shape.layers * self.shape.neurons
        return units[:neurons].reshape(self.shape.layers, -1), units[neurons:].reshape(self.shape.layers, -1)


def quantiles(groups: GroupedRanks, scores: Array) -> Array:
    """Return (units,) float32 rank quantile (rank + 1/2) / size of each unit in its group, in (0, 1)."""
    size = np.empty(len(groups.by_group))
    size[groups.by_group] = np.repeat(groups.size, groups.size)
    exact = (groups.by_unit(np.asarray(scores).ravel()) + 0.5) / size
    rounded: Array = exact.astype(np.float32)
    return rounded


@dataclass(frozen=True, slots=True)
class ExactPlan:
    """Final masks and shifted thresholds."""

    masks: PruningMasks
    thresholds: Array
    """(thresholds,) float64 after the common shift"""


def exact_masks(
    units: RankedUnits, thresholds: Array, target: float, alignment: int = 1, equal: bool = False
) -> ExactPlan:
    """Return masks that meet the target: shift all thresholds together, then add or remove the nearest neurons.

    Args:
        units: all units with their quantiles.
        thresholds: (thresholds,) learned thresholds.
        target: R*, the fraction of the decoder's linear weights to keep.
        alignment: FFN widths are multiples of this many neurons, or the dense width.
        equal: keep the same number of units with the highest margins in every layer; the thresholds of each layer are
            then shifted separately.

    Returns:
        Masks that meet the target to within one neuron (one block of neurons), and the shifted thresholds. Except for
        the minimum widths and the final correction, a unit is kept if and only if its quantile reaches its threshold.
    """
    margins = units.split(units.margins(thresholds))
    decide = _cut_by_layer if equal else _cut_together
    ffn, heads, shift = decide(units, margins, target, alignment)
    masks = PruningMasks("gprune", ffn, heads, budget.retention(units.shape, ffn, heads), target)
    return ExactPlan(masks, np.asarray(thresholds, dtype=np.float64) + shift)


def _cut_together(
    units: RankedUnits, margins: tuple[Array, Array], target: float, alignment: int
) -> tuple[Array, Array, float]:
    """Return kept neurons and groups, and the common shift of all thresholds."""
    shape, (neurons, heads) = units.shape, margins
    least = budget.least_neurons(shape, alignment)
    shift = _common_shift(shape, neurons, heads, target, least)
    if units.free_groups:
        kept_heads = budget.keep_one(heads >= shift, heads)
        kept_heads = _feasible_heads(shape, heads, kept_heads, target, least)
    else:
        kept_heads = heads > 0
    return budget.meet_target(shape, neurons >= shift, kept_heads, neurons, target, alignment), kept_heads, shift


def _cut_by_layer(
    units: RankedUnits, margins: tuple[Array, Array], target: float, alignment: int
) -> tuple[Array, Array, Array]:
    """Return kept neurons and groups, and the shift of each threshold."""
    counts = budget.equal_counts(units.shape, target, alignment)
    ffn, heads = (budget.highest(part, count) for part, count in zip(margins, counts, strict=True))
    if not units.free_groups:
        heads = margins[1] > 0
    # the shift of a threshold is the cut of the layer of its units
    shift = np.zeros(units.thresholds)
    pairs = zip(margins, (ffn, heads), strict=True)
    shift[units.threshold_index] = np.concatenate([np.repeat(_cuts(part, mask), part.shape[1]) for part, mask in pairs])
    return ffn, heads, shift


def _cuts(margins: Array, mask: Array) -> Array:
    """Return the (layers,) midpoint between the lowest kept and the highest removed margin."""
    lowest_kept = np.where(mask, margins, np.inf).min(axis=1)
    highest_removed = np.where(mask, -np.inf, margins).max(axis=1)
    # a layer without removed units is cut at its lowest margin
    return np.where(np.isfinite(highest_removed), (lowest_kept + highest_removed) / 2, lowest_kept)


def require_reachable(shape: ModelShape, target: float, alignment: int = 1) -> None:
    """Raise SettingsError if the minimum widths exceed the target.

    Args:
        shape: sizes of the decoder.
        target: R*, the fraction of the decoder's linear weights to keep.
        alignment: number of neurons of a block.

    Raises:
        SettingsError: one neuron (one block of neurons) and one key/value group of every layer exceed the
            target.
    """
    least = budget.least_neurons(shape, alignment)
    lowest = budget.lowest_retention(shape, least)
    if target < lowest:
        block = "one neuron" if least == 1 else f"one block of {least} neurons"
        remedy = "" if least == 1 else ", or a smaller alignment"
        raise SettingsError(
            f"retention {target} cannot be met: every layer keeps at least {block} and one key/value "
            f"group. Choose a retention of at least {math.ceil(lowest * 1e4) / 1e4}{remedy}"
        )


def _common_shift(shape: ModelShape, neurons: Array, heads: Array, target: float, least: int) -> float:
    """Return the shift of all thresholds for which the kept weights are nearest the target."""
    margin = np.concatenate([_force_minimum(neurons, least).ravel(), _force_minimum(heads, 1).ravel()])
    weight_counts = np.repeat([shape.neuron_weights, shape.group_weights], [neurons.size, heads.size])
    order = np.argsort(-margin, kind="stable")
    weights = np.cumsum(weight_counts[order])
    # units of equal margin are kept or removed together, so a cut is possible only at the end of a run of equal margins
    run_ends = np.flatnonzero(np.append(margin[order][:-1] > margin[order][1:], True))
    cut_index = run_ends[np.abs(weights[run_ends] - target * shape.decoder_weights).argmin()]
    last_kept, below = margin[order[cut_index]], margin[order][cut_index + 1 :]
    # if only the minimum units are kept, the shift is above every margin
    if not np.isfinite(last_kept):
        return float(np.nextafter(max(neurons.max(), heads.max()), np.inf))
    return float((last_kept + below[0]) / 2 if below.size else last_kept)


def _force_minimum(margin: Array, least: int) -> Array:
    """Return (layers, units) margins with infinity for the best ``least`` units of each layer, which stay."""
    raised = np.array(margin)
    best = np.argsort(-margin, axis=1, kind="stable")[:, :least]
    np.put_along_axis(raised, best, np.inf, axis=1)
    return raised


def _feasible_heads(shape: ModelShape, margin: Array, mask: Array, target: float, least: int) -> Array:
    """Return the mask after adding or removing groups near the threshold, until neurons can fill the budget."""
    # margins are in [-1, 1], so adding 2 ranks the kept groups first and keeps their order
    order = np.argsort(-_force_minimum(np.where(mask, margin + 2, margin), 1), axis=None, kind="stable")
    fewest, most = possible_groups(shape, target, least)
    feasible = np.zeros(margin.size, dtype=bool)
    feasible[order[: min(max(int(np.count_nonzero(mask)), fewest), most)]] = True
    return feasible.reshape(margin.shape)


def possible_groups(shape: ModelShape, target: float, least: int) -> tuple[int, int]:
    """Return the smallest and largest number of key/value groups for which neurons can fill the rest of a budget.

    Args:
        shape: sizes of the decoder; every layer keeps at least one group.
        target: R*, the fraction of the decoder's linear weights to keep.
        least: minimum number of neurons per layer.

    Returns:
        Both ends of the range. If no number of groups is feasible, the numbers that miss the budget least.
    """
    fewest, most = shape.layers * least, shape.layers * shape.neurons

    def budget_miss(count: int) -> float:
        """Return by how many neurons the budget is missed with this number of groups."""
        neurons = (target * shape.decoder_weights - count * shape.group_weights) / shape.neuron_weights
        return max(fewest - neurons, neurons - most, 0.0)

    counts = range(shape.layers, shape.layers * shape.kv_heads + 1)
    best = min(map(budget_miss, counts))
    possible = [count for count in counts if budget_miss(count) == best]
    return possible[0], possible[-1]
