"""The effect of sampling alone on ranks and decisions, by the number of sequences.

Two samples of one text that share no sequence are compared, at growing sizes, from parts of statistics that
one forward pass has kept. A score is a true one and a sampling error whose variance falls as 1 / n: the drift
between two samples of n sequences then follows d(n)^2 = a / (n + b), the law of Spearman and Brown in terms
of drift. It goes through what was measured and on to larger samples.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gprune.pruning.ranking import ranks
from gprune.records import Array

_FALLS = 1e-3
"""what falls by less than this part over all sizes does not fall"""
Score = Callable[[Sequence[int]], Array]
"""(layers, neurons) importance scores of some shards of a text"""


@dataclass(frozen=True, slots=True)
class Resampled:
    """Two samples of one text against each other, by the sequences in each."""

    sequences: Array
    """(sizes,) mean number of sequences in a sample"""
    drift: Array
    """(sizes, draws) median rank drift of all neurons"""
    changed: Array
    """(sizes, draws) share of the neurons that are decided differently"""


@dataclass(frozen=True, slots=True)
class Law:
    """The fall of an effect of sampling with the number of sequences: sqrt(a / (n + b))."""

    scale: float
    """a, or NaN if nothing could be fitted"""
    shift: float
    """b, at least 0"""

    @property
    def known(self) -> bool:
        """Return True if a law was fitted: the measured effect falls as samples grow, or is 0."""
        return self.scale >= 0

    def at(self, sequences: float) -> float:
        """Return the difference between two samples of so many sequences; NaN without a law."""
        return float(np.sqrt(self.scale / (sequences + self.shift))) if self.known else float("nan")

    def reaches(self, level: float) -> float:
        """Return the sequences at which the effect falls to a level; infinity if never, NaN without a law."""
        if not self.known:
            return float("nan")
        if not level > 0:
            return float("inf") if self.scale else 0.0
        return max(self.scale / level**2 - self.shift, 0.0)


def resampling_drift(score: Score, sizes: Array, counts: Array) -> Resampled:
    """Compare two samples of a text at every size that its shards, with (shards,) sequences each, allow.

    A sample is n neighbouring shards of the shards in a ring, the other the n that follow; all starting
    points are drawn. `counts` (layers,) neurons of the highest ranks is what a decision keeps.
    """
    shards = len(sizes)
    rows = []
    for count in range(1, shards // 2 + 1):
        sample_ranks = [ranks(score([(start + step) % shards for step in range(count)])) for start in range(shards)]
        pairs = [(sample_ranks[start], sample_ranks[(start + count) % shards]) for start in range(shards)]
        rows.append(
            [
                (rank_drift(*pair), share_changed(*(keep_highest_ranks(sample, counts) for sample in pair)))
                for pair in pairs
            ]
        )
    draws = np.array(rows).reshape(len(rows), shards, 2)
    sequences = np.arange(1, len(rows) + 1) * float(np.mean(sizes))
    return Resampled(sequences, draws[:, :, 0], draws[:, :, 1])


def rank_drift(first: Array, second: Array) -> float:
    """Return the median rank drift of all neurons (Eq. 1) between two (layers, neurons) sets of ranks."""
    return float(np.median(np.abs(first - second)) / max(first.shape[1] - 1, 1))


def keep_highest_ranks(ranked: Array, counts: Array) -> Array:
    """Return (layers, neurons) bool, True for the `counts` (layers,) highest ranks of each layer."""
    return ranked >= ranked.shape[1] - counts[:, None]


def share_changed(first: Array, second: Array) -> float:
    """Return the share of units on which two decisions differ."""
    return float(np.mean(first != second))


def jaccard(retention: float, changed: float) -> float:
    """Return the Jaccard index of two decisions that each keep a share `retention` and differ in `changed`."""
    return (retention - changed / 2) / (retention + changed / 2)


def fit_drift_law(sequences: Array, values: Array) -> Law:
    """Fit d(n)^2 = a / (n + b) by least squares on 1/d^2, with equal relative errors.

    `sequences` (sizes,) are the sequences in a sample, `values` (sizes, draws) the differences d of two samples. The
    shift b is 0 for a single size, or if its best value is negative. The scale a is NaN if d is not finite, is 0 at
    some sizes only, or does not fall with n.
    """
    means = np.mean(values, axis=1) if np.size(values) else np.array([])
    if not means.size or not np.isfinite(means).all():
        return Law(float("nan"), 0.0)
    if not means.any():
        return Law(0.0, 0.0)
    if (means <= 0).any():
        return Law(float("nan"), 0.0)
    # 1 / d^2 = (n + b) / a is linear in n; the weights make its relative error count equally at every size
    weights = means**2
    design = np.stack([sequences, np.ones_like(sequences)], axis=1) * weights[:, None]
    if len(means) > 1:
        slope, intercept = np.linalg.lstsq(design, np.ones_like(means), rcond=None)[0]
        if slope * sequences[-1] <= _FALLS * max(intercept, 0.0):
            return Law(float("nan"), 0.0)
        if intercept >= 0:
            return Law(float(1 / slope), float(intercept / slope))
    return Law(float((design[:, 0] @ design[:, 0]) / design[:, 0].sum()), 0.0)


def drift_beyond_sampling(drift: float, *noises: float) -> float:
    """Return the part of a drift between two texts that sampling does not explain; 0 if it explains all.

    `noises` are what two samples of one of the texts differ by, at that size, for each text. Squares add up,
    and each text brings one of its two samples.
    """
    return float(np.sqrt(max(drift**2 - sum(noise**2 for noise in noises) / 2, 0.0)))
