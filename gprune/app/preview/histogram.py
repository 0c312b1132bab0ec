"""Histogram of activations that is extended a few sequences at a time.

The width of a bin is a power of two and its edges are whole multiples of it, so that counts from several
turns and texts add up exactly in the bins of whichever has the widest.
"""

import math
from dataclasses import dataclass

import numpy as np

from gprune.records import Array

BINS = 64
"""on either side of 0 at most, up to the value that is furthest from it"""
_LEAST_POWER = -60
"""widths below 2 to this power are none: all values are 0"""


@dataclass(frozen=True, slots=True, eq=False)
class Histogram:
    """Counts of values in bins of one width."""

    power: int
    """a bin is 2 to this power wide"""
    first: int
    """the first bin begins at so many widths"""
    counts: Array
    """(bins,) whole numbers"""

    @property
    def edges(self) -> Array:
        """(bins + 1,) where the bins begin and end."""
        found: Array = np.ldexp(np.arange(self.first, self.first + len(self.counts) + 1.0), self.power)
        return found

    def above(self, value: float) -> float:
        """Share of the values in bins that begin at a value or above it."""
        return float(self.counts[self.edges[:-1] >= value].sum() / self.counts.sum())

    def widened(self, power: int) -> "Histogram":
        """The same counts in bins of another width, no narrower than those that there are."""
        bins = np.arange(self.first, self.first + len(self.counts)) >> (power - self.power)
        counts = np.bincount(bins - bins[0], weights=self.counts).astype(np.int64)
        return Histogram(power, int(bins[0]), counts)

    def joined(self, other: "Histogram") -> "Histogram":
        """The counts of both, in the wider bins of the two."""
        power = max(self.power, other.power)
        parts = self.widened(power), other.widened(power)
        first = min(part.first for part in parts)
        counts = np.zeros(max(part.first + len(part.counts) for part in parts) - first, dtype=np.int64)
        for part in parts:
            counts[part.first - first : part.first - first + len(part.counts)] += part.counts
        return Histogram(power, first, counts)


def histogram(values: Array) -> Histogram:
    """The histogram of finite values, of which there is at least one."""
    furthest = float(np.abs(values).max())
    # frexp gives the power of two that is above, exactly
    power = max(math.frexp(furthest / BINS)[1], _LEAST_POWER) if furthest else _LEAST_POWER
    bins = np.floor(np.ldexp(np.asarray(values, dtype=np.float64), -power)).astype(np.int64).ravel()
    return Histogram(power, int(bins.min()), np.bincount(bins - bins.min()))
