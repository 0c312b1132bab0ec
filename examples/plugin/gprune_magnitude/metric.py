"""Weight magnitude of a unit, the oldest importance metric. It reads no text."""

import numpy as np

from gprune.plugins import Facts, LayerWeights, Measured, Metric


def weigh(weights: LayerWeights) -> Facts:
    """Return the squared norms of each neuron's gate and up rows, and of the rows that feed each channel of o_proj."""
    shape = weights.shape
    neurons = np.square(weights.gate, dtype=np.float64).sum(axis=1)
    neurons += np.square(weights.up, dtype=np.float64).sum(axis=1)
    queries = np.square(weights.query, dtype=np.float64).sum(axis=1)
    # the query heads of a group share one key and one value head
    squares = [np.square(matrix, dtype=np.float64).sum(axis=1) for matrix in (weights.key, weights.value)]
    group_squares = (squares[0] + squares[1]).reshape(shape.kv_heads, shape.head_width)
    channels = queries + np.repeat(group_squares, shape.group_size, axis=0).ravel() / shape.group_size
    return Facts(neurons={"rows": neurons}, channels={"rows": channels})


def neurons(measured: Measured) -> np.ndarray:
    """Return the (neurons,) norms of all weights of a neuron: gate row, up row and down column."""
    return np.sqrt(measured.facts["rows"] + measured.column_square)


def groups(measured: Measured) -> np.ndarray:
    """Return the (key/value groups,) norms of all weights of a group: query, key, value and o_proj."""
    return np.sqrt(measured.grouped(measured.facts["rows"] + measured.column_square).sum(axis=1))


magnitude = Metric(label="magnitude", neurons=neurons, groups=groups, weigh=weigh)
