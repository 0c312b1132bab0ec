"""Wanda-sp: weight magnitude times activation norm, summed over the weights of a unit.

A base metric and a baseline of section 4. The activation norm of a channel is the square root of its energy per
sequence (not per token), as in the structured form of Wanda that was released with FLAP.
"""

import numpy as np

from gprune.records import ActivationStatistics, Array, ModelShape, UnitScores, WeightNorms
from gprune.study import CalibrationSettings


def score(
    statistics: ActivationStatistics, norms: WeightNorms, shape: ModelShape, settings: CalibrationSettings
) -> UnitScores:
    """Return scores s_j = (mean over rows r of |W_rj|) * sqrt(energy_j / sequences), from one merged shard.

    A key/value group's score is the sum over its channels. `settings` is not used.
    """
    samples = int(statistics.shard_samples[0])
    ffn = _product(norms.down_column_absolute, statistics.ffn_energy[0], samples)
    channels = _product(norms.out_column_absolute, statistics.attention_energy[0], samples)
    heads = channels.reshape(shape.layers, shape.kv_heads, shape.group_channels).sum(axis=-1)
    return UnitScores("wanda_sp", statistics.text, ffn, heads, channels)


def score_neurons(statistics: ActivationStatistics, norms: WeightNorms, shards: Array, layer: int) -> Array:
    """Return (neurons,) scores of one layer on the shards with these indices."""
    samples = int(statistics.shard_samples[shards].sum())
    energy = statistics.ffn_energy[shards, layer].sum(axis=0)
    return _product(norms.down_column_absolute[layer], energy, samples)


def layer_scores(
    norms: WeightNorms,
    shape: ModelShape,
    layer: int,
    ffn_energy: Array,
    attention_energy: Array,
    samples: int,
) -> tuple[Array, Array]:
    """Return (neurons,) and (key/value groups,) scores of one layer, for layer-by-layer pruning.

    The energies are sums over the tokens of `samples` sequences of the squared inputs of down_proj (neurons,)
    and of o_proj (heads * head_width,).
    """
    ffn = _product(norms.down_column_absolute[layer], ffn_energy, samples)
    channels = _product(norms.out_column_absolute[layer], attention_energy, samples)
    return ffn, channels.reshape(shape.kv_heads, shape.group_channels).sum(axis=-1)


def _product(absolute: Array, energy: Array, samples: int) -> Array:
    return absolute * np.sqrt(energy / samples)
