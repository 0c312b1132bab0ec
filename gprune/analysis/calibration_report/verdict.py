"""What a card says in words: is the text good enough, would another one give another model, is it its own?

Every sentence is chosen by the numbers that it tells.
"""

import math
from dataclasses import dataclass

from gprune.analysis.calibration_report.card import DEFAULT_SHARE, Against, TextCard
from gprune.analysis.formatting import percent
from gprune.data.texts import is_sampled
from gprune.study.methods import METRICS

HARDLY = 1.25
"""up to so many times what sampling does, a text changes no more than another sample of it would"""
PARTLY = 2.0
_MANY_RUNS = 0.01
_FAR = 4.0
"""times the sequences drawn: beyond that a number is told as an extrapolation"""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One question and its answer."""

    question: str
    answer: str
    good: bool | None
    """whether the answer is one to rest on; None where it is neither"""


def verdicts(card: TextCard, share: float = DEFAULT_SHARE) -> list[Verdict]:
    """The answers of a card; `share` is the part of a drift that sampling alone may move ranks by."""
    return [_enough(card, share), _another(card), _own(card)]


def _enough(card: TextCard, share: float) -> Verdict:
    question = f"Is {card.letter} large enough?"
    count = card.size.sequences
    if not card.drift.known:
        answer = (
            "That cannot be said: what two samples of it differ by does not fall within the sizes that were "
            "measured, so that no number of sequences follows."
        )
        return Verdict(question, answer, None)
    moved = card.drift.at(count)
    sampling = f"with {count:,} sequences sampling alone moves the rank of a neuron by {moved:.3f} (median)"
    near = card.nearest
    if near is None:
        answer = f"{sampling[:1].upper() + sampling[1:]}. The run has no other text to hold that against."
        return Verdict(question, answer, None)
    needed = card.recommended(share)
    if needed is None:
        answer = (
            f"No: {sampling}, and {card.letter} and {near.letter} are no further apart than that explains "
            f"({near.drift:.3f}). They cannot be told apart by so few."
        )
        return Verdict(question, answer, False)
    part = moved / near.drift_beyond
    apart = f"{near.drift_beyond:.3f} of {near.drift:.3f}"
    beside = f"{sampling}, {percent(part)} of the drift to {near.letter} beyond sampling ({apart})"
    if needed <= count:
        answer = f"Yes: {beside}; {needed:,} would bring it to {percent(share)}."
        return Verdict(question, answer, True)
    return Verdict(question, f"No: {beside}; {_more(card, needed, share)}", False)


def _more(card: TextCard, needed: int, share: float) -> str:
    """How many sequences are asked for, and whether the text has them."""
    size = card.size
    far = " (far beyond what was measured)" if needed > _FAR * size.sequences else ""
    words = f"about {needed:,}{far} bring it to {percent(share)}"
    if is_sampled(card.name):
        return f"{words}, and the model writes as many as are asked for."
    if size.available is None:
        return f"{words}."
    if size.available >= needed:
        return f"{words}, and the text gives {size.available:,}."
    return f"{words}, and the text gives only {size.available:,}: choose a longer one."


def _another(card: TextCard) -> Verdict:
    question = f"Would another text than {card.letter} give another model?"
    far = card.farthest
    if far is None:
        return Verdict(question, "The run has no other text to hold it against.", None)
    changed = percent(far.changed, 1)
    answer = f"{_how_far(far)}: with {far.letter} in its place {changed} of the neurons are decided"
    answer += f" differently {_decided_by(card)} (Jaccard {far.jaccard:.2f}, by chance {far.jaccard_chance:.2f})"
    if math.isfinite(far.changed_sampling):
        answer += f", with another sample of this size {percent(far.changed_sampling, 1)}"
    answer += f". {_groups(far)}"
    if len(card.others) > 1:
        count = len(card.others) + 1
        depend = percent(card.undecided, 1)
        answer += f" Over the {count} texts of the run {depend} of these decisions depend on the text."
    return Verdict(question, answer, None)


def _decided_by(card: TextCard) -> str:
    """By what, so that nobody holds the share against that of another method."""
    by = METRICS.get(card.origin.metric, card.origin.metric)
    return f"by {by} at one ratio in every layer, {percent(card.origin.retention)} kept"


def _how_far(far: Against) -> str:
    if not math.isfinite(far.changed_sampling):
        return "Perhaps; what sampling does is not known" if far.changed else "No"
    if far.changed <= HARDLY * far.changed_sampling:
        return "Hardly more than another sample would"
    return "In part" if far.changed <= PARTLY * far.changed_sampling else "Yes"


def _groups(far: Against) -> str:
    if not far.groups_changed:
        return "The key/value groups are the same."
    return f"Of the key/value groups, {percent(far.groups_changed, 1)}."


def _own(card: TextCard) -> Verdict:
    question = f"Is {card.letter} distinct from the other texts?"
    known = [other for other in card.others if math.isfinite(other.runs_shared)]
    if not known:
        return Verdict(question, "That cannot be said: there are no tokens to compare.", None)
    most = max(known, key=lambda other: other.runs_shared)
    near = min(known, key=lambda other: other.token_distance)
    runs = f"{_share(most.runs_shared)} of its runs of {most.run} tokens stand in {most.letter} too"
    apart = f"token frequencies are {near.token_distance:.2f} apart from {near.letter}’s"
    if math.isfinite(card.size.halves):
        apart += f" (two halves of it: {card.size.halves:.2f})"
    alone = most.runs_shared <= _MANY_RUNS
    return Verdict(question, f"{'Yes' if alone else 'No'}: {runs}; its {apart}.", alone)


def _share(value: float) -> str:
    if not value:
        return "none"
    return "less than 0.01 %" if value < 1e-4 else percent(value, 2)
