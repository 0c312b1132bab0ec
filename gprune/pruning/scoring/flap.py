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
    """Scores every neuron and key/value group of the dense model.

    Args:
        statistics: merged into one shard.
        norms: column norms of down_proj and o_proj.
        shape: the dense model.
        settings: ``flap_variant`` chooses the fluctuation; ``square_head_score`` squares the channel scores
            of o_proj once more, as FLAP's code does.

    Returns:
        s_j = fluctuation_j * |W_:j|^2, where the plain fluctuation is the population variance over tokens; a
        group is the mean of its channels' scores.
    """
    ffn = _fluctuation(statistics, "ffn", settings) * norms.down_column_square
    channels = _fluctuation(statistics, "attention", settings) * norms.out_column_square
    if settings.square_head_score:
        channels = channels**2
    heads = channels.reshape(shape.layers, shape.kv_heads, shape.group_channels).mean(axis=-1)
    return UnitScores("flap", statistics.text, ffn, heads, channels)


def layer_neurons(statistics: ActivationStatistics, norms: WeightNorms, shards: Array, layer: int) -> Array:
    """(neurons,) plain scores of one layer on some shards.

    Args:
        statistics: of the whole calibration set, per shard.
        norms: column norms of down_proj.
        shards: indices of the shards.
        layer: index of the layer.
    """
    counts = statistics.shard_tokens[shards]
    mean, moment = statistics.ffn_mean[shards, layer], statistics.ffn_moment[shards, layer]
    _, merged = merge_moments(counts.astype(np.float64), mean, moment)
    return merged / counts.sum() * norms.down_column_square[layer]


def plain(settings: CalibrationSettings) -> CalibrationSettings:
    """The same settings with the plain token variance as fluctuation."""
    return replace(settings, flap_variant="paper")


def _fluctuation(statistics: ActivationStatistics, part: str, settings: CalibrationSettings) -> Array:
    if settings.flap_variant == "released":
        return getattr(statistics, f"{part}_released_fluctuation")
    return getattr(statistics, f"{part}_moment")[0] / statistics.shard_tokens[0]
