"""Reliability-Aware Score Adaptation (RASA, section 3.2): which modules does the primary text misjudge?

A module whose local ranking moves between the texts and whose primary scores are weak is scored from the
text that ranks it more repeatably; every other neuron keeps its primary score, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

import numpy as np

from gprune.errors import SettingsError
from gprune.ranking import module_means, module_sizes, standardize
from gprune.records import AdaptedScores, Array, ModuleStatistics, Partition, UnitScores
from gprune.study import ReliabilitySettings

Split = tuple[tuple[int, ...], tuple[int, ...]]


def balanced_splits(shards: int, limit: int = 126) -> list[Split]:
    """Every way to part the shards into two halves of equal size, the order of the halves ignored.

    Args:
        shards: number of shards, even.
        limit: splits returned at most. Up to 10 shards have no more than 126; of more shards' splits an
            evenly spaced choice is taken, which estimates the same expectation.

    Returns:
        Pairs of shard indices; shard 0 is always in the first half. 8 shards give 35.

    Raises:
        SettingsError: the shards do not part into halves.
    """
    if shards < 2 or shards % 2:
        raise SettingsError(
            f"calibration.shards must be even and at least 2 to part into halves (got {shards})"
        )
    firsts = [(0, *rest) for rest in combinations(range(1, shards), shards // 2 - 1)]
    chosen = np.unique(np.linspace(0, len(firsts) - 1, min(limit, len(firsts))).round().astype(int))
    halves = [firsts[index] for index in chosen]
    return [(first, tuple(sorted(set(range(shards)) - set(first)))) for first in halves]


def module_statistics(
    primary: UnitScores,
    auxiliary: UnitScores,
    partition: Partition,
    halves_primary: Iterable[tuple[Array, Array]],
    halves_auxiliary: Iterable[tuple[Array, Array]],
    settings: ReliabilitySettings,
) -> ModuleStatistics:
    """Drift, mean primary score and repeatability of every module (Eqs. 6 and 7).

    Args:
        primary: scores on A.
        auxiliary: scores on B.
        partition: modules of every layer.
        halves_primary: (layers, neurons) scores on the two halves of A, one pair for each balanced split.
        halves_auxiliary: the same for B.
        settings: ``score_scale`` says whether the mean score is of raw or of standardised scores.

    Returns:
        One row for each module, in order of layer and label.

    Raises:
        SettingsError: there is no pair of halves.
    """
    local = _LocalRanks(partition)
    return ModuleStatistics(
        drift=local.discrepancy([(primary.ffn, auxiliary.ffn)]),
        score=mean_scores(primary.ffn, partition, settings.score_scale),
        size=local.size,
        layer=partition.module_layer,
        u_primary=local.discrepancy(halves_primary),
        u_auxiliary=local.discrepancy(halves_auxiliary),
    )


def mean_scores(scores: Array, partition: Partition, scale: str) -> Array:
    """Mean score of every module under one text.

    Args:
        scores: (layers, neurons) scores.
        partition: modules of every layer.
        scale: ``raw`` as in the paper, or ``standardized`` within the layer (sample deviation, ddof 1; zeros
            where all scores of the layer are equal), which makes modules of different layers comparable.

    Returns:
        (modules,) means.
    """
    values = standardize(scores) if scale == "standardized" else np.asarray(scores, dtype=np.float64)
    return module_means(values.ravel(), partition.global_labels.ravel(), partition.modules)


def adapt(
    primary: UnitScores,
    auxiliary: UnitScores,
    partition: Partition,
    statistics: ModuleStatistics,
    settings: ReliabilitySettings,
    seed: int,
) -> AdaptedScores:
    """Chooses the modules to adapt and scores them from the text that ranks them more repeatably (Eqs. 8, 9).

    The thresholds are linearly interpolated quantiles over all modules of all layers. ``random`` selection
    adapts as many modules as the paper's rule would; a tie of the repeatabilities goes to the primary text.

    Args:
        primary: scores on A.
        auxiliary: scores on B.
        partition: modules of every layer.
        statistics: of the same partition.
        settings: quantile levels and variants.
        seed: of the random variants.

    Returns:
        Adapted scores; neurons of modules that are not adapted keep their primary score bit for bit.
    """
    drift_threshold = float(np.quantile(statistics.drift, settings.drift_quantile))
    score_threshold = float(np.quantile(statistics.score, settings.score_quantile))
    sensitive = statistics.drift >= drift_threshold
    unreliable = sensitive & (statistics.score <= score_threshold)
    selection, choice = (np.random.default_rng([seed, stream]) for stream in (0, 1))
    adapted = _select(settings.selection, sensitive, unreliable, selection)
    if settings.source == "random":
        auxiliary_better = choice.random(len(adapted)) < 0.5
    else:
        auxiliary_better = statistics.u_auxiliary < statistics.u_primary
    source = (adapted & auxiliary_better).astype(np.int8)
    from_auxiliary = source.astype(bool)[partition.global_labels]
    scores = np.where(from_auxiliary, auxiliary.ffn, primary.ffn)
    return AdaptedScores(scores, adapted, source, drift_threshold, score_threshold)


def _select(selection: str, sensitive: Array, unreliable: Array, generator: np.random.Generator) -> Array:
    if selection == "none":
        return np.zeros_like(unreliable)
    if selection == "drift":
        return sensitive
    if selection == "drift_and_score":
        return unreliable
    chosen = np.zeros_like(unreliable)
    chosen[generator.choice(len(chosen), size=int(unreliable.sum()), replace=False)] = True
    return chosen


class _LocalRanks:
    """Within-module ranks of all layers at once, for one partition and many scores.

    Neurons are kept in order of module, where each module is one short run to sort: the seventy halves of
    eight shards are ranked in seconds at 32 x 11008 neurons.
    """

    def __init__(self, partition: Partition) -> None:
        labels = partition.global_labels.ravel()
        self.by_module = np.argsort(labels, kind="stable")
        self.size = module_sizes(labels, partition.modules)
        self.start = np.cumsum(self.size) - self.size
        self.first = np.repeat(self.start, self.size)
        self.divisor = np.repeat(np.maximum(self.size - 1, 1), self.size)
        self.untied: Array = (np.arange(len(labels)) - self.first) / self.divisor

    def discrepancy(self, pairs: Iterable[tuple[Array, Array]]) -> Array:
        """(modules,) mean of |pi_first - pi_second| over the module's neurons, averaged over the pairs."""
        total, count = np.zeros(len(self.first)), 0
        for first, second in pairs:
            total += np.abs(self._normalized(first) - self._normalized(second))
            count += 1
        if not count:
            raise SettingsError("the repeatability needs at least one pair of halves: use 2 shards or more")
        means: Array = np.add.reduceat(total, self.start) / (count * self.size)
        return means

    def _normalized(self, scores: Array) -> Array:
        """(layers * neurons,) rank / (size - 1) in order of module, ties averaged; 0 in a module of one."""
        values = np.asarray(scores).ravel()[self.by_module]
        order = self.first.copy()
        for start, size in zip(self.start.tolist(), self.size.tolist(), strict=True):
            order[start : start + size] += values[start : start + size].argsort()
        result = np.empty(len(values))
        result[order] = self._shared(values[order])
        return result

    def _shared(self, ordered: Array) -> Array:
        """Normalised ranks in sorted order; equal scores of one module share their mean."""
        equal = ordered[1:] == ordered[:-1]
        equal[self.start[1:] - 1] = False
        if not equal.any():
            return self.untied
        starts = np.flatnonzero(np.concatenate([[True], ~equal]))
        ends = np.append(starts[1:], len(ordered))
        positions = np.repeat((starts + ends - 1) / 2.0, ends - starts)
        shared: Array = (positions - self.first) / self.divisor
        return shared
