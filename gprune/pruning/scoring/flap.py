"""FLAP: the fluctuation of a channel times the squared norm of its weight column (WIFV).

The base metric of most results in section 4. The plain form uses the variance of the channel over tokens; the
released form uses the fluctuation that FLAP's code accumulates sample by sample.
"""

from dataclasses import replace

import numpy as np

from gprune.records import ActivationStatistics, Array, ModelShape, UnitScores, WeightNorms, merge_moments
from gprune.study import CalibrationSettings


def score(
    statistics: ActivationStatistics, norms: WeightNorms, shape: ModelShape, settings: CalibrationSettings
) -> UnitScores:
    """Return scores s_j = fluctuation_j * |W_:j|^2 from statistics that are merged into one shard.

    ``flap_variant`` selects the fluctuation; the plain one is the population variance over tokens.
    ``square_head_score`` squares the channel scores of o_proj, as FLAP's code does; a group's score is their mean.
    """
    ffn = _fluctuation(statistics, "ffn", settings) * norms.down_column_square
    channels = _fluctuation(statistics, "attention", settings) * norms.out_column_square
    if settings.square_head_score:
        channels = channels**2
    heads = channels.reshape(shape.layers, shape.kv_heads, shape.group_channels).mean(axis=-1)
    return UnitScores("flap", statistics.text, ffn, heads, channels)


def score_neurons(statistics: ActivationStatistics, norms: WeightNorms, shards: Array, layer: int) -> Array:
    """Return (neurons,) plain scores of one layer on the shards with these indices."""
    counts = statistics.shard_tokens[shards]
    mean, moment = statistics.ffn_mean[shards, layer], statistics.ffn_moment[shards, layer]
    _, merged = merge_moments(counts.astype(np.float64), mean, moment)
    return merged / counts.sum() * norms.down_column_square[layer]


def plain(settings: CalibrationSettings) -> CalibrationSettings:
    """Return the same settings with the plain token variance as fluctuation."""
    return replace(settings, flap_variant="paper")


def _fluctuation(statistics: ActivationStatistics, part: str, settings: CalibrationSettings) -> Array:
    if settings.flap_variant == "released":
        return getattr(statistics, f"{part}_released_fluctuation")
    return getattr(statistics, f"{part}_moment")[0] / statistics.shard_tokens[0]
