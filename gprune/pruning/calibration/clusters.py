"""Cluster points by k-means with constrained cluster sizes: all equal, or within bounds.

Lloyd steps alternate between computing means and assigning points at nearly the lowest cost under these constraints.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np

from gprune.records import Array

# maximum number of Lloyd steps, and rounds of price updates within each step
_MOST_STEPS, _PRICE_ROUNDS = 25, 5
# the search ends when a Lloyd step reduces the summed squared distance by a smaller share than this
_LEAST_GAIN = 1e-4


def balanced_clusters(points: Array, count: int, generator: np.random.Generator) -> tuple[Array, Array]:
    """Cluster points into clusters of equal size by k-means++ and Lloyd steps.

    Takes (points, dimensions) float64 and a count from 2 to the number of points. Returns (points,) labels and the
    (count, dimensions) means of the clusters. Cluster sizes differ by at most one.
    """
    labels, centroids, _ = _lloyd(points, count, generator, balanced_labels)
    return labels, centroids


def bounded_clusters(
    points: Array, count: int, generator: np.random.Generator, slack: float, starts: int
) -> tuple[Array, Array]:
    """Cluster points into clusters of similar size and return the best of several k-means++ starts.

    A cluster size may deviate from an even share of the points by the fraction `slack` of it.
    """
    even = len(points) / count
    low, high = max(1, math.floor((1 - slack) * even)), math.ceil((1 + slack) * even)

    def assign(cost: Array) -> Array:
        return bounded_labels(cost, low, high)

    attempts = [_lloyd(points, count, generator, assign) for _ in range(starts)]
    labels, centroids, _ = min(attempts, key=lambda attempt: attempt[2])
    return labels, centroids


def _lloyd(
    points: Array, count: int, generator: np.random.Generator, assign: Callable[[Array], Array]
) -> tuple[Array, Array, float]:
    """Return labels, means and summed squared distance after one k-means++ start."""
    centroids, best = _seeds(points, count, generator), np.inf
    labels, squares = np.zeros(len(points), dtype=np.int64), (points**2).sum()
    buffer = np.empty_like(points)
    for _ in range(_MOST_STEPS):
        # squared distances without |x|^2, which is the same for all clusters
        cost = (centroids**2).sum(axis=1) - points @ (2 * centroids).T
        proposed = assign(cost)
        means = _means(points, proposed, count, buffer)
        distance = squares - np.bincount(proposed, minlength=count) @ (means**2).sum(axis=1)
        # balancing is greedy, so a step may also increase the distance
        if distance >= (1 - _LEAST_GAIN) * best:
            break
        labels, centroids, best = proposed, means, distance
    return labels, centroids, float(best)


def _means(points: Array, labels: Array, count: int, buffer: Array) -> Array:
    """Return the (count, dimensions) means of the clusters; `buffer` (like `points`) is overwritten."""
    # numpy sorts 16-bit integers fastest
    order = np.argsort(labels.astype(np.uint16), kind="stable")
    ordered = points.take(order, axis=0, out=buffer, mode="clip")
    ends = np.cumsum(np.bincount(labels, minlength=count))
    return np.stack([part.mean(axis=0) for part in np.split(ordered, ends[:-1])])


def _seeds(points: Array, count: int, generator: np.random.Generator) -> Array:
    """Return k-means++ seeds, drawn with probability proportional to the squared distance from earlier seeds."""
    seeds = [int(generator.integers(len(points)))]
    nearest = np.full(len(points), np.inf)
    for _ in range(count - 1):
        nearest = np.minimum(nearest, ((points - points[seeds[-1]]) ** 2).sum(axis=1))
        total = nearest.sum()
        seeds.append(int(generator.choice(len(points), p=nearest / total if total > 0 else None)))
    return points[seeds]


def balanced_labels(cost: Array) -> Array:
    """Return (points,) labels of clusters of equal size, at nearly the lowest total cost.

    The method is an auction. First, prices balance the demand for the clusters. Since the sizes are fixed, prices
    change the total cost by a constant only. Then every point requests its cheapest open cluster. A cluster with at
    least as many requests as capacity accepts the points that would lose most in another cluster, and closes. The
    other points request again. At least one cluster closes in each round, so the loop ends.

    `cost` is (points, clusters), with two or more clusters and at least as many points. Cluster sizes
    differ by at most one; the clusters with the highest demand are the larger ones.
    """
    points, count = cost.shape
    capacity = np.full(count, points // count)
    demand = np.bincount(cost.argmin(axis=1), minlength=count)
    capacity[np.argsort(-demand, kind="stable")[: points % count]] += 1

    def price(cluster: int, gain: Array) -> float:
        return _midpoint(gain, points - int(capacity[cluster]))

    return _assign_by_capacity(cost + _prices(cost, price), capacity)


def bounded_labels(cost: Array, low: int, high: int) -> Array:
    """Return (points,) labels of clusters with `low` to `high` points each, at nearly the lowest total cost.

    Like `balanced_labels`, but only clusters that would be too large or too small get a price. If no cluster
    violates the bounds, every point gets its nearest cluster. The bounds must allow for all points.
    """

    def price(_: int, gain: Array) -> float:
        # the price is 0 if the number of points that prefer the cluster is within the bounds
        requests = int(np.count_nonzero(gain > 0))
        split_index = len(gain) - min(max(requests, low), high)
        return 0.0 if split_index == len(gain) - requests else _midpoint(gain, split_index)

    priced = cost + _prices(cost, price)
    demand = np.bincount(priced.argmin(axis=1), minlength=cost.shape[1])
    capacity = np.clip(demand, low, high)
    shortfall = len(cost) - int(capacity.sum())
    while shortfall:
        # the remainder goes to or comes from the clusters that the bounds changed least
        movable = capacity < high if shortfall > 0 else capacity > low
        cluster = np.where(movable, np.abs(capacity - demand), np.iinfo(np.int64).max).argmin()
        capacity[cluster] += np.sign(shortfall)
        shortfall -= int(np.sign(shortfall))
    return _assign_by_capacity(priced, capacity)


def _assign_by_capacity(cost: Array, capacity: Array) -> Array:
    """Return (points,) labels, at most `capacity` (clusters,) points in each cluster; see `balanced_labels`."""
    (points, count), cost = cost.shape, cost.copy()
    labels, pending = np.full(points, -1), np.arange(points)
    while len(pending):
        choices = cost[pending]
        preferred, cheapest = choices.argmin(axis=1), np.partition(choices, 1, axis=1)
        regret = cheapest[:, 1] - cheapest[:, 0]
        demand = np.bincount(preferred, minlength=count)
        for cluster in np.flatnonzero((demand >= capacity) & (demand > 0)):
            requests = np.flatnonzero(preferred == cluster)
            winners = requests[np.argsort(-regret[requests], kind="stable")[: capacity[cluster]]]
            labels[pending[winners]] = cluster
            cost[:, cluster] = np.inf
        pending = np.flatnonzero(labels < 0)
    return labels


def _prices(cost: Array, price: Callable[[int, Array], float]) -> Array:
    """Return the (clusters,) prices that balance the demand for the clusters.

    `price` returns the price of a cluster from its index and the (points,) gains. The gain of a point is its lowest
    cost in the other clusters minus its cost in this cluster. `price` may overwrite the gains.
    """
    # transposed, so that each cluster is a contiguous row, which is several times faster
    unpriced = np.ascontiguousarray(cost.T)
    priced = unpriced.copy()
    for _ in range(_PRICE_ROUNDS):
        for cluster, other_cost in _lowest_other_costs(priced):
            gain = np.subtract(other_cost, unpriced[cluster], out=other_cost)
            np.add(unpriced[cluster], price(cluster, gain), out=priced[cluster])
    return priced[:, 0] - unpriced[:, 0]


def _lowest_other_costs(priced: Array) -> Iterator[tuple[int, Array]]:
    """Yield each cluster and the (points,) lowest cost of all other clusters, which the caller may overwrite.

    The caller may also change the row of the yielded cluster before it requests the next.
    """
    lowest_after = priced[1:].copy()
    for cluster in range(len(lowest_after) - 2, -1, -1):
        # `accumulate` along the rows is many times slower
        np.minimum(lowest_after[cluster], lowest_after[cluster + 1], out=lowest_after[cluster])
    lowest_before, least = np.full(priced.shape[1], np.inf), np.empty(priced.shape[1])
    for cluster in range(len(priced)):
        if cluster < len(lowest_after):
            yield cluster, np.minimum(lowest_before, lowest_after[cluster], out=least)
        else:
            yield cluster, lowest_before
            return
        np.minimum(lowest_before, priced[cluster], out=lowest_before)


def _midpoint(gain: Array, count: int) -> float:
    """Return the midpoint of the largest of the `count` smallest gains and the next larger gain; reorders `gain`."""
    # numpy partitions at two positions three times faster than at one
    gain.partition((count - 1, count))
    return float(gain[count - 1] + gain[count]) / 2
