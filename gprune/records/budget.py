"""What a pruning decision costs in weights, and how a target retention is met exactly (section 3.3).

Retention counts the linear weights of the decoder layers alone: embeddings, norms, biases and the LM head
are left out. A neuron costs its gate row, up row and down column; a key/value group its query heads' q and
o weights with one k and one v head. Everything is counted in whole weights, so no rounding creeps in.

Hardware runs matrices fastest whose widths are multiples of 8 to 256: ``align`` brings FFN widths there.
"""

import math
from collections.abc import Callable

import numpy as np

from gprune.records import Array, ModelShape

_BLOCK = 128
"""rows that the matrix units of GPUs take at a time"""


def retention(shape: ModelShape, ffn: Array, heads: Array) -> float:
    """Retained fraction, in [0, 1], of the decoder's linear weights.

    `ffn` (layers, neurons) and `heads` (layers, key/value groups) are bool, True = kept.
    """
    weights = np.count_nonzero(ffn) * shape.neuron_weights + np.count_nonzero(heads) * shape.group_weights
    return weights / shape.decoder_weights


def nearest_whole(value: float) -> int:
    """The nearest whole number; halves go up, on both sides of zero."""
    return math.floor(value + 0.5)


def uniform_counts(
    shape: ModelShape, target: float, possible: Callable[[int], bool] = lambda _: True
) -> tuple[int, float]:
    """Units that every layer keeps when all layers are pruned at one ratio, `target` in (0, 1).

    The key/value groups come first: as near `target` of them as leaves between one and all neurons to fill
    the rest of the layer's budget. Gives key/value groups of each layer, and neurons of each layer before
    rounding; where no choice of groups leaves a possible number of neurons, the number nearest to possible.
    `possible` says which numbers of groups there may be; all of them always may.
    """
    budget = target * shape.decoder_weights / shape.layers

    def neurons(groups: int) -> float:
        return (budget - groups * shape.group_weights) / shape.neuron_weights

    def distance(groups: int) -> tuple[float, float]:
        count = neurons(groups)
        return max(1 - count, count - shape.neurons, 0.0), abs(groups - target * shape.kv_heads)

    numbers = [*filter(possible, range(1, shape.kv_heads)), shape.kv_heads]
    chosen = min(numbers, key=distance)
    return chosen, min(max(neurons(chosen), 1.0), float(shape.neurons))


def equal_counts(shape: ModelShape, target: float, alignment: int = 1) -> tuple[int, int]:
    """Neurons and key/value groups of every layer, where all layers keep as many of both.

    Groups as `uniform_counts`, of such numbers that the query heads divide the hidden width: LLaMA's own
    configuration takes no others. Neurons the most that stay within the budget of a layer, in whole blocks of
    `alignment`, and one block at least. `target` in (0, 1).
    """

    def divides(groups: int) -> bool:
        return shape.hidden % (groups * shape.group_size) == 0

    groups, neurons = uniform_counts(shape, target, divides)
    # what rounding does to a whole number is no reason to leave a block out
    blocks = math.floor((neurons + 1e-6) / alignment) * alignment
    return max(blocks, least_neurons(shape, alignment)), groups


def proposed_alignment(shape: ModelShape, target: float) -> int:
    """The block of FFN neurons that fast kernels like, where equal widths lose next to nothing by it; else 1.

    128 where it divides the dense width and a layer of whole blocks keeps nine tenths of the neurons at least
    that it keeps without. `target` in (0, 1).
    """
    if shape.neurons % _BLOCK:
        return 1
    free, aligned = (equal_counts(shape, target, block)[0] for block in (1, _BLOCK))
    return _BLOCK if 0.9 * free <= aligned <= free else 1


def highest(scores: Array, count: int) -> Array:
    """(..., units) bool, True for the `count` highest scores of each row; of equal ones the first."""
    order = np.argsort(-np.asarray(scores), axis=-1, kind="stable")[..., :count]
    mask = np.zeros(np.shape(scores), dtype=bool)
    np.put_along_axis(mask, order, True, axis=-1)
    return mask


def keep_one(mask: Array, scores: Array) -> Array:
    """The floor: a (layers, units) bool mask in which an empty layer keeps its highest score."""
    floored = np.array(mask, dtype=bool)
    empty = np.flatnonzero(~floored.any(axis=1))
    floored[empty, np.argmax(np.asarray(scores)[empty], axis=1)] = True
    return floored


def fill_exactly(shape: ModelShape, ffn: Array, heads: Array, margin: Array, target: float) -> Array:
    """Adds or removes the neurons nearest their thresholds until the kept weights meet the target.

    `ffn` (layers, neurons) bool is the decision to correct; `heads` (layers, key/value groups) bool is left
    as it is. `margin` (layers, neurons) is score minus threshold: kept neurons are removed from the lowest
    up, removed ones added from the highest down. Every layer keeps a neuron; the kept weights are as near the
    target as one neuron allows, or as near as the fixed heads and that floor leave possible.
    """
    order = np.argsort(margin, axis=None, kind="stable")
    position: Array = np.empty(np.shape(margin), dtype=np.int64)
    position.ravel()[order] = np.arange(order.size)
    mask = keep_one(ffn, position)
    fixed = np.count_nonzero(heads) * shape.group_weights
    count = nearest_whole((target * shape.decoder_weights - fixed) / shape.neuron_weights)
    excess = np.count_nonzero(mask) - min(max(count, shape.layers), mask.size)
    if excess > 0:
        # every layer's best neuron stays, whatever its margin
        removable = mask.copy()
        removable[np.arange(shape.layers), np.where(mask, position, -1).argmax(axis=1)] = False
        lowest = order[removable.ravel()[order]][:excess]
        mask.ravel()[lowest] = False
    if excess < 0:
        highest = order[~mask.ravel()[order]][excess:]
        mask.ravel()[highest] = True
    return mask


def least_neurons(shape: ModelShape, alignment: int) -> int:
    """Neurons that every layer keeps at least: one block, or the whole layer where a block is wider."""
    return min(alignment, shape.neurons)


def align(shape: ModelShape, ffn: Array, heads: Array, margin: Array, target: float, alignment: int) -> Array:
    """Meets the target with FFN widths that are multiples of a block of `alignment` >= 1 neurons.

    The exact solution is rounded down to whole blocks in every layer. The layers whose next block has the
    highest mean margin then round up, until the kept weights are as near the target as a block allows; where
    the floors alone exceed it, the blocks of the lowest mean margin leave instead. Inside a layer the neurons
    nearest their thresholds are the first to come or go. For the arguments see `fill_exactly`, which
    alignment 1 is. Every width is a positive multiple of ``alignment`` or the full width of the layer; the
    kept weights are within half a block of the target, or as near as the fixed heads and the floor of one
    block leave possible.
    """
    exact = fill_exactly(shape, ffn, heads, margin, target)
    if alignment == 1:
        return exact
    finite = _finite(margin)
    order = np.lexsort((-finite, ~exact), axis=1)
    sums = np.cumsum(np.take_along_axis(finite, order, axis=1), axis=1)
    fixed = np.count_nonzero(heads) * shape.group_weights
    neurons_left = (target * shape.decoder_weights - fixed) / shape.neuron_weights
    widths = _aligned_widths(exact.sum(axis=1), np.pad(sums, ((0, 0), (1, 0))), neurons_left, alignment)
    mask = np.zeros_like(exact)
    np.put_along_axis(mask, order, np.arange(shape.neurons) < widths[:, None], axis=1)
    return mask


def _aligned_widths(counts: Array, sums: Array, neurons_left: float, alignment: int) -> Array:
    """(layers,) aligned widths whose sum is nearest ``neurons_left`` neurons, by whole blocks.

    `counts` (layers,) are neurons of the exact solution, `sums` (layers, neurons + 1) the summed margins of
    each layer's first neurons in the order of keeping.
    """
    full, layers = sums.shape[1] - 1, np.arange(len(counts))
    least = min(alignment, full)
    widths = np.where(counts == full, full, np.maximum(counts // alignment * alignment, least))
    while True:
        missing = neurons_left - widths.sum()
        if missing > 0:
            other = np.minimum((widths // alignment + 1) * alignment, full)
        else:
            other = np.maximum((widths - 1) // alignment * alignment, least)
        size = np.abs(other - widths)
        # Halves go up. Every step but such a half brings the sum nearer, so that this ends.
        nearer = (size > 0) & (size <= 2 * missing if missing > 0 else size < -2 * missing)
        if not nearer.any():
            return widths
        mean = (sums[layers, other] - sums[layers, widths]) / np.where(nearer, other - widths, 1)
        chosen = np.where(nearer, mean if missing > 0 else -mean, -np.inf).argmax()
        widths[chosen] = other[chosen]


def _finite(margin: Array) -> Array:
    """Margins with infinities replaced by the largest and smallest finite one, so that blocks have means."""
    values = np.asarray(margin, dtype=np.float64)
    finite = values[np.isfinite(values)]
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 0.0)
    return np.clip(values, low, high)
