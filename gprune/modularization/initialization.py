"""Which modules the refinement starts from (BCM, section 3.1; appendix, module initialization).

Step one clusters neuron parameters by k-means with cosine distance; the number of modules is the candidate
with the best silhouette. Step two splits the modules of all layers whose rank drift varies most.

Everything is linear in the number of neurons: no neuron-by-neuron matrix is ever formed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import normalize, one_hot

from gprune.records import Array

ITERATIONS = 50
"""k-means steps at most; the search stops as soon as no neuron changes its module"""
NEURONS_PER_MODULE = 8
"""a candidate module count is at most the layer width divided by this"""


@dataclass(frozen=True, slots=True)
class Clustering:
    """The best k-means partition of one layer."""

    labels: Array
    """(neurons,) int64 module of each neuron, 0 ... count - 1 without gaps"""
    count: int
    """number of modules"""
    silhouette: Array
    """(candidates,) best cosine silhouette of each candidate count; NaN where the candidate was skipped"""


def module_counts(candidates: tuple[int, ...], neurons: int) -> list[int | None]:
    """Candidate module counts that fit a layer.

    A candidate is clamped to an eighth of the width, but not below 2; what then repeats an earlier one is
    dropped. Fewer than 4 neurons cannot make two modules of two: they stay one module.

    Args:
        candidates: module counts asked for, each at least 2.
        neurons: width of the layer.

    Returns:
        One entry for each candidate: the count to try, or None where it is dropped.
    """
    limit = max(2, neurons // NEURONS_PER_MODULE)
    clamped = [min(candidate, limit) if neurons >= 4 else 1 for candidate in candidates]
    return [None if count in clamped[:index] else count for index, count in enumerate(clamped)]


def cluster(
    rows: torch.Tensor, candidates: tuple[int, ...], restarts: int, rng: np.random.Generator
) -> Clustering:
    """Clusters the neurons of one layer by cosine distance and chooses the number of modules.

    Args:
        rows: (neurons, width) unit rows, on any device.
        candidates: module counts to try.
        restarts: k-means runs for each count; the best silhouette wins, the smaller count at a tie.
        rng: source of the starting centroids.

    Returns:
        The partition with the best silhouette over all counts and runs.
    """
    counts = module_counts(candidates, len(rows))
    tried = [count for count in counts if count is not None]
    scores = np.full(len(counts), np.nan)
    labels = torch.zeros(len(rows), dtype=torch.long, device=rows.device)
    if max(tried) < 2:
        return Clustering(labels.cpu().numpy(), 1, scores)
    squares = rows.square().sum(1)
    best, best_count = -np.inf, max(tried)
    for _ in range(restarts):
        # the first K of many k-means++ centroids are k-means++ centroids for K: one draw serves every count
        starts = rows[_seed(rows, max(tried), rng)]
        for index, count in enumerate(counts):
            if count is None:
                continue
            found, projection = _lloyd(rows, starts[:count])
            score = float(silhouette(projection, squares, found).mean())
            scores[index] = np.fmax(scores[index], score)
            if (score, -count) > (best, -best_count):
                best, best_count, labels = score, count, found
    return Clustering(labels.cpu().numpy(), best_count, scores)


def _seed(rows: torch.Tensor, count: int, rng: np.random.Generator) -> list[int]:
    """k-means++: each next centroid is a neuron drawn in proportion to its cosine distance to the nearest."""
    chosen = [int(rng.integers(len(rows)))]
    distance = 1 - rows @ rows[chosen[0]]
    while len(chosen) < count:
        weight = distance.clamp_min(0).double().cpu().numpy()
        weight[chosen] = 0.0
        if weight.sum() <= 0:
            weight = np.ones(len(rows))
            weight[chosen] = 0.0
        cumulative = np.cumsum(weight)
        drawn = np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right")
        chosen.append(int(min(drawn, np.flatnonzero(weight)[-1])))
        distance = torch.minimum(distance, 1 - rows @ rows[chosen[-1]])
    return chosen


def _lloyd(rows: torch.Tensor, starts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Spherical k-means: (neurons,) labels and the (neurons, K) products w_i . S_k with the module sums."""
    labels = _fill_empty(rows @ starts.T)
    for _ in range(ITERATIONS):
        sums = module_sums(rows, labels, len(starts))
        projection = rows @ sums.T
        # the product that assigns neurons is also the one the silhouette needs, up to the sums' lengths
        length = sums.norm(dim=1).clamp_min(torch.finfo(rows.dtype).tiny)
        renewed = _fill_empty(projection / length)
        if torch.equal(renewed, labels):
            return labels, projection
        labels = renewed
    return labels, rows @ module_sums(rows, labels, len(starts)).T


def _fill_empty(similarity: torch.Tensor) -> torch.Tensor:
    """Labels of the most similar centroid; an empty module takes the neuron that fits its own worst."""
    closest, labels = similarity.max(dim=1)
    sizes = torch.bincount(labels, minlength=similarity.shape[1])
    empty = torch.nonzero(sizes == 0).flatten().tolist()
    if not empty:
        return labels
    for neuron in torch.argsort(closest, stable=True).tolist():
        if sizes[labels[neuron]] < 2:
            continue
        sizes[labels[neuron]] -= 1
        labels[neuron] = empty.pop()
        if not empty:
            return labels
    return labels


def module_sums(rows: torch.Tensor, labels: torch.Tensor, count: int) -> torch.Tensor:
    """(modules, width) sum of the rows of each module, as one product: deterministic on a GPU too."""
    return one_hot(labels, count).to(rows.dtype).T @ rows


def module_directions(rows: torch.Tensor, labels: torch.Tensor, count: int) -> torch.Tensor:
    """(modules, width) unit mean direction of each module."""
    return normalize(module_sums(rows, labels, count), dim=1)


def silhouette(projection: torch.Tensor, squares: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Exact cosine silhouette of every neuron, without pairwise distances.

    With S_k the sum of module k's unit vectors, the mean cosine distance of neuron i to another module is
    1 - w_i . S_k / |C_k|, and to the rest of its own (w_i . S - |w_i|^2) / (|C| - 1) below 1.

    Args:
        projection: (neurons, modules) products w_i . S_k, two modules or more.
        squares: (neurons,) squared length of each row: 1, or 0 for a neuron without weights.
        labels: (neurons,) module of each neuron; no module is empty.

    Returns:
        (neurons,) float64 in [-1, 1]; 0 for a neuron that is alone in its module.
    """
    own = labels[:, None]
    sizes = torch.bincount(labels, minlength=projection.shape[1]).double()
    product = projection.double()
    size = sizes[labels]
    within = 1 - (product.gather(1, own)[:, 0] - squares.double()) / (size - 1).clamp_min(1)
    nearest = (1 - product / sizes).scatter(1, own, torch.inf).amin(dim=1)
    larger = torch.maximum(within, nearest)
    defined = (size > 1) & (larger > 0)
    return torch.where(defined, (nearest - within) / larger.where(defined, torch.ones_like(larger)), 0.0)


def split(labels: Array, drift: Array, fraction: float) -> Array:
    """Splits the modules with the largest Std(d) (Eq. 13) over all layers, each in two by exact 2-means on d.

    The lower half keeps its number and the upper half takes the layer's next free one. A module whose
    neurons all have the same drift is never split.

    Args:
        labels: (layers, neurons) modules of each layer, numbered from 0 without gaps.
        drift: (layers, neurons) rank drift d in [0, 1].
        fraction: share of all modules to split, in [0, 1], rounded to whole modules.

    Returns:
        (layers, neurons) int32 labels, again without gaps.
    """
    divided = np.array(labels, dtype=np.int32)
    modules = [
        (float(np.std(drift[layer][members])), layer, members)
        for layer in range(len(labels))
        for members in (np.flatnonzero(labels[layer] == k) for k in range(int(labels[layer].max()) + 1))
    ]
    # sorted() is stable: at a tie the module of the earlier layer and the smaller number goes first
    ordered = sorted(modules, key=lambda module: -module[0])
    for _, layer, members in ordered[: int(np.floor(fraction * len(modules) + 0.5))]:
        upper = two_means(drift[layer][members])
        if upper.any():
            divided[layer, members[upper]] = divided[layer].max() + 1
    return divided


def two_means(values: Array) -> Array:
    """The best division of numbers into two groups by squared deviation, found exactly.

    Optimal groups on a line are a lower and an upper part, so every cut of the sorted values is tried with
    prefix sums.

    Args:
        values: (units,) numbers.

    Returns:
        (units,) bool, True for the upper group; all False where there are fewer than two distinct values.
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    cuts = np.flatnonzero(ordered[1:] > ordered[:-1]) + 1
    if not len(cuts):
        return np.zeros(len(ordered), dtype=bool)
    # centred values sum to zero, so the explained squares left^2/j + right^2/(n-j) need only the left sum
    left = np.cumsum(ordered - ordered.mean())[cuts - 1]
    explained = left**2 / cuts + left**2 / (len(ordered) - cuts)
    upper: Array = np.asarray(values) >= ordered[cuts[np.argmax(explained)]]
    return upper
