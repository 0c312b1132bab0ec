"""Pruning method: one ranking of the neurons of all layers by magnitude, and equally many groups in every layer."""

import numpy as np

from gprune.plugins import Kept, Method, Problem


def decide(problem: Problem) -> Kept:
    """Return masks with equally many key/value groups in every layer and the largest neurons of the whole model."""
    shape, scores = problem.shape, problem.scores[0]
    kept_groups = max(1, round(problem.retention * shape.kv_heads))
    groups = np.stack([_select_highest(row, kept_groups) for row in scores.heads])
    budget = problem.retention * shape.decoder_weights - groups.sum() * shape.group_weights
    count = min(max(round(budget / shape.neuron_weights), shape.layers), shape.layers * shape.neurons)
    # the best neuron of every layer is kept, so that no layer is empty
    ranking_scores = scores.ffn.copy()
    ranking_scores[np.arange(shape.layers), ranking_scores.argmax(axis=1)] = np.inf
    neurons = _select_highest(ranking_scores.ravel(), count).reshape(ranking_scores.shape)
    return Kept(neurons=neurons, groups=groups)


def _select_highest(values: np.ndarray, count: int) -> np.ndarray:
    kept = np.zeros(len(values), dtype=bool)
    kept[np.argsort(-values, kind="stable")[:count]] = True
    return kept


ranking = Method(label="magnitude, one ranking", decide=decide, metric="magnitude")
