"""How large are the weights of a unit? The oldest importance metric, which reads no text."""

import numpy as np

from gprune.plugins import Facts, LayerWeights, Measured, Metric


def weigh(weights: LayerWeights) -> Facts:
    """Squared size of each neuron's row of gate and up, and of what each channel of o_proj comes from."""
    shape = weights.shape
    neurons = np.square(weights.gate, dtype=np.float64).sum(axis=1)
    neurons += np.square(weights.up, dtype=np.float64).sum(axis=1)
    queries = np.square(weights.query, dtype=np.float64).sum(axis=1)
    # the query heads of a group share one key and one value head
    shared = [np.square(matrix, dtype=np.float64).sum(axis=1) for matrix in (weights.key, weights.value)]
    keys = (shared[0] + shared[1]).reshape(shape.kv_heads, shape.head_width)
    channels = queries + np.repeat(keys, shape.group_size, axis=0).ravel() / shape.group_size
    return Facts(neurons={"rows": neurons}, channels={"rows": channels})


def neurons(measured: Measured) -> np.ndarray:
    """(neurons,) length of the vector of all weights of a neuron: gate row, up row and down column."""
    return np.sqrt(measured.facts["rows"] + measured.column_square)


def groups(measured: Measured) -> np.ndarray:
    """(key/value groups,) the same of all weights of a group: query, key, value and o_proj."""
    return np.sqrt(measured.grouped(measured.facts["rows"] + measured.column_square).sum(axis=1))


magnitude = Metric(label="magnitude", neurons=neurons, groups=groups, weigh=weigh)
