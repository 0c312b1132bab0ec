"""Compare the units that two masks keep: shared, changed, and the overlap expected of independent choices.

Units are FFN neurons and key/value groups, counted by layer. The chance level of a Jaccard index is that of independent
masks with the same counts in every layer.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from gprune.analysis.formatting import format_count, percent
from gprune.records import Array, PruningMasks

NEURONS, GROUPS = "neurons", "groups"
"""kinds of units: FFN neurons and key/value groups"""


@dataclass(frozen=True, slots=True)
class Overlap:
    """Counts of the units of one kind that two masks keep."""

    units: int
    """number of units of each layer"""
    first: Array
    """(layers,) units that only the first keeps"""
    both: Array
    """(layers,) units that both keep"""
    second: Array
    """(layers,) units that only the second keeps"""

    @property
    def changed(self) -> int:
        """Return the number of units that only one of the masks keeps."""
        return int(self.first.sum() + self.second.sum())

    @property
    def jaccard(self) -> float:
        """Return the Jaccard index of the kept units over all layers, or NaN if neither mask keeps any."""
        return _ratio(self.both.sum(), (self.first + self.both + self.second).sum())

    @property
    def chance(self) -> float:
        """Return the expected Jaccard index of independent masks with the same sizes in every layer."""
        shared = self._expected.sum()
        return _ratio(shared, (self.first + self.second + 2 * self.both).sum() - shared)

    @property
    def _expected(self) -> Array:
        """Return (layers,) units that independent masks share on average."""
        return (self.first + self.both) * (self.second + self.both) / self.units


def count_shared(first: PruningMasks, second: PruningMasks, kind: str) -> Overlap:
    """Compare two masks of one model, of NEURONS or GROUPS."""
    units, other_units = (masks.ffn if kind == NEURONS else masks.heads for masks in (first, second))
    layer_counts = [part.sum(axis=1) for part in (units & ~other_units, units & other_units, ~units & other_units)]
    return Overlap(units.shape[1], *layer_counts)


def overlaps(first: PruningMasks, second: PruningMasks) -> dict[str, Overlap]:
    """Compare two masks of one model, by kind of unit."""
    return {kind: count_shared(first, second, kind) for kind in (NEURONS, GROUPS)}


def flips_title(units: dict[str, Overlap]) -> str:
    """Describe the units that change between kept and removed, from the `overlaps` of masks before and after."""
    neurons, groups = units[NEURONS], units[GROUPS]
    if not (neurons.changed or groups.changed):
        return "No neuron and no key/value group changes sides"
    verb = "changes" if neurons.changed == 1 else "change"
    share = neurons.changed / (neurons.units * len(neurons.both))
    sentence = f"{format_count(neurons.changed, 'neuron')} {verb} sides ({percent(share, 2)})"
    if neurons.changed:
        sentence += f", most of them in layer {int(np.argmax(neurons.first + neurons.second))}"
    return sentence + (f", and {format_count(groups.changed, 'key/value group')}" if groups.changed else "")


def flip_table(units: dict[str, Overlap]) -> pd.DataFrame:
    """Return a table of the units that change between kept and removed, with one row per layer."""
    columns = {"layer": np.arange(len(units[NEURONS].both))}
    for kind, name in ((NEURONS, "neurons"), (GROUPS, "key/value groups")):
        columns[f"{name}, kept → removed"] = units[kind].first
        columns[f"{name}, removed → kept"] = units[kind].second
    return pd.DataFrame(columns)


def _ratio(above: float, below: float) -> float:
    return float(above / below) if below else float("nan")
