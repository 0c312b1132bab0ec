"""Questions and answers of a card: is the text large enough, does it change the model, is it distinct?"""

import math
from dataclasses import dataclass

from gprune.analysis.calibration_report.card import DEFAULT_SHARE, TextCard, TextComparison
from gprune.analysis.formatting import percent
from gprune.study.methods import METRICS

HARDLY, PARTLY = 1.25, 2.0
"""largest ratios of decisions changed by the text to those changed by sampling for "hardly" and for "in part\""""
_MAX_OVERLAP = 0.01
"""largest verbatim overlap with another text up to which a text is distinct"""
_EXTRAPOLATION_FACTOR = 4.0
"""multiple of the drawn sequences above which a recommendation is marked as extrapolated"""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One question and its answer."""

    question: str
    answer: str
    good: bool | None
    """True for a favourable answer, False for an unfavourable one, None for neither"""


def verdicts(card: TextCard, share: float = DEFAULT_SHARE) -> list[Verdict]:
    """Return the questions of a card and their answers.

    `share` is the limit of the rank drift by sampling, as a share of the drift to the nearest text.
    """
    return [
        Verdict(f"Is {card.label} large enough?", *_answer_size(card, share)),
        Verdict(f"Does the choice of {card.label} change the model?", _answer_decisions(card), None),
        Verdict(f"Is {card.label} distinct from the other texts?", *_answer_overlap(card)),
    ]


def _answer_size(card: TextCard, share: float) -> tuple[str, bool | None]:
    """Answer whether the text is large enough; the second value is `Verdict.good`."""
    count, nearest = card.size.sequences, card.nearest
    if not card.drift.fitted:
        return "Unknown: the differences between samples follow no scaling law at the measured sizes.", None
    shift = card.drift.at(count)
    numbers = f"Resampling {count:,} sequences shifts ranks by {shift:.3f} (median)"
    if nearest is None:
        return f"{numbers}. The run has no other text to compare it with.", None
    recommended = card.recommended(share)
    if recommended is None:
        return f"No. {numbers}, as much as {nearest.label} does ({nearest.drift:.3f}).", False
    drift = f"{nearest.drift_beyond:.3f} beyond sampling"
    part = f"{percent(shift / nearest.drift_beyond)} of the drift to {nearest.label} ({drift})"
    enough, note = recommended <= count, " (extrapolated)" if recommended > _EXTRAPOLATION_FACTOR * count else ""
    available = "" if card.size.available is None else f"; the text has {card.size.available:,}"
    goal = f"{recommended:,} sequences{note} would keep it below {percent(share)}{available}"
    return f"{'Yes' if enough else 'No'}. {numbers}, {part}. {goal}.", enough


def _answer_decisions(card: TextCard) -> str:
    """Answer whether the choice of the text changes the model, by the text that changes the most decisions."""
    far = card.farthest
    if far is None:
        return "The run has no other text to compare it with."
    # the metric is named, because shares of different metrics are not comparable
    metric = METRICS.get(card.origin.metric, card.origin.metric)
    measured = math.isfinite(far.changed_sampling)
    sampling = f" Another sample changes {percent(far.changed_sampling, 1)} of the neurons." if measured else ""
    texts = f" Across {len(card.others) + 1} texts, {percent(card.undecided, 1)} of the decisions depend on the text."
    return (
        f"{_describe_extent(far)}. Using {far.label} instead changes {percent(far.changed, 1)} of the neuron "
        f"decisions (Jaccard {far.jaccard:.2f}; chance {far.jaccard_chance:.2f}) and "
        f"{percent(far.groups_changed, 1)} of the key/value groups.{sampling} Setting: {metric} scores, "
        f"{percent(card.origin.retention)} kept in every layer.{texts if len(card.others) > 1 else ''}"
    )


def _describe_extent(far: TextComparison) -> str:
    """Return the short answer: does the choice of the text change the model?"""
    if not math.isfinite(far.changed_sampling):
        return "Unknown: the effect of sampling is not measured"
    if far.changed <= HARDLY * far.changed_sampling:
        return "Hardly more than another sample would"
    return "In part" if far.changed <= PARTLY * far.changed_sampling else "Yes"


def _answer_overlap(card: TextCard) -> tuple[str, bool | None]:
    """Answer whether the text is distinct from the other texts; the second value is `Verdict.good`."""
    comparable = [other for other in card.others if math.isfinite(other.runs_shared)]
    if not comparable:
        return "Unknown: there are no tokens to compare.", None
    closest = max(comparable, key=lambda other: other.runs_shared)
    nearest = min(comparable, key=lambda other: other.token_distance)
    share = percent(closest.runs_shared, 2) if closest.runs_shared else "no"
    distinct = closest.runs_shared <= _MAX_OVERLAP
    return (
        f"{'Yes' if distinct else 'No'}: {share} verbatim overlap with {closest.label} (runs of {closest.run} tokens). "
        f"Half of {card.label} differs in its token frequencies by {nearest.half_distance:.2f} from half of "
        f"{nearest.label} and by {card.size.halves:.2f} from the other half of {card.label}.",
        distinct,
    )
