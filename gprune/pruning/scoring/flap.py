"""FLAP: how much a channel fluctuates, times what its column of weights makes of it (WIFV).

The base metric behind most results of section 4. The plain form takes the variance of the channel over the
tokens; the released form takes the fluctuation that FLAP's code accumulates sample by sample.
"""

from dataclasses import replace

import numpy as np

from gprune.records import ActivationStatistics, Array, ModelShape, UnitScores, WeightNorms, merge_moments
from gprune.study import CalibrationSettings


def score(
    statistics: ActivationStatistics, norms: WeightNorms, shape: ModelShape, settings: CalibrationSettings
) -> UnitScores:
    """Score units by s_j = fluctuation_j * |W_:j|^2, of statistics that are merged into one shard.

    The plain fluctuation is the population variance over tokens; ``flap_variant`` chooses.
    ``square_head_score`` squares the channel scores of o_proj once more, as FLAP's code does; a group is
    their mean.
    """
    ffn = _fluctuation(statistics, "ffn", settings) * norms.down_column_square
    channels = _fluctuation(statistics, "attention", settings) * norms.out_column_square
    if settings.square_head_score:
        channels = channels**2
    heads = channels.reshape(shape.layers, shape.kv_heads, shape.group_channels).mean(axis=-1)
    return UnitScores("flap", statistics.text, ffn, heads, channels)


def flap_neurons(statistics: ActivationStatistics, norms: WeightNorms, shards: Array, layer: int) -> Array:
    """Return (neurons,) plain scores of one layer on the shards of given indices, from statistics per shard."""
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
