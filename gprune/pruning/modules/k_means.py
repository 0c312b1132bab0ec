"""Run spherical k-means for several module counts and starts at once (BCM, section 3.1).

All searches share the matrix product with the centroids, which is most of the work. When few neurons change their
module, the sums are updated for these neurons only. After a few steps only the most promising starts of a module
count continue. The silhouette is exact.

Time and memory are linear in the number of neurons: no neuron-by-neuron matrix is formed.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from numpy.random import Generator
from torch.nn.functional import one_hot

from gprune.models import devices

ITERATIONS = 50
"""maximum number of k-means steps; a search stops as soon as no neuron changes its module"""
SCREENING = 8
"""steps after which the starts of one module count are compared"""
_TOLERATED_LOSS = 0.05
"""a start continues if its silhouette is at most this fraction below the largest one"""
_FEW_MOVED = 0.25
"""share of neurons that changed their module, below which the sums are updated instead of recomputed"""


class Search:
    """One k-means search: labels, sums of the rows of each module, and whether it has converged."""

    def __init__(self, rows: torch.Tensor, similarity: torch.Tensor) -> None:
        """Assign each neuron to the most similar of the starting centroids.

        Args:
            rows: (neurons, width) unit rows.
            similarity: (neurons, modules) products with the centroids.
        """
        self.count = similarity.shape[1]
        self.labels = fill_empty(similarity)
        self.sums = module_sums(rows, self.labels, self.count)
        self.has_converged = False

    def step(self, rows: torch.Tensor, projection: torch.Tensor) -> None:
        """Assign every neuron to its closest module and update the sums.

        Args:
            rows: (neurons, width) unit rows.
            projection: (neurons, modules) products with the current sums.
        """
        lengths = self.sums.norm(dim=1).clamp_min(torch.finfo(rows.dtype).tiny)
        new_labels = fill_empty(projection / lengths)
        has_moved = new_labels != self.labels
        moved_count = int(has_moved.sum())
        self.has_converged = moved_count == 0
        if self.has_converged:
            return
        # on a GPU a full product is faster than selecting the neurons that moved
        if rows.device.type == "cpu" and moved_count < _FEW_MOVED * len(rows):
            movers = has_moved.nonzero().flatten()
            change = _membership_matrix(new_labels[movers], self.count, rows.dtype)
            change -= _membership_matrix(self.labels[movers], self.count, rows.dtype)
            self.sums.addmm_(change.T, rows[movers])
        else:
            self.sums = module_sums(rows, new_labels, self.count)
        self.labels = new_labels

    def finish(self, rows: torch.Tensor) -> torch.Tensor:
        """Recompute the sums of the modules, and return the exact (neurons, modules) products w_i . S_k with them."""
        self.sums = module_sums(rows, self.labels, self.count)
        return rows @ self.sums.T


def start_searches(
    rows: torch.Tensor, module_counts: Sequence[int], restarts: int, rng: Generator, trials: int = 1
) -> list[list[Search]]:
    """Return the searches of every module count, one for each start.

    The first K of many k-means++ centroids are k-means++ centroids for K, so the starts of all counts share one draw.

    Args:
        rows: (neurons, width) unit rows, on any device.
        module_counts: module counts, each at least 2 and at most the number of neurons.
        restarts: starts per module count.
        rng: generator of the initial centroids.
        trials: see `kmeans_plus_plus`.
    """
    centroids = kmeans_plus_plus(rows, max(module_counts), restarts, rng, trials)
    similarity = rows @ rows[[index for start in centroids for index in start]].T
    starts = similarity.split(max(module_counts), dim=1)
    return [[Search(rows, start[:, :count]) for start in starts] for count in module_counts]


def advance(rows: torch.Tensor, searches: Sequence[Search], steps: int) -> None:
    """Run `steps` k-means steps of every search that has not converged; a GPU uses TF32 products."""
    with _fast_products(rows.device):
        for _ in range(steps):
            searches = [search for search in searches if not search.has_converged]
            if not searches:
                return
            for search, projection in zip(searches, _projections(rows, searches), strict=True):
                search.step(rows, projection)


def screen_searches(rows: torch.Tensor, searches: Sequence[Search]) -> list[Search]:
    """Return the searches whose current mean silhouette is near the largest one."""
    if len(searches) == 1:
        return list(searches)
    squares = rows.square().sum(1)
    scores = [
        float(silhouette(projection, squares, search.labels).mean())
        for search, projection in zip(searches, _projections(rows, searches), strict=True)
    ]
    # the absolute value, because a silhouette can be negative
    limit = max(scores) - _TOLERATED_LOSS * abs(max(scores))
    return [search for search, score in zip(searches, scores, strict=True) if score >= limit]


def _projections(rows: torch.Tensor, searches: Sequence[Search]) -> tuple[torch.Tensor, ...]:
    """Return the products of the rows with the sums of each search, computed as one product."""
    product = rows @ torch.cat([search.sums for search in searches]).T
    return product.split([search.count for search in searches], dim=1)


@contextmanager
def _fast_products(device: torch.device) -> Iterator[None]:
    """Allow a GPU to round the factors of float32 products to TF32, with sums in float32; change nothing on a CPU."""
    if not devices.is_gpu(device):
        yield
        return
    previous_precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(previous_precision)


def kmeans_plus_plus(rows: torch.Tensor, count: int, starts: int, rng: Generator, trials: int = 1) -> list[list[int]]:
    """Draw k-means++ centroids: neurons with probability proportional to the cosine distance to the nearest centroid.

    With several `trials` (greedy k-means++), the draw that minimizes the summed distance is taken.

    Args:
        rows: (neurons, width) unit rows.
        count: centroids of each start.
        starts: number of independent starts.
        rng: generator of the draws.
        trials: draws for each centroid.

    Returns:
        For each start the indices of `count` different neurons.
    """
    # for each start: the first neuron, and (centroids - 1, trials) uniform numbers for the others
    draws = [(int(rng.integers(len(rows))), rng.random((count - 1, trials))) for _ in range(starts)]
    centroids = [[first] for first, _ in draws]
    distance = _distances(rows, [first for first, _ in draws])
    start_indices = torch.arange(starts, device=rows.device)
    for index in range(count - 1):
        weights = distance.double().cpu().numpy()
        per_start = zip(weights, centroids, draws, strict=True)
        candidates = np.stack([_draw_neurons(weight, ids, shares[index]) for weight, ids, (_, shares) in per_start])
        nearest = _distances(rows, candidates.ravel().tolist()).view(starts, trials, -1)
        nearest = torch.minimum(nearest, distance[:, None])
        best = nearest.sum(2).argmin(1)
        distance = nearest[start_indices, best]
        for start_centroids, start_candidates, winner in zip(centroids, candidates, best.tolist(), strict=True):
            start_centroids.append(int(start_candidates[winner]))
    return centroids


def _distances(rows: torch.Tensor, neurons: list[int]) -> torch.Tensor:
    """Return (len(neurons), all neurons) cosine distances."""
    return (1 - rows[neurons] @ rows.T).clamp_min(0)


def _draw_neurons(weight: np.ndarray, chosen: list[int], shares: np.ndarray) -> np.ndarray:
    """Return one neuron per share in [0, 1), drawn by inverse transform with probability proportional to `weight`.

    The `chosen` neurons are excluded; `weight` is changed in place.
    """
    weight[chosen] = 0.0
    # if all other neurons coincide with a centroid, they are drawn uniformly
    if weight.sum() <= 0:
        weight[:] = 1.0
        weight[chosen] = 0.0
    cumulative = np.cumsum(weight)
    neurons = np.searchsorted(cumulative, shares * cumulative[-1], side="right")
    return np.minimum(neurons, np.flatnonzero(weight)[-1])


def fill_empty(similarity: torch.Tensor) -> torch.Tensor:
    """Return the label of each neuron's most similar centroid; empty modules take the worst-fitting neurons."""
    closest, labels = similarity.max(dim=1)
    # synchronizes with the device once, and three more times if a module is empty; never per neuron
    sizes = _module_sizes(labels, similarity.shape[1]).tolist()
    empty = [module for module, size in enumerate(sizes) if not size]
    if not empty:
        return labels
    worst_first, new_labels = torch.argsort(closest, stable=True).tolist(), labels.tolist()
    for neuron in worst_first:
        if sizes[new_labels[neuron]] < 2:
            continue
        sizes[new_labels[neuron]] -= 1
        new_labels[neuron] = empty.pop()
        if not empty:
            break
    return torch.tensor(new_labels, device=labels.device)


def _module_sizes(labels: torch.Tensor, count: int) -> torch.Tensor:
    """Return (modules,) int64 number of neurons of each module."""
    return labels.new_zeros(count).scatter_add_(0, labels, torch.ones_like(labels))


def _membership_matrix(labels: torch.Tensor, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Return (neurons, modules) with 1 where a neuron belongs to a module, else 0."""
    return one_hot(labels, count).to(dtype)


def module_sums(rows: torch.Tensor, labels: torch.Tensor, count: int) -> torch.Tensor:
    """Return (modules, width) sum of the rows of each module, as one product: deterministic on a GPU too."""
    return _membership_matrix(labels, count, rows.dtype).T @ rows


def silhouette(projection: torch.Tensor, squares: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the exact cosine silhouette of every neuron, without pairwise distances.

    With S_k the sum of module k's unit vectors, the mean cosine distance of neuron i to another module is
    1 - w_i . S_k / |C_k|, and to the rest of its own module 1 - (w_i . S - |w_i|^2) / (|C| - 1).

    Args:
        projection: (neurons, modules) products w_i . S_k, two modules or more.
        squares: (neurons,) squared length of each row: 1, or 0 for a neuron without weights.
        labels: (neurons,) module of each neuron; no module is empty.

    Returns:
        (neurons,) float64 in [-1, 1]; 0 for a neuron that is alone in its module.
    """
    label_column = labels[:, None]
    sizes = _module_sizes(labels, projection.shape[1]).double()
    product = projection.double()
    size = sizes[labels]
    own_distance = 1 - (product.gather(1, label_column)[:, 0] - squares.double()) / (size - 1).clamp_min(1)
    nearest_distance = (1 - product / sizes).scatter(1, label_column, torch.inf).amin(dim=1)
    larger = torch.maximum(own_distance, nearest_distance)
    defined = (size > 1) & (larger > 0)
    return torch.where(defined, (nearest_distance - own_distance) / larger.where(defined, torch.ones_like(larger)), 0.0)
