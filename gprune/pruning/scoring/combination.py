"""How a baseline scores its units from two texts at once (appendix, multi-dataset calibration).

Scores, or ranks within the layer, are averaged unit by unit. Pooling averages nothing: it scores the
statistics of both texts as one, and is no concern of this module.
"""

from __future__ import annotations

import numpy as np

from gprune.pruning.ranking import ranks
from gprune.records import Array, ModelShape, UnitScores

SUMMED = ("wanda_sp",)
"""metrics whose key/value group sums its channels' scores; that of the others is their mean"""


def combine(scoring: str, primary: UnitScores, auxiliary: UnitScores, shape: ModelShape) -> UnitScores:
    """Averages the scores of two texts.

    Args:
        scoring: score_average, the mean of both scores; or rank_average, the mean of both ranks within the
            layer, from 0 for the least important.
        primary: scores on A.
        auxiliary: scores on B by the same metric.
        shape: the dense model.

    Returns:
        Scores of neurons and o_proj channels; a key/value group follows from the averaged channels by the
        metric's own rule.

    Raises:
        ValueError: another way of scoring, or scores that differ in metric or shape.
    """
    if scoring not in ("score_average", "rank_average"):
        raise ValueError(f"scores are combined by score_average or rank_average (got {scoring!r})")
    _require_alike(primary, auxiliary)
    ffn, channels = (
        _average(scoring, getattr(primary, part), getattr(auxiliary, part)) for part in ("ffn", "channels")
    )
    grouped = channels.reshape(shape.layers, shape.kv_heads, shape.group_channels)
    heads = grouped.sum(axis=-1) if primary.metric in SUMMED else grouped.mean(axis=-1)
    return UnitScores(primary.metric, f"{primary.text} + {auxiliary.text}", ffn, heads, channels)


def _average(scoring: str, first: Array, second: Array) -> Array:
    """(layers, units) mean of two score arrays or of their ranks."""
    if scoring == "rank_average":
        first, second = ranks(first), ranks(second)
    # halved before adding, so that no sum of large scores overflows
    return 0.5 * first + 0.5 * second


def _require_alike(primary: UnitScores, auxiliary: UnitScores) -> None:
    if primary.metric != auxiliary.metric:
        raise ValueError(
            f"scores by {primary.metric!r} and by {auxiliary.metric!r} do not average: use one metric"
        )
    for part in ("ffn", "channels"):
        sizes = np.shape(getattr(primary, part)), np.shape(getattr(auxiliary, part))
        if sizes[0] != sizes[1]:
            raise ValueError(
                f"{part} scores of shapes {sizes[0]} and {sizes[1]} do not average: score both texts "
                "with one model"
            )
