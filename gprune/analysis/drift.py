"""Summarize the rank drift of neurons between calibration texts, with its resampling control.

Fig. 1a and Eq. 1 (section 3.1): distributions of the rank drift as shares of neurons in bins, so that a chart of
352,256 neurons (LLaMA-2-7B) needs only a hundred numbers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gprune.pruning.ranking import ranks
from gprune.records import Array, RankDrift, UnitScores
from gprune.records.experts import ExpertDrift


@dataclass(frozen=True, slots=True)
class Distribution:
    """One curve of the drift histogram."""

    name: str
    """name of the curve: the two sets of scores that are compared"""
    shares: Array
    """(bins,) percent of all neurons, or of all ranked experts, in each bin"""
    median: float
    """median drift over them; NaN if no expert has a rank"""
    correlation: float
    """median over layers of the Spearman correlation, or NaN if no layer has one"""


CURVES = CROSS, HALVES, FLOOR_PRIMARY, FLOOR_AUXILIARY = "A | B", "half A | half B", "A resampled", "B resampled"
"""names of the four curves, in the order of `distributions`; each compares the scores of two texts or parts of texts"""


def shares(values: Array, bins: int) -> Array:
    """Return (bins,) percent of the finite drift values in equal bins of [0, 1], 1 included; 0 if there is none."""
    finite = values[np.isfinite(values)]
    histogram, _ = np.histogram(finite, bins=bins, range=(0.0, 1.0))
    return 100.0 * histogram / max(finite.size, 1)


def distributions(drift: RankDrift | ExpertDrift, bins: int, layer: int | None = None) -> list[Distribution]:
    """Return the distributions of the drift between A and B, between their halves, and of two resampling controls.

    A resampling control compares two halves of one text. `layer` is None for all layers together. The drift of experts
    has no correlations.
    """
    values = drift.magnitude, drift.half, drift.resample_primary, drift.resample_auxiliary
    correlations = (
        (drift.correlation, drift.correlation_half, drift.correlation_primary, drift.correlation_auxiliary)
        if isinstance(drift, RankDrift)
        else (np.full(len(drift.signed), np.nan),) * len(values)
    )
    layers = slice(None) if layer is None else slice(layer, layer + 1)
    return [
        Distribution(name, shares(of_units[layers], bins), finite_median(of_units[layers]), finite_median(rho[layers]))
        for name, of_units, rho in zip(CURVES, values, correlations, strict=True)
    ]


def resampling_floor(curves: Sequence[Distribution]) -> float:
    """Return the larger median of the two resampling controls in `distributions`; NaN if neither has values."""
    return max((curve.median for curve in curves[2:4] if math.isfinite(curve.median)), default=math.nan)


def survival(curve: Distribution) -> Array:
    """Return the (bins + 1,) percent of units whose drift is at least as large as each edge; NaN for an empty curve."""
    if not curve.shares.any():
        return np.full(len(curve.shares) + 1, np.nan)
    remaining: Array = 100.0 - np.concatenate([[0.0], np.cumsum(curve.shares)])
    return np.maximum(remaining, 0.0)


def finite_median(values: Array) -> float:
    """Return the median of the finite values, or NaN if there are none."""
    finite = np.asarray(values)[np.isfinite(values)]
    return float(np.median(finite)) if finite.size else float("nan")


def distribution_table(curves: list[Distribution], unit: str = "neuron") -> pd.DataFrame:
    """Return the drift histogram as a table with one row per bin and one column per curve."""
    bins = len(curves[0].shares)
    edges = np.linspace(0.0, 1.0, bins + 1)
    columns: dict[str, Array] = {"drift from": edges[:-1], "drift to": edges[1:]}
    return pd.DataFrame(columns | {f"{curve.name}, % of {unit}s": curve.shares for curve in curves})


def shares_by_layer(magnitude: Array, bins: int) -> Array:
    """Return (layers, bins) percent of each layer's neurons in each drift bin."""
    return np.stack([shares(row, bins) for row in magnitude])


def drift_by_layer(drift: RankDrift) -> pd.DataFrame:
    """Return the median drift and Spearman correlations of every layer."""
    return pd.DataFrame(
        {
            "layer": np.arange(len(drift.magnitude)),
            "median drift A|B": np.median(drift.magnitude, axis=1),
            "median drift, A resampled": np.median(drift.resample_primary, axis=1),
            "Spearman A|B": drift.correlation,
            "Spearman half A|half B": drift.correlation_half,
            "Spearman, A resampled": drift.correlation_primary,
            "Spearman, B resampled": drift.correlation_auxiliary,
        }
    )


def scaled_ranks(scores: Array) -> Array:
    """Return (neurons,) ranks of a layer's scores from 0 (least important) to 1."""
    return ranks(scores) / max(len(scores) - 1, 1)


def joint_ranks(primary: Array, auxiliary: Array, bins: int) -> Array:
    """Return (bins, bins) counts of a layer's neurons by rank on A (column) and on B (row), in ascending order.

    The arguments are the (neurons,) scores on A and B.
    """
    histogram, _, _ = np.histogram2d(scaled_ranks(auxiliary), scaled_ranks(primary), bins=bins, range=[[0, 1], [0, 1]])
    return histogram


def top_drifting(drift: RankDrift, primary: UnitScores, auxiliary: UnitScores, count: int) -> pd.DataFrame:
    """Return a table of the `count` neurons of all layers with the largest drift, or of all neurons if there are fewer.

    The largest drift is first; ties are in ascending order of layer and neuron.
    """
    layers, neurons = drift.magnitude.shape
    flat = drift.magnitude.ravel()
    order = _find_largest(flat, min(count, flat.size))
    layer, neuron = order // neurons, order % neurons
    rank_a, rank_b = ({i: scaled_ranks(scores.ffn[i]) for i in np.unique(layer)} for scores in (primary, auxiliary))
    return pd.DataFrame(
        {
            "layer": layer,
            "neuron": neuron,
            "drift d": flat[order],
            "signed drift": drift.signed.ravel()[order],
            "rank on A": [rank_a[i][j] for i, j in zip(layer, neuron, strict=True)],
            "rank on B": [rank_b[i][j] for i, j in zip(layer, neuron, strict=True)],
            "score on A": primary.ffn[layer, neuron],
            "score on B": auxiliary.ffn[layer, neuron],
            "A resampled": drift.resample_primary.ravel()[order],
            "B resampled": drift.resample_auxiliary.ravel()[order],
        }
    )


def _find_largest(values: Array, count: int) -> Array:
    """Return the indices of the `count` largest values in descending order; ties in ascending order of index."""
    # all values not below the count-th largest, which can be more than `count` at a tie
    candidates = np.flatnonzero(values >= np.partition(values, len(values) - count)[len(values) - count])
    ordered = candidates[np.lexsort((candidates, -values[candidates]))]
    return ordered[:count]


@dataclass(frozen=True, slots=True)
class Movers:
    """The neurons of one layer whose rank shifts most from A to B."""

    layer: int
    neurons: Array
    """(count,) int64 indices, largest drift first; ties in ascending order"""
    first: Array
    """(count,) rank on A, from 0 (least important of the layer) to 1 (most)"""
    second: Array
    """(count,) rank on B"""
    median: float
    """median drift of all neurons of the layer"""
    width: int
    """number of all neurons of the layer"""

    def table(self) -> pd.DataFrame:
        """Return a table with one row per neuron."""
        return pd.DataFrame(
            {
                "layer": self.layer,
                "neuron": self.neurons,
                "rank on A": self.first,
                "rank on B": self.second,
                "move": self.second - self.first,
            }
        )


def least_stable_layer(drift: RankDrift) -> int:
    """Return the layer with the largest median drift; the first one at a tie."""
    return int(np.median(drift.magnitude, axis=1).argmax())


def movers(
    drift: RankDrift, primary: UnitScores, auxiliary: UnitScores, layer: int, count: int = 20, among: int | None = None
) -> Movers:
    """Return the `count` neurons of a layer with the largest drift, or all neurons if there are fewer.

    If neuron `among` is not one of them, it replaces the last.
    """
    magnitude = drift.magnitude[layer]
    order = np.argsort(-magnitude, kind="stable")[:count]
    if among is not None and among not in order:
        order[-1] = among
    rank_a, rank_b = scaled_ranks(primary.ffn[layer]), scaled_ranks(auxiliary.ffn[layer])
    return Movers(layer, order, rank_a[order], rank_b[order], float(np.median(magnitude)), len(magnitude))
