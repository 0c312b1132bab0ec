"""Rank arithmetic: ranks within a layer and within a module, discrepancy, correlation (pure numpy).

Ranks are ascending (0 = least important); equal scores share their average rank. scipy.stats ranks no faster,
not within groups, and takes a second to import.
"""

from __future__ import annotations

import numpy as np

from gprune.records import Array


class GroupedRanks:
    """Average ranks within groups of units, for one grouping and many scores.

    Units are kept in order of group, where each group is one short run to sort: the seventy halves of eight
    shards are ranked in seconds at 32 x 11008 neurons.
    """

    def __init__(self, labels: Array) -> None:
        """Puts the units in order of group.

        Args:
            labels: (units,) group of each unit, from 0 on.
        """
        self.by_group = np.argsort(labels, kind="stable")
        sizes = module_sizes(labels)
        self.size = sizes[sizes > 0]
        self.start = np.cumsum(self.size) - self.size
        self._first = np.repeat(self.start, self.size)
        self._untied: Array = np.arange(len(labels), dtype=np.float64) - self._first

    def by_unit(self, scores: Array) -> Array:
        """(units,) ranks within the group, from 0 to its size - 1, of (units,) scores."""
        result = np.empty(len(self._first))
        result[self.by_group] = self.in_group_order(scores)
        return result

    def in_group_order(self, scores: Array) -> Array:
        """The same ranks, but in order of group: group g is the run of ``size[g]`` from ``start[g]`` on."""
        values = np.asarray(scores)[self.by_group]
        order = self._first.copy()
        for start, size in zip(self.start.tolist(), self.size.tolist(), strict=True):
            order[start : start + size] += values[start : start + size].argsort()
        result = np.empty(len(values))
        result[order] = self.shared(values[order])
        return result

    def shared(self, ordered: Array) -> Array:
        """Ranks in sorted order; equal scores of one group share their mean."""
        equal = ordered[1:] == ordered[:-1]
        equal[self.start[1:] - 1] = False
        if not equal.any():
            return self._untied
        starts = np.flatnonzero(np.concatenate([[True], ~equal]))
        ends = np.append(starts[1:], len(ordered))
        positions: Array = np.repeat((starts + ends - 1) / 2.0, ends - starts)
        return positions - self._first


def ranks(scores: Array) -> Array:
    """Average ranks along the last axis.

    Args:
        scores: (..., units) importance scores.

    Returns:
        (..., units) float64 ranks from 0 (least important) to units - 1; ties share the mean rank.
    """
    scores = np.asarray(scores)
    result = np.empty(scores.shape)
    if scores.size:
        units = scores.shape[-1]
        # a row is one run as it stands, and need not be brought into order of group
        whole = GroupedRanks(np.zeros(units, dtype=np.intp))
        for row, found in zip(scores.reshape(-1, units), result.reshape(-1, units), strict=True):
            order = row.argsort()
            found[order] = whole.shared(row[order])
    return result


def rank_within(scores: Array, labels: Array) -> Array:
    """Average ranks of each unit among the units that carry the same label.

    Args:
        scores: (units,) scores of one layer.
        labels: (units,) module labels.

    Returns:
        (units,) float64 ranks, from 0 to module size - 1.
    """
    return GroupedRanks(labels).by_unit(scores)


def module_sizes(labels: Array, count: int | None = None) -> Array:
    """(modules,) int64 number of units that carry each label."""
    sizes: Array = np.bincount(labels, minlength=count or 0)
    return sizes


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
