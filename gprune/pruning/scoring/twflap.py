"""Token-weighted FLAP (twFLAP): FLAP with the tokens weighted by the contexts of a neuron's group (section 4).

This is FANG's metric and a base metric of GPrune-LLM. Every group of neurons weights a token by the distance between
the token's context and the context of the group. A token's weight depends on its context only. The moments per context
therefore give the weighted mean and variance exactly, and new groups or modules need no forward pass.
"""

from collections.abc import Sequence

import numpy as np

from gprune.records import Array, Contexts, ContextStatistics, UnitScores, WeightNorms
from gprune.study import ContextSettings


def context_weights(profile: Array, statistics: ContextStatistics, distances: Array, temperature: float) -> Array:
    """Return the weight of a token for each group of neurons, by the context of the token.

    A group with the single context k weights tokens by a softmax over all tokens of the negative distance between
    their context and k, times the number of tokens, so that the mean weight is 1. For other groups, these weights are
    averaged by the profile.

    Args:
        profile: (layers, groups, contexts) share of each context in a group, rows with sum 1; (groups, contexts) if
            it is the same in all layers.
        statistics: statistics merged into one shard.
        distances: (layers, contexts, contexts) distances between the centres of the contexts.
        temperature: softmax temperature, > 0.

    Returns:
        (layers, groups, contexts) weight of one token; 0 for contexts without a token.
    """
    tokens = statistics.tokens[0].astype(np.float64)[:, None, :]
    exponent = np.where(tokens > 0, -np.asarray(distances, dtype=np.float64) / temperature, -np.inf)
    # the largest exponent of a context with tokens is 0, so nothing overflows and no sum is 0
    unscaled = np.exp(exponent - exponent.max(axis=-1, keepdims=True))
    # (layers, contexts, contexts) weights of tokens for groups of one context, scaled to a mean of 1
    by_context = tokens.sum(axis=-1, keepdims=True) * unscaled / (tokens * unscaled).sum(axis=-1, keepdims=True)
    return profile @ by_context


def module_profile(affinity: Array, labels: Array, groups: int, kind: str = "dominant") -> Array:
    """Return the (layers, groups, contexts) share of each context in each module, with rows of sum 1.

    Args:
        affinity: (layers, contexts, neurons) mean of |input * gradient of the loss| over a context's tokens.
        labels: (layers, neurons) module of each neuron.
        groups: number of rows per layer; a layer may have fewer modules.
        kind: `dominant` assigns a module to the context with the largest ratio of its mean affinity to the layer's
            mean, as FANG does; `mixed` uses the mean affinities as shares. Modules without affinity and unused rows
            have equal shares.
    """
    layers, contexts, _ = np.shape(affinity)
    profile = np.full((layers, groups, contexts), 1.0 / contexts)
    for layer, row in enumerate(labels):
        sizes = np.maximum(np.bincount(row, minlength=groups), 1)
        sums = np.stack([np.bincount(row, weights=values, minlength=groups) for values in affinity[layer]])
        means = (sums / sizes).T
        has_affinity = means.sum(axis=1) > 0
        if kind == "dominant":
            # without the division, every module would be assigned to the context with the largest gradients
            layer_mean = affinity[layer].mean(axis=1)
            means = np.eye(contexts)[np.argmax(means / np.where(layer_mean > 0, layer_mean, 1.0), axis=1)]
        profile[layer, has_affinity] = means[has_affinity] / means[has_affinity].sum(axis=1, keepdims=True)
    return profile


def score(
    statistics: ContextStatistics,
    contexts: Contexts,
    norms: WeightNorms,
    labels: Array,
    profile: Array,
    heads: UnitScores,
    settings: ContextSettings,
    shards: Array | Sequence[int] | None = None,
) -> UnitScores:
    """Return scores s_j = weighted variance about the weighted mean, times |W_:j|^2.

    Args:
        statistics: moments of a calibration set per shard and context.
        contexts: the contexts of these statistics.
        norms: column norms of down_proj.
        labels: (layers, neurons) group or module of each neuron, which determines its token weights.
        profile: (layers, groups, contexts) or (groups, contexts) share of each context in a group.
        heads: FLAP's scores on the same text, from which the scores of heads and channels are copied.
        settings: the temperature of the token weights.
        shards: indices of the shards to score; all by default.
    """
    merged = statistics.merge(None if shards is None else list(shards))
    weights = context_weights(profile, merged, contexts.distances, settings.temperature)
    fluctuation = np.stack([_fluctuation(merged, layer, weights[layer], row) for layer, row in enumerate(labels)])
    return UnitScores("twflap", statistics.text, fluctuation * norms.down_column_square, heads.heads, heads.channels)


def _fluctuation(merged: ContextStatistics, layer: int, weights: Array, labels: Array) -> Array:
    """Return (neurons,) token-weighted variance: within the contexts plus between their means."""
    # the layout is (contexts, neurons), so that the sums over the few contexts read contiguous rows
    weight = np.ascontiguousarray(weights[labels].T)
    mean = merged.mean[0, layer]
    # summed token weights of each context
    mass = merged.tokens[0, layer][:, None] * weight
    total = mass.sum(axis=0)
    centre = (mass * mean).sum(axis=0) / total
    squares: Array = (weight * merged.moment[0, layer] + mass * (mean - centre) ** 2).sum(axis=0)
    return squares / total
