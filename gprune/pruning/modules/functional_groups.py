"""Compute FANG's functional groups of neurons, a baseline of section 4.

There is one group per context and a shared group for the neurons that many contexts use. The groups are computed
from the affinities on one text and compared with behavior-consistent modules in Fig. 1b.
"""

import numpy as np

from gprune.records import Array, Partition
from gprune.system.errors import MethodError


def functional_groups(affinity: Array, grouping: str) -> Partition:
    """Return the groups of neurons: each neuron joins a context with high affinity, or the shared group.

    The shared group is filled first, up to an even share of the layer, with the neurons that rank highly in the most
    contexts. The other neurons are assigned in descending order of affinity, each to its best context with free
    capacity.

    Args:
        affinity: (layers, contexts, neurons) mean of |input * gradient of the loss| over a context's tokens.
        grouping: `balanced` supports any width, with group sizes that differ by at most one; ties for the shared
            group are broken by affinity. `released` follows FANG's code and requires an evenly divisible width; ties
            for the shared group go to the first neuron, ties between contexts to the last context.

    Returns:
        Labels 0 ... contexts - 1 are the groups of the contexts, label `contexts` is the shared group.

    Raises:
        MethodError: the layers are too narrow, or their width does not divide evenly under `released`.
    """
    layers, contexts, neurons = np.shape(affinity)
    _require_width(neurons, contexts + 1, grouping)
    rows = [_group_layer(np.asarray(layer, dtype=np.float64), grouping == "released") for layer in affinity]
    return Partition.unrefined("functional", np.stack(rows), np.full(layers, contexts + 1))


def group_profile(contexts: int) -> Array:
    """Return (contexts + 1, contexts) shares of the contexts in each group: one context, or all equally if shared."""
    return np.concatenate([np.eye(contexts), np.full((1, contexts), 1.0 / contexts)])


def _require_width(neurons: int, groups: int, grouping: str) -> None:
    if neurons < groups:
        raise MethodError(
            f"FANG's {groups} groups need at least as many neurons in a layer, but it has {neurons}: lower "
            "contexts.count, or leave the method out"
        )
    if grouping == "released" and neurons % groups:
        raise MethodError(
            f"FANG's released code needs a layer width that {groups} divides, but it is {neurons}: set "
            "baselines.fang_grouping=balanced"
        )


def _group_layer(affinity: Array, released: bool) -> Array:
    """Return (neurons,) int32 group of each neuron of one layer, from (contexts, neurons) affinities."""
    contexts, neurons = affinity.shape
    size = neurons // (contexts + 1)
    sums = affinity.sum(axis=1, keepdims=True)
    # each context counts equally, whatever the size of its gradients
    summed_shares = (affinity / np.where(sums > 0, sums, 1)).sum(axis=0)
    shared = _shared_group(affinity, size, np.zeros(neurons) if released else summed_shares)
    labels = np.full(neurons, contexts, dtype=np.int32)
    if released:
        # reversed, because the released code gives ties to the last context and the code below to the first
        labels[~shared] = contexts - 1 - _assign(affinity[::-1, ~shared], size)
    else:
        labels[~shared] = _assign(affinity[:, ~shared], size)
    return labels


def _shared_group(affinity: Array, size: int, preference: Array) -> Array:
    """Return (neurons,) bool, True for the `size` neurons of the shared group.

    In each round, the neurons that are among the best `size` of the most contexts join. If they are too many, those
    with the highest `preference` (neurons,) join.
    """
    # fewer than `size` neurons have joined, so the best `size` of the others are among the best 2 * size
    order = np.argsort(-affinity, axis=1, kind="stable")[:, : 2 * size]
    is_shared = np.zeros(affinity.shape[1], dtype=bool)
    capacity = size
    while capacity > 0:
        unassigned = ~is_shared[order]
        best = order[unassigned & (np.cumsum(unassigned, axis=1) <= size)]
        context_counts = np.bincount(best, minlength=len(is_shared))
        candidates = np.flatnonzero(context_counts == context_counts.max())
        joining = candidates[np.argsort(-preference[candidates], kind="stable")][:capacity]
        is_shared[joining] = True
        capacity -= len(joining)
    return is_shared


def _assign(affinity: Array, size: int) -> Array:
    """Return the (neurons,) context of each neuron, assigned in descending order of affinity.

    Each round assigns neurons to their best open context until one context is full. A context has `size` neurons;
    the contexts that fill first take one more, until the remainder is used up.
    """
    contexts, neurons = affinity.shape
    labels, counts = np.zeros(neurons, dtype=np.int32), np.zeros(contexts, dtype=np.int64)
    unassigned = np.arange(neurons)
    while len(unassigned):
        remainder = neurons - contexts * size - np.count_nonzero(counts > size)
        capacity = size + (remainder > 0) - counts
        available = np.flatnonzero(capacity > 0)
        affinities = affinity[np.ix_(available, unassigned)]
        best = affinities.argmax(axis=0)
        order = np.lexsort((best, -affinities.max(axis=0)))
        choices = available[best[order]]
        # number of neurons, in this order, after which each context is full; the round ends with the first of them
        filled = [np.flatnonzero(choices == context)[capacity[context] - 1 :][:1] + 1 for context in available]
        stop = int(np.min(np.concatenate(filled), initial=len(unassigned)))
        labels[unassigned[order[:stop]]] = choices[:stop]
        counts += np.bincount(choices[:stop], minlength=contexts)
        unassigned = np.delete(unassigned, order[:stop])
    return labels
