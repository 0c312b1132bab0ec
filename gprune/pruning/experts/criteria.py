"""Importance scores of experts from their statistics, on one text, on two, or adapted (RASA with the expert as module).

`frequency` is the share of tokens that the router sends to an expert. `reap` is the mean of g * ||f(x)|| over these
tokens (REAP, ICLR 2026), `routed_norm` the mean of the same over all tokens of the text, and `man` the mean of
||f(x)|| over the expert's tokens, without the router's weight (arXiv 2606.15716).
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from gprune.pruning.drift import signed_drift
from gprune.pruning.ranking import standardize
from gprune.pruning.rasa import decide_modules
from gprune.records import Array, ModuleStatistics, budget
from gprune.records.experts import (
    LEAST_TOKENS,
    AdaptedExperts,
    ExpertDrift,
    ExpertMasks,
    ExpertScores,
    ExpertShape,
    ExpertStatistics,
)
from gprune.study import ReliabilitySettings

Halves = tuple[ExpertScores, ExpertScores]
"""scores on two token-disjoint halves of a text"""
_FORMULAS: dict[str, Callable[[Array, Array, Array, int], Array]] = {
    "frequency": lambda routed, _weighted, _norms, tokens: routed / tokens,
    "reap": lambda routed, weighted, _norms, _tokens: weighted / np.maximum(routed, 1),
    "routed_norm": lambda _routed, weighted, _norms, tokens: weighted / tokens,
    "man": lambda routed, _weighted, norms, _tokens: norms / np.maximum(routed, 1),
}
"""criteria by name: functions of (layers, experts) tokens, sums of g * ||f(x)||, sums of ||f(x)||, and all tokens"""


def score_experts(criterion: str, statistics: ExpertStatistics, shards: Sequence[int] | None = None) -> ExpertScores:
    """Return the scores of all experts on a calibration set or some `shards` of it, by a criterion of this module.

    `shards` are indices; None: all. The score of an expert without tokens is 0.
    """
    index = list(range(len(statistics.shard_tokens))) if shards is None else list(shards)
    routed, weighted, norms = (
        sums[index].sum(axis=0) for sums in (statistics.routed, statistics.weighted_norms, statistics.norms)
    )
    values = _FORMULAS[criterion](routed, weighted, norms, int(statistics.shard_tokens[index].sum()))
    return ExpertScores(criterion, statistics.text, values, routed)


def score_halves(criterion: str, statistics: ExpertStatistics, first: Sequence[int], second: Sequence[int]) -> Halves:
    """Return the scores on two disjoint sets of shards; see `score_experts`."""
    return score_experts(criterion, statistics, first), score_experts(criterion, statistics, second)


def random_scores(shape: ExpertShape, seed: int) -> ExpertScores:
    """Return random scores, for the control `random`; no expert is cold."""
    values = np.random.default_rng([seed, 2]).random((len(shape.layers), shape.experts))
    return ExpertScores("random", "", values, np.full(values.shape, LEAST_TOKENS))


def average_experts(primary: ExpertScores, auxiliary: ExpertScores) -> ExpertScores:
    """Return the mean of the scores on two texts; an expert that is cold on one text has the score of the other."""
    mean = 0.5 * primary.values + 0.5 * auxiliary.values
    only_primary, only_auxiliary = ~primary.is_cold & auxiliary.is_cold, primary.is_cold & ~auxiliary.is_cold
    values = np.where(only_primary, primary.values, np.where(only_auxiliary, auxiliary.values, mean))
    text, tokens = f"{primary.text} + {auxiliary.text}", np.maximum(primary.tokens, auxiliary.tokens)
    return ExpertScores(primary.criterion, text, values, tokens)


def expert_drift(
    primary: ExpertScores, auxiliary: ExpertScores, halves_primary: Halves, halves_auxiliary: Halves
) -> ExpertDrift:
    """Return the rank drift of every expert between two texts within its layer, with its resampling control (Eq. 1)."""
    return ExpertDrift(
        criterion=primary.criterion,
        signed=_signed_drift(primary, auxiliary),
        resample_primary=np.abs(_signed_drift(*halves_primary)),
        resample_auxiliary=np.abs(_signed_drift(*halves_auxiliary)),
        half=np.abs(_signed_drift(halves_primary[0], halves_auxiliary[0])),
        tokens_primary=primary.tokens,
        tokens_auxiliary=auxiliary.tokens,
    )


def _signed_drift(first: ExpertScores, second: ExpertScores) -> Array:
    """Return (layers, experts) (rank by first - rank by second) / (N - 1) among the N experts that are cold in neither.

    Equal scores share their average rank; cold experts are NaN.
    """
    is_ranked, result = ~(first.is_cold | second.is_cold), np.full(first.values.shape, np.nan)
    for layer, ranked in enumerate(is_ranked):
        result[layer, ranked] = signed_drift(first.values[layer, ranked], second.values[layer, ranked])
    return result


def adapt_experts(
    primary: ExpertScores,
    auxiliary: ExpertScores,
    halves_primary: Iterable[Halves],
    halves_auxiliary: Iterable[Halves],
    settings: ReliabilitySettings,
    seed: int,
) -> AdaptedExperts:
    """Adapt the scores of experts with unreliable primary scores: RASA (Eqs. 8 and 9) with the expert as module.

    An expert is sensitive if its drift reaches the drift quantile and exceeds its drift between halves of either text,
    which is the effect of resampling. Experts that are cold on one of the texts keep their primary score. The halves
    are one pair per balanced split of the shards.
    """
    drift = np.abs(_signed_drift(primary, auxiliary))
    u_primary, u_auxiliary = (_mean_drift(halves) for halves in (halves_primary, halves_auxiliary))
    is_ranked = np.isfinite(drift) & np.isfinite(u_primary) & np.isfinite(u_auxiliary)
    adapted, source, thresholds = np.zeros_like(is_ranked), np.zeros_like(is_ranked), (np.nan, np.nan)
    if is_ranked.any():
        scores = standardize(primary.values) if settings.score_scale == "standardized" else primary.values
        size, layers = np.ones(int(is_ranked.sum()), dtype=np.int64), np.nonzero(is_ranked)[0]
        u = u_primary[is_ranked], u_auxiliary[is_ranked]
        statistics = ModuleStatistics(drift[is_ranked], scores[is_ranked], size, layers, *u)
        decision = decide_modules(statistics, settings, seed, np.maximum(*u))
        adapted[is_ranked], source[is_ranked], thresholds = decision[0], decision[1], decision[2:]
    return AdaptedExperts(
        criterion=primary.criterion,
        values=np.where(source, auxiliary.values, primary.values),
        tokens=np.where(source, auxiliary.tokens, primary.tokens),
        adapted=adapted,
        from_auxiliary=source,
        drift=drift,
        u_primary=u_primary,
        u_auxiliary=u_auxiliary,
        drift_threshold=float(thresholds[0]),
        score_threshold=float(thresholds[1]),
    )


def _mean_drift(halves: Iterable[Halves]) -> Array:
    """Return (layers, experts) mean drift between the halves of each split in which the expert has ranks, else NaN."""
    drifts = np.stack([np.abs(_signed_drift(*pair)) for pair in halves])
    count = np.isfinite(drifts).sum(axis=0)
    return np.where(count, np.nansum(drifts, axis=0) / np.maximum(count, 1), np.nan)


def allocate_experts(method: str, shape: ExpertShape, scores: ExpertScores, target: float) -> ExpertMasks:
    """Return masks that keep the highest scores, the same number in every mixture and router group.

    Cold experts are removed first, those with the fewest tokens before others. At a tie, the first expert is kept.
    Raises SettingsError if the router needs more experts than `target` keeps.
    """
    count = shape.kept_experts(target)
    # scores are not negative, so that cold experts come after all others
    importance = np.where(scores.is_cold, scores.tokens - LEAST_TOKENS, scores.values)
    in_groups = importance.reshape(len(shape.layers), shape.groups, -1)
    masks = budget.highest(in_groups, count // shape.groups).reshape(importance.shape)
    return ExpertMasks(method, masks, count / shape.experts, target)
