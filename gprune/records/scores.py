"""How important the units are, and how their ranks drift between two texts (Eq. 1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gprune.records.base import Array, freeze, require_finite, require_shape


@dataclass(frozen=True, slots=True, eq=False)
class UnitScores:
    """Importance scores of one text under one metric; a higher score is more important."""

    metric: str
    """name in gprune.scoring.METRICS"""
    text: str
    """the calibration text, as typed"""
    ffn: Array
    """(layers, neurons) float64, >= 0"""
    heads: Array
    """(layers, key/value groups) float64, >= 0"""
    channels: Array
    """(layers, heads * head_width) float64: the channel scores that `heads` sums up"""

    def __post_init__(self) -> None:
        """Checks finiteness and freezes the arrays."""
        require_finite(self, "ffn", "heads", "channels")
        freeze(self)


@dataclass(frozen=True, slots=True, eq=False)
class RankDrift:
    """Rank drift between two score sets (Eq. 1) with its re-sampling control."""

    magnitude: Array
    """(layers, neurons) in [0, 1]: |rank on A - rank on B| / (N - 1)"""
    signed: Array
    """(layers, neurons) in [-1, 1]: (rank on A - rank on B) / (N - 1)"""
    scaled: Array
    """(layers, neurons) signed drift scaled to the spread of the magnitude, d± (Eq. 15)"""
    resample_primary: Array
    """(layers, neurons) drift between two token-disjoint halves (even and odd shards) of A"""
    resample_auxiliary: Array
    """(layers, neurons) the same for B"""
    half: Array
    """(layers, neurons) drift between a half of A and a half of B: equal in sample size to the control"""
    correlation: Array
    """(layers,) Spearman correlation of the ranks on A and B"""
    correlation_half: Array
    """(layers,) the same between a half of A and a half of B"""
    correlation_primary: Array
    """(layers,) Spearman correlation between the halves of A"""
    correlation_auxiliary: Array
    """(layers,) between the halves of B"""

    def __post_init__(self) -> None:
        """Checks shapes and freezes the arrays."""
        shape = np.shape(self.magnitude)
        names = ("signed", "scaled", "resample_primary", "resample_auxiliary", "half")
        require_shape(self, dict.fromkeys(names, shape))
        freeze(self)
