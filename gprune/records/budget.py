"""Count the weights of masks and meet a target retention exactly (section 3.3).

Retention counts only the linear weights of the decoder layers, without embeddings, norms, biases and the LM head. A
neuron has its gate row, up row and down column; a key/value group has the q and o weights of its query heads and one k
and one v head. Weights are counted as integers, without rounding errors.

``meet_target`` corrects masks to the target. FFN widths can be multiples of a block, because hardware is fastest for
multiples of 8 to 256.
"""

import math
from collections.abc import Callable

import numpy as np

from gprune.records import Array, ModelShape

_BLOCK = 128
"""block size of the matrix units of GPUs"""


def retention(shape: ModelShape, ffn: Array, heads: Array) -> float:
    """Return the retained fraction of the decoder's linear weights, in [0, 1].

    `ffn` (layers, neurons) and `heads` (layers, key/value groups) are bool, True = kept.
    """
    weights = np.count_nonzero(ffn) * shape.neuron_weights + np.count_nonzero(heads) * shape.group_weights
    return weights / shape.decoder_weights


def lowest_retention(shape: ModelShape, neurons: int = 1, groups: int = 1) -> float:
    """Return the retention if every layer keeps this many neurons and key/value groups."""
    return shape.layers * (neurons * shape.neuron_weights + groups * shape.group_weights) / shape.decoder_weights


def nearest_whole(value: float) -> int:
    """Return the nearest integer; halves are rounded up, also below zero."""
    return math.floor(value + 0.5)


def uniform_counts(
    shape: ModelShape, target: float, possible: Callable[[int], bool] = lambda _: True
) -> tuple[int, float]:
    """Return the number of key/value groups and the unrounded number of neurons that every layer keeps at `target`.

    For each number of groups, the neurons fill the rest of a layer's budget. Of the numbers of groups that leave
    between one and all neurons of the layer, the one nearest to the share `target` of all groups is returned. If there
    is none, the one whose neurons miss this range by least is returned. `possible` restricts the numbers of groups;
    keeping all groups is always allowed.
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
    """Return the neurons and key/value groups per layer for equal widths and a retention of `target` in (0, 1).

    The number of groups follows `uniform_counts`, restricted to numbers of query heads that divide the hidden width,
    as LLaMA's configuration requires. The number of neurons is the largest multiple of `alignment` within the budget
    of a layer, and at least one block.
    """

    def divides(groups: int) -> bool:
        return shape.hidden % (groups * shape.group_size) == 0

    groups, neurons = uniform_counts(shape, target, divides)
    # the tolerance keeps rounding errors from removing a block
    aligned = math.floor((neurons + 1e-6) / alignment) * alignment
    return max(aligned, least_neurons(shape, alignment)), groups


def proposed_alignment(shape: ModelShape, target: float) -> int:
    """Return the alignment to propose for equal widths and a retention of `target`: 128 or 1.

    It is 128 if that divides the dense width and a layer keeps at least nine tenths of the unaligned neurons.
    """
    if shape.neurons % _BLOCK:
        return 1
    unaligned, aligned = (equal_counts(shape, target, block)[0] for block in (1, _BLOCK))
    return _BLOCK if 0.9 * unaligned <= aligned <= unaligned else 1


def highest(scores: Array, count: int) -> Array:
    """Return (..., units) bool, True for the `count` highest scores of each row; the first ones at a tie."""
    order = np.argsort(-np.asarray(scores), axis=-1, kind="stable")[..., :count]
    mask = np.zeros(np.shape(scores), dtype=bool)
    np.put_along_axis(mask, order, True, axis=-1)
    return mask


def keep_one(mask: Array, scores: Array) -> Array:
    """Return a (layers, units) bool mask in which every empty layer keeps the unit with its highest score."""
    result = np.array(mask, dtype=bool)
    empty_layers = np.flatnonzero(~result.any(axis=1))
    result[empty_layers, np.argmax(np.asarray(scores)[empty_layers], axis=1)] = True
    return result


def fill_exactly(shape: ModelShape, ffn: Array, heads: Array, margin: Array, target: float) -> Array:
    """Add or remove the neurons nearest their thresholds until the kept weights meet the target.

    `ffn` (layers, neurons) bool is the mask to correct; `heads` (layers, key/value groups) bool is fixed. `margin`
    (layers, neurons) is score minus threshold: kept neurons are removed in rising order and removed neurons added in
    falling order. Every layer keeps at least one neuron. The kept weights meet the target to within one neuron, if
    the fixed heads and this minimum allow it.
    """
    # ranks of the margins instead of margins, which can be infinite or equal
    order = np.argsort(margin, axis=None, kind="stable")
    ranks: Array = np.empty(np.shape(margin), dtype=np.int64)
    ranks.ravel()[order] = np.arange(order.size)
    mask = keep_one(ffn, ranks)
    fixed = np.count_nonzero(heads) * shape.group_weights
    count = nearest_whole((target * shape.decoder_weights - fixed) / shape.neuron_weights)
    excess = np.count_nonzero(mask) - min(max(count, shape.layers), mask.size)
    if excess > 0:
        # every layer's best neuron stays, whatever its margin
        removable = mask.copy()
        removable[np.arange(shape.layers), np.where(mask, ranks, -1).argmax(axis=1)] = False
        removed = order[removable.ravel()[order]][:excess]
        mask.ravel()[removed] = False
    if excess < 0:
        added = order[~mask.ravel()[order]][excess:]
        mask.ravel()[added] = True
    return mask


def least_neurons(shape: ModelShape, alignment: int) -> int:
    """Return the minimum number of neurons per layer: one block, or the full width if that is smaller."""
    return min(alignment, shape.neurons)


def meet_target(shape: ModelShape, ffn: Array, heads: Array, margin: Array, target: float, alignment: int) -> Array:
    """Meet the target with FFN widths that are multiples of a block of `alignment` >= 1 neurons.

    The exact solution (see `fill_exactly`, also for the arguments) is rounded down to blocks in every layer. Then the
    blocks with the highest mean margin are added until the kept weights are nearest the target. If the minimum widths
    exceed it, the blocks with the lowest mean margin are removed instead. Within a layer, neurons are kept in order
    of falling margin. Every width is a positive multiple of ``alignment`` or the full width. The kept weights are
    within half a block of the target, if the fixed heads and the minimum of one block allow it.
    """
    exact = fill_exactly(shape, ffn, heads, margin, target)
    if alignment == 1:
        return exact
    finite = _replace_infinite(margin)
    order = np.lexsort((-finite, ~exact), axis=1)
    sums = np.cumsum(np.take_along_axis(finite, order, axis=1), axis=1)
    fixed = np.count_nonzero(heads) * shape.group_weights
    neurons = (target * shape.decoder_weights - fixed) / shape.neuron_weights
    widths = _aligned_widths(exact.sum(axis=1), np.pad(sums, ((0, 0), (1, 0))), neurons, alignment)
    mask = np.zeros_like(exact)
    np.put_along_axis(mask, order, np.arange(shape.neurons) < widths[:, None], axis=1)
    return mask


def _aligned_widths(counts: Array, sums: Array, neurons: float, alignment: int) -> Array:
    """Return (layers,) aligned widths with a sum nearest to `neurons`.

    `counts` (layers,) are the neurons of the exact solution, `sums` (layers, neurons + 1) the cumulative margins of
    each layer's neurons in the order of keeping.
    """
    full, layers = sums.shape[1] - 1, np.arange(len(counts))
    minimum = min(alignment, full)
    widths = np.where(counts == full, full, np.maximum(counts // alignment * alignment, minimum))
    while True:
        missing = neurons - widths.sum()
        # the next larger or smaller aligned width of every layer
        if missing > 0:
            next_widths = np.minimum((widths // alignment + 1) * alignment, full)
        else:
            next_widths = np.maximum((widths - 1) // alignment * alignment, minimum)
        size = np.abs(next_widths - widths)
        # steps that bring the sum nearer to the target; at a tie, the larger width is taken
        nearer = (size > 0) & (size <= 2 * missing if missing > 0 else size < -2 * missing)
        if not nearer.any():
            return widths
        # mean margin of the neurons between the two widths
        mean = (sums[layers, next_widths] - sums[layers, widths]) / np.where(nearer, next_widths - widths, 1)
        chosen = np.where(nearer, mean if missing > 0 else -mean, -np.inf).argmax()
        widths[chosen] = next_widths[chosen]


def _replace_infinite(margin: Array) -> Array:
    """Return the margins with infinities replaced by the largest and smallest finite margin."""
    values = np.asarray(margin, dtype=np.float64)
    finite = values[np.isfinite(values)]
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 0.0)
    return np.clip(values, low, high)
