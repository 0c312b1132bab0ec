"""Measure the effect of sampling on ranks and decisions, by the number of sequences.

Two disjoint samples of one text are compared at increasing sizes, using the shards (groups of sequences) of stored
statistics. If a score is the sum of a true score and a sampling error with a variance proportional to 1 / n, the drift
between two samples of n sequences follows d(n)^2 = a / (n + b), the Spearman-Brown formula in terms of drift. The
fitted formula extrapolates to larger samples.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gprune.analysis.decisions import share_changed
from gprune.pruning.ranking import ranks
from gprune.records import Array

_MIN_DECREASE = 1e-3
"""smallest relative decrease of d^2 by sequences for which the fit succeeds"""
Score = Callable[[Sequence[int]], Array]
"""(layers, neurons) importance scores of some shards of a text"""


@dataclass(frozen=True, slots=True)
class Resampled:
    """Differences between two samples of one text, by the number of sequences in each sample."""

    sequences: Array
    """(sizes,) mean number of sequences in a sample"""
    drift: Array
    """(sizes, draws) median rank drift of all neurons"""
    changed: Array
    """(sizes, draws) share of neurons with different decisions"""


@dataclass(frozen=True, slots=True)
class Law:
    """Fitted difference d between two samples of one text as a function of their sequences n: d = sqrt(a / (n + b))."""

    scale: float
    """a, or NaN if the fit failed"""
    shift: float
    """b, at least 0"""

    @property
    def fitted(self) -> bool:
        """Return True if the fit succeeded: the difference decreases with the sample size, or is always 0."""
        return self.scale >= 0

    def at(self, sequences: float) -> float:
        """Return the expected difference between two samples of `sequences` sequences; NaN without a fit."""
        return float(np.sqrt(self.scale / (sequences + self.shift))) if self.fitted else float("nan")

    def sequences_for(self, difference: float) -> float:
        """Return the number of sequences at which the expected difference is `difference`.

        It is infinite if the difference is never that small, and NaN without a fit.
        """
        if not self.fitted:
            return float("nan")
        if not difference > 0:
            return float("inf") if self.scale else 0.0
        return max(self.scale / difference**2 - self.shift, 0.0)


def resampling_drift(score: Score, sizes: Array, counts: Array) -> Resampled:
    """Compare two disjoint samples of a text at every size from one shard to half of the shards.

    The samples are two adjacent sets of cyclically consecutive shards, for all start positions. `score` computes the
    scores of some shards. `sizes` (shards,) are the numbers of sequences of the shards, and `counts` (layers,) the
    numbers of neurons that a decision keeps.
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


def jaccard(retention: float, changed: float) -> float:
    """Return the Jaccard index of two decisions that each keep a share `retention` and differ in a share `changed`."""
    # each decision keeps a share changed / 2 that the other removes, so the intersection is retention - changed / 2
    # and the union retention + changed / 2
    return (retention - changed / 2) / (retention + changed / 2)


def fit_drift_law(sequences: Array, values: Array) -> Law:
    """Fit d(n)^2 = a / (n + b) by least squares on 1/d^2, with equal relative errors.

    `sequences` (sizes,) are the numbers of sequences in a sample, `values` (sizes, draws) the differences d of two
    samples. The shift b is 0 for a single size, or if its best value is negative. The scale a is NaN if d is not
    finite, is 0 at some sizes only, or does not decrease with n.
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
        # slope = 1 / a and intercept = b / a
        if slope * sequences[-1] <= _MIN_DECREASE * max(intercept, 0.0):
            return Law(float("nan"), 0.0)
        if intercept >= 0:
            return Law(float(1 / slope), float(intercept / slope))
    # least squares with b = 0, which leaves only the slope
    return Law(float((design[:, 0] @ design[:, 0]) / design[:, 0].sum()), 0.0)


def drift_beyond_sampling(drift: float, *noises: float) -> float:
    """Return the part of a drift between two texts that sampling does not explain, at least 0.

    `noises` are the drifts between two samples of the same text, one value per text, at the sizes that were drawn.
    Squared drifts add up. Each text contributes half of its squared value, because only one sample of it is compared.
    """
    return float(np.sqrt(max(drift**2 - sum(noise**2 for noise in noises) / 2, 0.0)))
