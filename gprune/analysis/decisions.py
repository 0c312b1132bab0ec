"""Retention of two methods by the rank drift of modules, and the units that two masks keep.

Fig. 3: modules are sorted by the mean rank drift (Eq. 1) of their neurons and divided into bins with equal numbers of
modules. Retention and Jaccard index are pooled over the neurons of a bin. Units are FFN neurons and key/value groups.
The chance level of a Jaccard index is that of independent masks that keep as many units in every layer.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from gprune.analysis.formatting import format_count, percent
from gprune.pruning.ranking import module_means
from gprune.records import Array, Partition, PruningMasks

BUDGET_TOLERANCE = 0.005
"""largest difference of retentions for which methods are compared"""


@dataclass(frozen=True, slots=True)
class Bins:
    """Data of Fig. 3 for one pair of methods."""

    names: list[str]
    """percentile range of each bin"""
    drift: Array
    """(bins,) mean drift of the bin's neurons"""
    neurons: Array
    """(bins,) number of neurons in the bin"""
    gprune: Array
    """(bins,) retention of the bin's neurons under GPrune"""
    base: Array
    """(bins,) retention of the bin's neurons under the baseline"""
    jaccard: Array
    """(bins,) neurons kept by both over neurons kept by either, or NaN if neither keeps any"""
    chance: Array
    """(bins,) expected Jaccard index of two independent masks with these retentions"""
    shares: Array
    """(4, bins) percent of the bin's neurons kept by both, only by GPrune, only by the baseline, by neither"""


def module_bins(drift: Array, partition: Partition, bins: int) -> Array:
    """Return the (modules,) int64 drift bin of every module; bin 0 has the most stable modules.

    `drift` is (layers, neurons), Eq. 1. The numbers of modules per bin differ by at most one. There are at most as many
    bins as modules.
    """
    labels = partition.global_labels.ravel()
    means = module_means(drift.ravel(), labels, partition.modules)
    order = np.argsort(means, kind="stable")
    bin_of_module = np.empty(len(order), dtype=np.int64)
    for index, modules in enumerate(np.array_split(order, min(bins, len(order)))):
        bin_of_module[modules] = index
    return bin_of_module


def compare(drift: Array, partition: Partition, gprune_masks: PruningMasks, base: PruningMasks, bins: int) -> Bins:
    """Compare the masks of two methods in bins of modules by drift.

    `drift` is (layers, neurons), Eq. 1. With fewer modules than `bins`, there is one bin per module.
    """
    bin_of_module = module_bins(drift, partition, bins)
    bin_count = int(bin_of_module.max()) + 1
    bin_of_neuron = bin_of_module[partition.global_labels].ravel()
    first, second = gprune_masks.ffn.ravel(), base.ffn.ravel()
    # shares of the neurons of each bin
    gprune_kept, base_kept, both, either = (
        module_means(mask, bin_of_neuron, bin_count) for mask in (first, second, first & second, first | second)
    )
    return Bins(
        names=bin_names(bin_count),
        drift=module_means(drift.ravel(), bin_of_neuron, bin_count),
        neurons=np.bincount(bin_of_neuron, minlength=bin_count),
        gprune=gprune_kept,
        base=base_kept,
        jaccard=_ratio(both, either),
        chance=chance_jaccard(gprune_kept, base_kept),
        shares=100.0 * np.stack([both, gprune_kept - both, base_kept - both, 1.0 - either]),
    )


def chance_jaccard(first: Array, second: Array) -> Array:
    """Return the expected Jaccard index of independent masks with retentions r1 and r2: r1 r2 / (r1 + r2 - r1 r2)."""
    product = first * second
    return _ratio(product, first + second - product)


def _ratio(numerator: Array, denominator: Array) -> Array:
    return np.divide(numerator, denominator, out=np.full(np.shape(numerator), np.nan), where=denominator > 0)


def bin_names(number: int) -> list[str]:
    """Return the percentile ranges of equal bins, for example `0–20%`."""
    edges = np.linspace(0, 100, number + 1).round().astype(int)
    return [f"{low}–{high}%" for low, high in zip(edges[:-1], edges[1:], strict=True)]


def bin_table(result: Bins, base_name: str) -> pd.DataFrame:
    """Return Fig. 3 as a table with one row per bin."""
    return pd.DataFrame(
        {
            "drift bin": result.names,
            "mean drift": result.drift,
            "neurons": result.neurons,
            "retained, GPrune": result.gprune,
            f"retained, {base_name}": result.base,
            "Jaccard": result.jaccard,
            "Jaccard by chance": result.chance,
            "kept by both, %": result.shares[0],
            "only GPrune, %": result.shares[1],
            f"only {base_name}, %": result.shares[2],
            "kept by neither, %": result.shares[3],
        }
    )


def layer_retention(masks: PruningMasks) -> tuple[Array, Array]:
    """Return (layers,) retention of neurons and (layers,) of key/value groups."""
    return masks.ffn.mean(axis=1), masks.heads.mean(axis=1)


def layer_table(masks: dict[str, PruningMasks]) -> pd.DataFrame:
    """Return a table with one row per layer: the retention of neurons and of key/value groups by method."""
    columns: dict[str, Array] = {}
    for name, mask in masks.items():
        columns[f"neurons, {name}"], columns[f"key/value groups, {name}"] = layer_retention(mask)
    return pd.DataFrame(columns).rename_axis("layer").reset_index()


def pooled_retention(result: Bins) -> tuple[float, float]:
    """Return the retention of all FFN neurons under GPrune and under the baseline."""
    gprune, base = (float(np.average(retained, weights=result.neurons)) for retained in (result.gprune, result.base))
    return gprune, base


def bin_changes(result: Bins) -> tuple[float, float]:
    """Return the retention of GPrune minus that of the baseline: in the most unstable bin, and in all other bins."""
    change = result.gprune - result.base
    return float(change[-1]), float(np.average(change[:-1], weights=result.neurons[:-1]))


NEURONS, GROUPS = "neurons", "groups"
"""kinds of units: FFN neurons and key/value groups"""


@dataclass(frozen=True, slots=True)
class Overlap:
    """Counts of the units of one kind that two masks keep."""

    units: int
    """number of units in every layer"""
    first: Array
    """(layers,) units that only the first keeps"""
    both: Array
    """(layers,) units that both keep"""
    second: Array
    """(layers,) units that only the second keeps"""

    @property
    def changed(self) -> int:
        """Return the number of units that exactly one of the masks keeps."""
        return int(self.first.sum() + self.second.sum())

    @property
    def jaccard(self) -> float:
        """Return the Jaccard index of the kept units over all layers, or NaN if neither mask keeps any."""
        return _unit_ratio(self.both.sum(), (self.first + self.both + self.second).sum())

    @property
    def chance(self) -> float:
        """Return the expected Jaccard index of independent masks that keep as many units in every layer."""
        shared = self._expected_both.sum()
        # the first mask keeps first + both units, the second mask second + both
        return _unit_ratio(shared, (self.first + self.second + 2 * self.both).sum() - shared)

    @property
    def _expected_both(self) -> Array:
        """Return (layers,) units that independent masks both keep on average."""
        return (self.first + self.both) * (self.second + self.both) / self.units


def count_shared(first: PruningMasks, second: PruningMasks, kind: str) -> Overlap:
    """Count the units of one kind (NEURONS or GROUPS) that two masks of one model keep."""
    units, other_units = (masks.ffn if kind == NEURONS else masks.heads for masks in (first, second))
    layer_counts = [part.sum(axis=1) for part in (units & ~other_units, units & other_units, ~units & other_units)]
    return Overlap(units.shape[1], *layer_counts)


def overlaps(first: PruningMasks, second: PruningMasks) -> dict[str, Overlap]:
    """Count the units that two masks of one model keep, by kind of unit."""
    return {kind: count_shared(first, second, kind) for kind in (NEURONS, GROUPS)}


def share_changed(first: Array, second: Array) -> float:
    """Return the share of units on which two decisions differ."""
    return float(np.mean(first != second))


def flips_title(units: dict[str, Overlap]) -> str:
    """Return a title that counts the units that change from kept to removed or back.

    `units` is the result of `overlaps` for the masks before and after.
    """
    neurons, groups = units[NEURONS], units[GROUPS]
    if not (neurons.changed or groups.changed):
        return "0 neurons and 0 key/value groups differ from this run"
    verb = "changes" if neurons.changed == 1 else "change"
    share = neurons.changed / (neurons.units * len(neurons.both))
    sentence = f"{format_count(neurons.changed, 'neuron')} {verb} sides ({percent(share, 2)})"
    if neurons.changed:
        sentence += f", most of them in layer {int(np.argmax(neurons.first + neurons.second))}"
    return sentence + (f", and {format_count(groups.changed, 'key/value group')}" if groups.changed else "")


def flip_table(units: dict[str, Overlap]) -> pd.DataFrame:
    """Return a table of the units that change from kept to removed or back, with one row per layer."""
    columns = {"layer": np.arange(len(units[NEURONS].both))}
    for kind, name in ((NEURONS, "neurons"), (GROUPS, "key/value groups")):
        columns[f"{name}, kept → removed"] = units[kind].first
        columns[f"{name}, removed → kept"] = units[kind].second
    return pd.DataFrame(columns)


def _unit_ratio(numerator: float, denominator: float) -> float:
    return float(numerator / denominator) if denominator else float("nan")
