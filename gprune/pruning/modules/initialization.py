"""Compute the initial modules of the refinement (BCM, section 3.1; appendix, module initialization).

Step one clusters neuron parameters by k-means with cosine distance; the number of modules is the candidate with the
best silhouette. Step two splits the modules whose rank drift varies most, over all layers.

Time and memory are linear in the number of neurons: no neuron-by-neuron matrix is formed.
"""

from dataclasses import dataclass

import numpy as np
import torch

from gprune.pruning.modules.k_means import ITERATIONS, SCREENING, advance, screen_searches, silhouette, start_searches
from gprune.records import Array

NEURONS_PER_MODULE = 8
"""a candidate module count is at most the layer width divided by this"""


@dataclass(frozen=True, slots=True)
class Clustering:
    """The best k-means partition of one layer."""

    labels: Array
    """(neurons,) int64 module of each neuron, 0 ... count - 1 without gaps"""
    count: int
    silhouette: Array
    """(candidates,) best cosine silhouette of each candidate count, or NaN if the candidate was skipped"""


def module_counts(candidates: tuple[int, ...], neurons: int) -> list[int | None]:
    """Return the candidate module counts that fit a layer, None for the others.

    A candidate is clamped to an eighth of the width, but not below 2. Repeated counts are dropped. A layer with
    fewer than 4 neurons is one module.

    Args:
        candidates: requested module counts, each at least 2.
        neurons: width of the layer.

    Returns:
        For each candidate the count to try, or None if it is dropped.
    """
    limit = max(2, neurons // NEURONS_PER_MODULE)
    clamped = [min(candidate, limit) if neurons >= 4 else 1 for candidate in candidates]
    return [None if count in clamped[:index] else count for index, count in enumerate(clamped)]


def cluster(
    rows: torch.Tensor,
    candidates: tuple[int, ...],
    restarts: int,
    rng: np.random.Generator,
    greedy: bool = False,
) -> Clustering:
    """Cluster the neurons of one layer by cosine distance and choose the number of modules.

    Args:
        rows: (neurons, width) unit rows, on any device.
        candidates: module counts to try.
        restarts: k-means starts for each count. After a few steps only the starts whose silhouette is near the best
            continue.
        rng: generator of the initial centroids.
        greedy: use greedy k-means++, which takes the best of several draws for each centroid.

    Returns:
        The partition with the best silhouette over all counts; the smaller count at a tie.
    """
    candidate_counts = module_counts(candidates, len(rows))
    valid_counts = [count for count in candidate_counts if count is not None]
    scores = np.full(len(candidate_counts), np.nan)
    if max(valid_counts) < 2:
        return Clustering(np.zeros(len(rows), dtype=np.int64), 1, scores)
    # number of draws per centroid, as in scikit-learn
    trials = 2 + int(np.log(max(valid_counts))) if greedy else 1
    starts_by_count = start_searches(rows, valid_counts, restarts, rng, trials)
    advance(rows, [search for starts in starts_by_count for search in starts], SCREENING)
    searches = [search for starts in starts_by_count for search in screen_searches(rows, starts)]
    advance(rows, searches, ITERATIONS - SCREENING)
    squares = rows.square().sum(1)
    means = [float(silhouette(search.finish(rows), squares, search.labels).mean()) for search in searches]
    for mean, search in zip(means, searches, strict=True):
        index = candidate_counts.index(search.count)
        scores[index] = np.fmax(scores[index], mean)
    winner = max(zip(means, searches, strict=True), key=lambda scored: (scored[0], -scored[1].count))[1]
    return Clustering(winner.labels.cpu().numpy(), winner.count, scores)


def split(labels: Array, drift: Array, fraction: float) -> Array:
    """Split the modules of all layers with the largest Std(d) (Eq. 13), each into two by exact 2-means on d.

    The lower part keeps its label and the upper part gets the layer's next free label. A module whose neurons all
    have the same drift is not split.

    Args:
        labels: (layers, neurons) modules of each layer, numbered from 0 without gaps.
        drift: (layers, neurons) rank drift d in [0, 1].
        fraction: share of all modules to split, in [0, 1], rounded to whole modules.

    Returns:
        (layers, neurons) int32 labels, again without gaps.
    """
    split_labels = np.array(labels, dtype=np.int32)
    modules = [
        (float(np.std(drift[layer][members])), layer, members)
        for layer in range(len(labels))
        for members in (np.flatnonzero(labels[layer] == k) for k in range(int(labels[layer].max()) + 1))
    ]
    # the sort is stable: at a tie, the module of the earlier layer or with the smaller label is split first
    ordered = sorted(modules, key=lambda module: -module[0])
    for _, layer, members in ordered[: int(np.floor(fraction * len(modules) + 0.5))]:
        upper = two_means(drift[layer][members])
        if upper.any():
            split_labels[layer, members[upper]] = split_labels[layer].max() + 1
    return split_labels


def two_means(values: Array) -> Array:
    """Split numbers into two groups with the least sum of squared deviations, exactly.

    The optimal groups are a lower and an upper part of the sorted values, so every cut is tried with prefix sums.

    Args:
        values: (units,) numbers.

    Returns:
        (units,) bool, True for the upper group; all False if there are fewer than two distinct values.
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    cuts = np.flatnonzero(ordered[1:] > ordered[:-1]) + 1
    if not len(cuts):
        return np.zeros(len(ordered), dtype=bool)
    # the best cut maximizes left^2/j + right^2/(n-j), from the sums of centred values left and right of cut j;
    # right = -left, because all centred values sum to zero
    left = np.cumsum(ordered - ordered.mean())[cuts - 1]
    explained = left**2 / cuts + left**2 / (len(ordered) - cuts)
    upper: Array = np.asarray(values) >= ordered[cuts[np.argmax(explained)]]
    return upper
