"""Token-weighted FLAP: how much a neuron fluctuates over the tokens that matter to its group (section 4).

FANG's metric, and the base metric of GPrune-LLM (twFLAP). Every group of neurons weights the tokens by how
near their context is to its own. A token's weight depends on its context only, so moments kept for each
context give the weighted mean and fluctuation exactly: new groups or modules need no other forward pass.
"""

from collections.abc import Sequence

import numpy as np

from gprune.records import Array, Contexts, ContextStatistics, UnitScores, WeightNorms
from gprune.study import ContextSettings


def context_weights(profile: Array, statistics: ContextStatistics, distances: Array, temperature: float) -> Array:
    """Return the weight of a token for each group of neurons, by the context of the token.

    A group that serves context k alone weights tokens by a softmax over all of them of the negative distance
    between their context and k, times their number: weights are 1 on average. Other groups mix these.

    Args:
        profile: (layers, groups, contexts) share of each context in a group, rows of sum 1; (groups,
            contexts) where all layers are alike.
        statistics: merged into one shard.
        distances: (layers, contexts, contexts) between the contexts' centres.
        temperature: of the softmax, > 0; the higher, the more alike the weights.

    Gives the (layers, groups, contexts) weight of one token; 0 for contexts without a token. Summed over all
    tokens of a layer the weights give the number of tokens.
    """
    tokens = statistics.tokens[0].astype(np.float64)[:, None, :]
    exponent = np.where(tokens > 0, -np.asarray(distances, dtype=np.float64) / temperature, -np.inf)
    # the largest exponent of a context with tokens is 0, so nothing overflows and no sum is 0
    raw = np.exp(exponent - exponent.max(axis=-1, keepdims=True))
    single = tokens.sum(axis=-1, keepdims=True) * raw / (tokens * raw).sum(axis=-1, keepdims=True)
    return profile @ single


def module_profile(affinity: Array, labels: Array, groups: int, kind: str = "dominant") -> Array:
    """Return (layers, groups, contexts) shares of the contexts that each module serves, of sum 1.

    They follow from `affinity` (layers, contexts, neurons), the mean of |input * gradient of the loss| over a
    context's tokens, and `labels` (layers, neurons); layers may have fewer than `groups` modules. Kind
    dominant puts a module whole into the context in which its neurons stand out most above the layer's mean,
    as FANG does with its groups; mixed takes the mean affinities as shares. A module that serves no context,
    and rows that no module of the layer fills, have equal shares.
    """
    layers, contexts, _ = np.shape(affinity)
    profile = np.full((layers, groups, contexts), 1.0 / contexts)
    for layer, row in enumerate(labels):
        sizes = np.maximum(np.bincount(row, minlength=groups), 1)
        sums = np.stack([np.bincount(row, weights=values, minlength=groups) for values in affinity[layer]])
        means = (sums / sizes).T
        serves = means.sum(axis=1) > 0
        if kind == "dominant":
            # without the division every module would go to the context with the largest gradients
            level = affinity[layer].mean(axis=1)
            means = np.eye(contexts)[np.argmax(means / np.where(level > 0, level, 1.0), axis=1)]
        profile[layer, serves] = means[serves] / means[serves].sum(axis=1, keepdims=True)
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
    """Score neurons by s_j = weighted fluctuation about the weighted mean, times |W_:j|^2.

    Args:
        statistics: moments of a calibration set per shard and context.
        contexts: the contexts they were measured under.
        norms: column norms of down_proj.
        labels: (layers, neurons) group or module of each neuron, whose token weights it has.
        profile: (layers, groups, contexts) or (groups, contexts) share of each context in a group.
        heads: FLAP's scores of the same text, of which heads and channels are taken over.
        settings: the temperature of the token weights.
        shards: indices of the shards to score; all by default.

    Labels, profile, norms and contexts belong to these statistics.
    """
    merged = statistics.merge(None if shards is None else list(shards))
    weights = context_weights(profile, merged, contexts.distances, settings.temperature)
    fluctuation = np.stack([_fluctuation(merged, layer, weights[layer], row) for layer, row in enumerate(labels)])
    return UnitScores("twflap", statistics.text, fluctuation * norms.down_column_square, heads.heads, heads.channels)


def _fluctuation(merged: ContextStatistics, layer: int, weights: Array, labels: Array) -> Array:
    """Return (neurons,) token-weighted variance: within the contexts, and between their means."""
    # (contexts, neurons) in memory: the sums below run over the few contexts, a row of neurons at a time
    weight = np.ascontiguousarray(weights[labels].T)
    mean = merged.mean[0, layer]
    share = merged.tokens[0, layer][:, None] * weight
    total = share.sum(axis=0)
    centre = (share * mean).sum(axis=0) / total
    squares: Array = (weight * merged.moment[0, layer] + share * (mean - centre) ** 2).sum(axis=0)
    return squares / total
