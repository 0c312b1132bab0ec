"""Reliability-Aware Score Adaptation (RASA, section 3.2): adapt modules whose primary scores are unreliable.

A module with a large drift of its local ranking and a low mean primary score is scored from the text that ranks it
more repeatably. All other neurons keep their primary score bit for bit.
"""

from collections.abc import Iterable
from itertools import combinations

import numpy as np

from gprune.pruning.ranking import GroupedRanks, module_means, standardize
from gprune.records import AdaptedScores, Array, ModuleStatistics, Partition, UnitScores
from gprune.study import ReliabilitySettings

Split = tuple[tuple[int, ...], tuple[int, ...]]
_MOST_SPLITS = 126
"""number of balanced splits of 10 shards; for more shards, as many evenly spaced splits are used"""


def balanced_splits(shards: int) -> list[Split]:
    """Return splits of an even number of shards into two equal halves, with shard 0 in the first.

    The order of the halves is ignored: 8 shards give 35.
    """
    left_halves = [(0, *rest) for rest in combinations(range(1, shards), shards // 2 - 1)]
    selected = np.unique(np.linspace(0, len(left_halves) - 1, min(_MOST_SPLITS, len(left_halves))).round().astype(int))
    halves = [left_halves[index] for index in selected]
    return [(first, tuple(sorted(set(range(shards)) - set(first)))) for first in halves]


def module_statistics(
    primary: UnitScores,
    auxiliary: UnitScores,
    partition: Partition,
    halves_primary: Iterable[tuple[Array, Array]],
    halves_auxiliary: Iterable[tuple[Array, Array]],
    settings: ReliabilitySettings,
) -> ModuleStatistics:
    """Return drift, mean primary score and repeatability of every module (Eqs. 6 and 7).

    The halves are (layers, neurons) scores on the two halves of a text, one pair per balanced split.
    ``score_scale`` selects the mean of raw or of standardized scores.
    """
    local_ranks = GroupedRanks(partition.global_labels.ravel())
    return ModuleStatistics(
        drift=_discrepancy(local_ranks, [(primary.ffn, auxiliary.ffn)]),
        score=mean_scores(primary.ffn, partition, settings.score_scale),
        size=local_ranks.size,
        layer=partition.module_layer,
        u_primary=_discrepancy(local_ranks, halves_primary),
        u_auxiliary=_discrepancy(local_ranks, halves_auxiliary),
    )


def _discrepancy(local_ranks: GroupedRanks, pairs: Iterable[tuple[Array, Array]]) -> Array:
    """Return (modules,) mean of |pi_first - pi_second| over the module's neurons, averaged over the pairs.

    pi is rank / (size - 1), and 0 in a module of one neuron. Rank differences are summed as integers and divided
    once, so that equal repeatabilities on two texts compare as equal.
    """
    total, count, size = np.zeros(len(local_ranks.size), dtype=np.int64), 0, local_ranks.size
    for first, second in pairs:
        total += local_ranks.displacement(first.ravel(), second.ravel())
        count += 1
    # 2, because displacements are sums of doubled rank differences
    return total / (2 * count * size * np.maximum(size - 1, 1))


def mean_scores(scores: Array, partition: Partition, scale: str) -> Array:
    """Return (modules,) mean of (layers, neurons) scores under one text.

    `scale` is ``raw`` as in the paper, or ``standardized`` within the layer (see `standardize`), which makes modules
    of different layers comparable.
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
    """Choose the modules to adapt and score them from the text that ranks them more repeatably (Eqs. 8, 9).

    The thresholds are linearly interpolated quantiles over all modules of all layers. ``random`` selection adapts as
    many modules as the paper's rule. Ties of the repeatability go to the primary text. Neurons of modules that are
    not adapted keep their primary score bit for bit.
    """
    adapted, from_auxiliary, *thresholds = decide_modules(statistics, settings, seed)
    scores = np.where(from_auxiliary[partition.global_labels], auxiliary.ffn, primary.ffn)
    return AdaptedScores(scores, adapted, from_auxiliary.astype(np.int8), *thresholds)


def decide_modules(
    statistics: ModuleStatistics, settings: ReliabilitySettings, seed: int, noise: Array | float = -1.0
) -> tuple[Array, Array, float, float]:
    """Return (modules,) bool for adapted modules and for those scored from B, and the thresholds of drift and score.

    The drift of a sensitive module must also exceed `noise`, one number or (modules,); no drift is below 0.
    """
    drift_threshold = float(np.quantile(statistics.drift, settings.drift_quantile))
    score_threshold = float(np.quantile(statistics.score, settings.score_quantile))
    sensitive = (statistics.drift >= drift_threshold) & (statistics.drift > noise)
    unreliable = sensitive & (statistics.score <= score_threshold)
    # random stream 0 of the seed; stream 1 draws the scoring text
    adapted = _select_modules(settings.selection, sensitive, unreliable, np.random.default_rng([seed, 0]))
    return adapted, adapted & prefers_auxiliary(statistics, settings, seed), drift_threshold, score_threshold


def prefers_auxiliary(statistics: ModuleStatistics, settings: ReliabilitySettings, seed: int) -> Array:
    """Return (modules,) bool, True for modules that are scored from B if they are adapted; thresholds are ignored."""
    if settings.source == "random":
        return np.random.default_rng([seed, 1]).random(len(statistics.size)) < 0.5
    return statistics.u_auxiliary < statistics.u_primary


def _select_modules(selection: str, sensitive: Array, unreliable: Array, generator: np.random.Generator) -> Array:
    """Return (modules,) bool, True for modules to adapt: none, all sensitive, all unreliable, or random ones.

    Sensitive modules have a high drift; unreliable modules also have a low score, as in the paper.
    """
    if selection == "none":
        return np.zeros_like(unreliable)
    if selection == "drift":
        return sensitive
    if selection == "drift_and_score":
        return unreliable
    selected = np.zeros_like(unreliable)
    selected[generator.choice(len(selected), size=int(unreliable.sum()), replace=False)] = True
    return selected
