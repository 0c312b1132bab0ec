"""One ranking of the neurons of all layers by their plain magnitude, with as many groups in every layer."""

import numpy as np

from gprune.plugins import Kept, Method, Problem


def decide(problem: Problem) -> Kept:
    """Keeps as many key/value groups in every layer, and the largest neurons of the whole model."""
    shape, scores = problem.shape, problem.scores[0]
    kept_groups = max(1, round(problem.retention * shape.kv_heads))
    groups = np.stack([_highest(row, kept_groups) for row in scores.heads])
    left = problem.retention * shape.decoder_weights - groups.sum() * shape.group_weights
    count = min(max(round(left / shape.neuron_weights), shape.layers), shape.layers * shape.neurons)
    # the best neuron of every layer stays, so that no layer is left without
    order = scores.ffn.copy()
    order[np.arange(shape.layers), order.argmax(axis=1)] = np.inf
    neurons = _highest(order.ravel(), count).reshape(order.shape)
    return Kept(neurons=neurons, groups=groups)


def _highest(values: np.ndarray, count: int) -> np.ndarray:
    kept = np.zeros(len(values), dtype=bool)
    kept[np.argsort(-values, kind="stable")[:count]] = True
    return kept


ranking = Method(label="magnitude, one ranking", decide=decide, metric="magnitude")
