"""The units that two methods keep in common, beside the overlap of independent choices.

Units are FFN neurons and key/value groups, counted by layer. A Jaccard index is read against that of
independent choices: with the sizes that both have in every layer, some units are shared by chance alone.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from gprune.records import Array, PruningMasks

NEURONS, GROUPS = "neurons", "groups"
KINDS = {NEURONS: "FFN neurons", GROUPS: "key/value groups"}
"""kinds of units by name, as people call them"""


@dataclass(frozen=True, slots=True)
class Overlap:
    """The units of one kind that two masks keep."""

    units: int
    """units of each layer"""
    first: Array
    """(layers,) units that only the first keeps"""
    both: Array
    """(layers,) units that both keep"""
    second: Array
    """(layers,) units that only the second keeps"""

    @property
    def jaccard(self) -> float:
        """Units kept by both among those kept by either, over all layers; NaN where neither keeps any."""
        return _ratio(self.both.sum(), (self.first + self.both + self.second).sum())

    @property
    def chance(self) -> float:
        """Jaccard that independent choices of the same sizes in every layer have on average, very nearly."""
        shared = self._expected.sum()
        return _ratio(shared, (self.first + self.second + 2 * self.both).sum() - shared)

    @property
    def layers(self) -> tuple[Array, Array]:
        """(layers,) Jaccard of every layer, and what chance gives there; NaN where neither keeps any."""
        either, total = self.first + self.both + self.second, self.first + self.second + 2 * self.both
        return _ratios(self.both, either), _ratios(self._expected, total - self._expected)

    @property
    def _expected(self) -> Array:
        """(layers,) units that independent choices share on average."""
        return (self.first + self.both) * (self.second + self.both) / self.units


def overlap(first: PruningMasks, second: PruningMasks, kind: str) -> Overlap:
    """Compares two masks of one model, of units of one of KINDS."""
    units, other_units = (masks.ffn if kind == NEURONS else masks.heads for masks in (first, second))
    counts = [part.sum(axis=1) for part in (units & ~other_units, units & other_units, ~units & other_units)]
    return Overlap(units.shape[1], *counts)


def total_table(overlaps: dict[str, Overlap], first: str, second: str) -> pd.DataFrame:
    """One line a kind of unit: what only the one keeps, both, only the other, and Jaccard with its chance.

    `overlaps` are by kind; `first` and `second` are what to call the methods.
    """
    return pd.DataFrame(
        [
            {
                "units": KINDS[kind],
                f"only {first}": int(counts.first.sum()),
                "both": int(counts.both.sum()),
                f"only {second}": int(counts.second.sum()),
                "Jaccard": counts.jaccard,
                "by chance": counts.chance,
            }
            for kind, counts in overlaps.items()
        ]
    )


def layer_table(counts: Overlap, first: str, second: str) -> pd.DataFrame:
    """The same of one kind, one line a layer."""
    jaccard, chance = counts.layers
    return pd.DataFrame(
        {
            "layer": np.arange(len(counts.both)),
            f"only {first}": counts.first,
            "both": counts.both,
            f"only {second}": counts.second,
            "Jaccard": jaccard,
            "by chance": chance,
        }
    )


def _ratio(above: float, below: float) -> float:
    return float(above / below) if below else float("nan")


def _ratios(above: Array, below: Array) -> Array:
    return np.array([_ratio(*pair) for pair in zip(above, below, strict=True)])
