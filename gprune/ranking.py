"""Rank arithmetic: ranks within a layer and within a module, discrepancy, correlation (pure numpy).

Ranks are ascending (0 = least important); equal scores share their average rank.
"""

from __future__ import annotations

import numpy as np

from gprune.records import Array


def ranks(scores: Array) -> Array:
    """Average ranks along the last axis.

    Args:
        scores: (..., units) importance scores.

    Returns:
        (..., units) float64 ranks from 0 (least important) to units - 1; ties share the mean rank.
    """
    flat = np.atleast_2d(np.asarray(scores)).reshape(-1, np.shape(scores)[-1])
    result = np.stack([_rank_row(row) for row in flat]) if flat.size else np.zeros(flat.shape)
    return result.reshape(np.shape(scores))


def _rank_row(row: Array) -> Array:
    order = np.argsort(row, kind="stable")
    ordered = row[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    ends = np.append(starts[1:], len(row))
    shared = np.repeat((starts + ends - 1) / 2.0, ends - starts)
    result = np.empty(len(row))
    result[order] = shared
    return result


def rank_within(scores: Array, labels: Array) -> Array:
    """Average ranks of each unit among the units that carry the same label.

    Args:
        scores: (units,) scores of one layer.
        labels: (units,) module labels.

    Returns:
        (units,) float64 ranks, from 0 to module size - 1.
    """
    order = np.lexsort((scores, labels))
    group, ordered = np.asarray(labels)[order], np.asarray(scores)[order]
    new_group = np.concatenate([[True], group[1:] != group[:-1]])
    new_run = new_group | np.concatenate([[True], ordered[1:] != ordered[:-1]])
    starts = np.flatnonzero(new_run)
    ends = np.append(starts[1:], len(order))
    position = np.repeat((starts + ends - 1) / 2.0, ends - starts)
    group_start = np.flatnonzero(new_group)
    first = np.repeat(group_start, np.diff(np.append(group_start, len(order))))
    result = np.empty(len(order))
    result[order] = position - first
    return result


def module_sizes(labels: Array, count: int | None = None) -> Array:
    """(modules,) int64 number of units that carry each label."""
    sizes: Array = np.bincount(labels, minlength=count or 0)
    return sizes


def normalized_rank_within(scores: Array, labels: Array) -> Array:
    """Within-module normalised rank pi = rank / (size - 1), in [0, 1]; 0 for a module of one unit.

    Args:
        scores: (units,) scores of one layer.
        labels: (units,) module labels 0 ... K - 1.

    Returns:
        (units,) float64 in [0, 1] (section 3.2, the pi of the module statistics).
    """
    size = module_sizes(labels)[labels]
    return rank_within(scores, labels) / np.maximum(size - 1, 1)


def rank_quantile_within(scores: Array, labels: Array) -> Array:
    """Within-module rank quantile (rank + 1/2) / size, in (0, 1): the score scale that MSL thresholds.

    The half makes the fraction of units at or above a threshold t an unbiased 1 - t for modules of any size.
    """
    size = module_sizes(labels)[labels]
    quantile: Array = (rank_within(scores, labels) + 0.5) / size
    return quantile


def module_means(values: Array, labels: Array, count: int | None = None) -> Array:
    """(modules,) mean of `values` over the units of each module."""
    sizes = module_sizes(labels, count)
    means: Array = np.bincount(labels, weights=values, minlength=len(sizes)) / np.maximum(sizes, 1)
    return means


def spearman(first: Array, second: Array) -> Array:
    """Spearman correlation along the last axis, ties averaged; NaN where one side is constant.

    Args:
        first: (..., units) scores.
        second: (..., units) scores.

    Returns:
        (...) correlation in [-1, 1].
    """
    a, b = ranks(first), ranks(second)
    a, b = a - a.mean(-1, keepdims=True), b - b.mean(-1, keepdims=True)
    norm = np.sqrt((a * a).sum(-1) * (b * b).sum(-1))
    with np.errstate(invalid="ignore"):
        result: Array = np.where(norm > 0, (a * b).sum(-1) / norm, np.nan)
    return result


def standardize(scores: Array) -> Array:
    """Standard scores within each layer: mean 0, sample standard deviation 1 (ddof 1).

    Args:
        scores: (layers, units) scores.

    Returns:
        (layers, units); zeros in a layer whose scores are all equal.
    """
    scores = np.asarray(scores, dtype=np.float64)
    centred = scores - scores.mean(axis=1, keepdims=True)
    deviation = np.sqrt((centred**2).sum(axis=1, keepdims=True) / max(scores.shape[1] - 1, 1))
    # a constant layer leaves rounding errors behind, which must not be blown up to a ranking
    constant = (scores == scores[:, :1]).all(axis=1, keepdims=True) | (deviation == 0)
    standard: Array = np.where(constant, 0.0, centred / np.where(constant, 1.0, deviation))
    return standard
