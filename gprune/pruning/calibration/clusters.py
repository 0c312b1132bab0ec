"""k-means with clusters of fixed sizes: all equal, or within bounds.

Lloyd steps alternate between means and an assignment of least cost under these sizes.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np

from gprune.records import Array

# Lloyd steps, and rounds of prices within each.
_ITERATIONS, _SWEEPS = 25, 5
# A Lloyd step that tightens the clusters by a smaller share than this is the last.
_LEAST_GAIN = 1e-4


def balanced_clusters(points: Array, count: int, generator: np.random.Generator) -> tuple[Array, Array]:
    """Cluster points into clusters of equal size by k-means++ and Lloyd steps.

    Takes (points, dimensions) float64, and a count from 2 up to that of the points. Gives (points,) labels, whose
    sizes differ by one at most, and the (count, dimensions) means of the clusters.
    """
    labels, centroids, _ = _lloyd(points, count, generator, balanced_labels)
    return labels, centroids


def bounded_clusters(
    points: Array, count: int, generator: np.random.Generator, slack: float, starts: int
) -> tuple[Array, Array]:
    """Cluster points into clusters of about equal size: the best of several k-means++ starts.

    `slack` is how far a size may be from an even share of the points, as a share of that.
    """
    even = len(points) / count
    low, high = max(1, math.floor((1 - slack) * even)), math.ceil((1 + slack) * even)

    def assign(cost: Array) -> Array:
        return bounded_labels(cost, low, high)

    tries = [_lloyd(points, count, generator, assign) for _ in range(starts)]
    labels, centroids, _ = min(tries, key=lambda attempt: attempt[2])
    return labels, centroids


def _lloyd(
    points: Array, count: int, generator: np.random.Generator, assign: Callable[[Array], Array]
) -> tuple[Array, Array, float]:
    """Return labels, means and the summed squared distance of one start."""
    centroids, best = _seeds(points, count, generator), np.inf
    labels, total = np.zeros(len(points), dtype=np.int64), (points**2).sum()
    room = np.empty_like(points)
    for _ in range(_ITERATIONS):
        cost = (centroids**2).sum(axis=1) - points @ (2 * centroids).T
        proposed = assign(cost)
        means = _means(points, proposed, count, room)
        spread = total - np.bincount(proposed, minlength=count) @ (means**2).sum(axis=1)
        # balancing is greedy, so a step may also loosen the clusters
        if spread >= (1 - _LEAST_GAIN) * best:
            break
        labels, centroids, best = proposed, means, spread
    return labels, centroids, float(best)


def _means(points: Array, labels: Array, count: int, room: Array) -> Array:
    """Return the (count, dimensions) means of the clusters."""
    order = np.argsort(labels.astype(np.uint16), kind="stable")
    ordered = points.take(order, axis=0, out=room, mode="clip")
    ends = np.cumsum(np.bincount(labels, minlength=count))
    return np.stack([part.mean(axis=0) for part in np.split(ordered, ends[:-1])])


def _seeds(points: Array, count: int, generator: np.random.Generator) -> Array:
    """Draw k-means++ seeds: each by its squared distance from the earlier seeds."""
    seeds = [int(generator.integers(len(points)))]
    nearest = np.full(len(points), np.inf)
    for _ in range(count - 1):
        nearest = np.minimum(nearest, ((points - points[seeds[-1]]) ** 2).sum(axis=1))
        total = nearest.sum()
        seeds.append(int(generator.choice(len(points), p=nearest / total if total > 0 else None)))
    return points[seeds]


def balanced_labels(cost: Array) -> Array:
    """Assign points to clusters of equal size, near the least total cost.

    Prices first even out the demand for the clusters; as the sizes are fixed, they change the total cost by a
    constant. Then every point asks for its cheapest cluster with room. A cluster that is asked by as many as
    it has room for, or more, takes those that would lose most elsewhere, and closes; the others ask again.
    There always is such a cluster, so this ends after as many rounds as there are clusters, at most.

    `cost` is (points, clusters), up to a constant for each point, of at least two clusters and no more than
    points. The sizes of the (points,) labels differ by one at most; the clusters nearest to most are the
    larger.
    """
    points, count = cost.shape
    room = np.full(count, points // count)
    demand = np.bincount(cost.argmin(axis=1), minlength=count)
    room[np.argsort(-demand, kind="stable")[: points % count]] += 1

    def price(cluster: int, gain: Array) -> float:
        return _between(gain, points - int(room[cluster]))

    return _hand_out(cost + _prices(cost, price), room)


def bounded_labels(cost: Array, low: int, high: int) -> Array:
    """Return (points,) labels of clusters of `low` to `high` points each, at nearly the least total cost.

    As `balanced_labels`, but only clusters that would be too large or too small get a price. Where the
    nearest clusters have sizes within the bounds, every point gets its nearest. All points must fit in the
    bounds.
    """

    def price(_: int, gain: Array) -> float:
        # the price is 0 if as many points prefer a cluster as it may have
        asking = int(np.count_nonzero(gain > 0))
        split_index = len(gain) - min(max(asking, low), high)
        return 0.0 if split_index == len(gain) - asking else _between(gain, split_index)

    priced = cost + _prices(cost, price)
    demand = np.bincount(priced.argmin(axis=1), minlength=cost.shape[1])
    room = np.clip(demand, low, high)
    shortfall = len(cost) - int(room.sum())
    while shortfall:
        # the remainder goes to or comes from the clusters that the bounds changed least
        movable = room < high if shortfall > 0 else room > low
        cluster = np.where(movable, np.abs(room - demand), np.iinfo(np.int64).max).argmin()
        room[cluster] += np.sign(shortfall)
        shortfall -= int(np.sign(shortfall))
    return _hand_out(priced, room)


def _hand_out(cost: Array, room: Array) -> Array:
    """Return (points,) labels: each point requests its cheapest cluster that has room."""
    (points, count), cost = cost.shape, cost.copy()
    labels, pending = np.full(points, -1), np.arange(points)
    while len(pending):
        choices = cost[pending]
        wish, cheapest = choices.argmin(axis=1), np.partition(choices, 1, axis=1)
        regret = cheapest[:, 1] - cheapest[:, 0]
        demand = np.bincount(wish, minlength=count)
        for cluster in np.flatnonzero((demand >= room) & (demand > 0)):
            asking = np.flatnonzero(wish == cluster)
            winners = asking[np.argsort(-regret[asking], kind="stable")[: room[cluster]]]
            labels[pending[winners]] = cluster
            cost[:, cluster] = np.inf
        pending = np.flatnonzero(labels < 0)
    return labels


def _prices(cost: Array, price: Callable[[int, Array], float]) -> Array:
    """Return (clusters,) prices at which as many points prefer each cluster as it has room for.

    `price` makes it of a cluster and the (points,) numbers that each gains there, which it may overwrite.
    """
    # rows are contiguous, which makes this several times faster
    plain = np.ascontiguousarray(cost.T)
    priced = plain.copy()
    for _ in range(_SWEEPS):
        for cluster, elsewhere in _least_elsewhere(priced):
            gain = np.subtract(elsewhere, plain[cluster], out=elsewhere)
            np.add(plain[cluster], price(cluster, gain), out=priced[cluster])
    return priced[:, 0] - plain[:, 0]


def _least_elsewhere(priced: Array) -> Iterator[tuple[int, Array]]:
    """Yield each cluster with the (points,) least cost of the other clusters, which may be overwritten.

    The row of a cluster that was given may have changed by the time the next is asked for.
    """
    later = priced[1:].copy()
    for cluster in range(len(later) - 2, -1, -1):
        # `accumulate` along the rows is many times slower
        np.minimum(later[cluster], later[cluster + 1], out=later[cluster])
    least_before, least = np.full(priced.shape[1], np.inf), np.empty(priced.shape[1])
    for cluster in range(len(priced)):
        if cluster < len(later):
            yield cluster, np.minimum(least_before, later[cluster], out=least)
        else:
            yield cluster, least_before
            return
        np.minimum(least_before, priced[cluster], out=least_before)


def _between(gain: Array, first: int) -> float:
    """Return the midpoint of the ``first``-th smallest number and the next; reorders the numbers."""
    # numpy partitions at two positions three times faster than at one
    gain.partition((first - 1, first))
    return float(gain[first - 1] + gain[first]) / 2
