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
    """k-means with clusters of equal size: k-means++ seeds, then Lloyd steps while they tighten.

    Takes (points, dimensions) float64, and a count from 2 up to that of the points. Gives (points,) labels, whose
    sizes differ by one at most, and the (count, dimensions) means of the clusters.
    """
    labels, centroids, _ = _lloyd(points, count, generator, balanced_labels)
    return labels, centroids


def bounded_clusters(
    points: Array, count: int, generator: np.random.Generator, slack: float, starts: int
) -> tuple[Array, Array]:
    """`balanced_clusters` with sizes that are about equal: the tightest of several starts (k-means++ seeds).

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
    """Labels, means and summed squared distances of one start."""
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
    """(count, dimensions) means of the clusters, whose points are put side by side in some room."""
    order = np.argsort(labels.astype(np.uint16), kind="stable")
    ordered = points.take(order, axis=0, out=room, mode="clip")
    ends = np.cumsum(np.bincount(labels, minlength=count))
    return np.stack([part.mean(axis=0) for part in np.split(ordered, ends[:-1])])


def _seeds(points: Array, count: int, generator: np.random.Generator) -> Array:
    """k-means++: every seed is drawn by its squared distance from the seeds before it."""
    chosen = [int(generator.integers(len(points)))]
    nearest = np.full(len(points), np.inf)
    for _ in range(count - 1):
        nearest = np.minimum(nearest, ((points - points[chosen[-1]]) ** 2).sum(axis=1))
        total = nearest.sum()
        chosen.append(int(generator.choice(len(points), p=nearest / total if total > 0 else None)))
    return points[chosen]


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
    """(points,) labels of clusters of `low` to `high` points each, near the least total cost.

    As `balanced_labels`, but only clusters that would be too large or too small get a price. Where the
    nearest clusters have sizes within the bounds, every point gets its nearest. All points must fit in the
    bounds.
    """

    def price(_: int, gain: Array) -> float:
        # none where as many prefer a cluster as it may have
        asking = int(np.count_nonzero(gain > 0))
        first = len(gain) - min(max(asking, low), high)
        return 0.0 if first == len(gain) - asking else _between(gain, first)

    priced = cost + _prices(cost, price)
    demand = np.bincount(priced.argmin(axis=1), minlength=cost.shape[1])
    room = np.clip(demand, low, high)
    missing = len(cost) - int(room.sum())
    while missing:
        # the clusters that the bounds have moved least give or take what is over
        movable = room < high if missing > 0 else room > low
        chosen = np.where(movable, np.abs(room - demand), np.iinfo(np.int64).max).argmin()
        room[chosen] += np.sign(missing)
        missing -= int(np.sign(missing))
    return _hand_out(priced, room)


def _hand_out(cost: Array, room: Array) -> Array:
    """(points,) labels: every point asks for its cheapest cluster with room, see `balanced_labels`."""
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
    """(clusters,) prices, each set in turn so that as many points prefer the cluster as it has room for.

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
    """Each cluster in turn with the (points,) least of the others, which may be overwritten.

    The row of a cluster that was given may have changed by the time the next is asked for.
    """
    later = priced[1:].copy()
    for cluster in range(len(later) - 2, -1, -1):
        # along the rows `accumulate` takes many times as long
        np.minimum(later[cluster], later[cluster + 1], out=later[cluster])
    before, least = np.full(priced.shape[1], np.inf), np.empty(priced.shape[1])
    for cluster in range(len(priced)):
        if cluster < len(later):
            yield cluster, np.minimum(before, later[cluster], out=least)
        else:
            yield cluster, before
            return
        np.minimum(before, priced[cluster], out=before)


def _between(gain: Array, first: int) -> float:
    """The middle between the last of the ``first`` smallest numbers and the next one; reorders them."""
    # for two places numpy takes a third of the time that it takes for one
    gain.partition((first - 1, first))
    return float(gain[first - 1] + gain[first]) / 2
