"""The questions that one model answers and another does not, and whether chance explains them.

A model chooses the option of the highest log-likelihood (acc), or of the highest log-likelihood for its
length in characters (acc_norm). Questions that both get right, or both wrong, do not tell the models apart:
what decides are those that flip, and whether they flip one way more often than a coin would (McNemar's exact
test).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gprune.records import Array
from gprune.records.answers import Answers

ACC, ACC_NORM = "acc", "acc_norm"
LOST, GAINED, EITHER = "lost", "gained", "either"
UNITS = {ACC: "nats", ACC_NORM: "nats/character"}
CALLED = 0.05
"""flips that are less probable than this by chance are called a difference"""


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """The options that a model chooses under one rule."""

    option: Array
    """(questions,) index of the option"""
    hit: Array
    """(questions,) whether it is the right one"""
    margin: Array
    """(questions,) what the right option has beyond the best wrong one; positive where it is chosen"""


@dataclass(frozen=True, slots=True)
class AnswerCounts:
    """The answers of two models to the same questions, counted."""

    both: int
    """right by both"""
    lost: int
    """right by the first, wrong by the second"""
    gained: int
    """wrong by the first, right by the second"""
    neither: int
    """wrong by both"""

    @property
    def questions(self) -> int:
        """Return the number of questions."""
        return self.both + self.lost + self.gained + self.neither

    @property
    def chance(self) -> float:
        """Return the probability of flips at least as uneven if both directions were equally likely (McNemar)."""
        flips = self.lost + self.gained
        if not flips:
            return 1.0
        from scipy.stats import binomtest

        return float(binomtest(self.lost, flips, 0.5).pvalue)


def values(answers: Answers, rule: str) -> Array:
    """Return (options,) log-likelihoods in nats (ACC), or in nats a character (ACC_NORM)."""
    plain: Array = answers.likelihoods.astype(np.float64)
    return plain / np.maximum(answers.lengths, 1) if rule == ACC_NORM else plain


def choices(answers: Answers, rule: str) -> Choices:
    """Return the options that a model chooses: of equal ones the first, as lm-eval does."""
    likelihoods, starts = values(answers, rule), _starts(answers)
    if answers.scored:
        # the one option, the right text, is chosen or not
        is_right = likelihoods > 0.5
        return Choices(np.where(is_right, 0, -1), is_right, likelihoods - 0.5)
    question = np.repeat(np.arange(len(starts)), answers.counts)
    best = np.flatnonzero(likelihoods == np.maximum.reduceat(likelihoods, starts)[question])
    first_best = best[np.unique(question[best], return_index=True)[1]]
    right = starts + answers.right
    wrong = likelihoods.copy()
    wrong[right] = -np.inf
    with np.errstate(invalid="ignore"):
        margin = likelihoods[right] - np.maximum.reduceat(wrong, starts)
    return Choices(first_best - starts, first_best == right, margin)


def counts(base: Choices, other: Choices) -> AnswerCounts:
    """Count the questions on which both, one or none of two models is right."""
    kinds = (base.hit & other.hit, base.hit & ~other.hit, ~base.hit & other.hit, ~base.hit & ~other.hit)
    return AnswerCounts(*(int(kind.sum()) for kind in kinds))


def margin_shift(base: Choices, other: Choices) -> Array:
    """Return (questions,) change of the right option's margin over the best wrong one."""
    with np.errstate(invalid="ignore"):
        change: Array = np.nan_to_num(other.margin - base.margin, nan=0.0)
    return change


def flips(base: Choices, other: Choices, kind: str = EITHER) -> Array:
    """Return the numbers of questions that flip (LOST, GAINED or EITHER), the largest shift first."""
    is_flipped = {LOST: base.hit & ~other.hit, GAINED: ~base.hit & other.hit, EITHER: base.hit != other.hit}[kind]
    numbers = np.flatnonzero(is_flipped)
    return numbers[np.argsort(-np.abs(margin_shift(base, other)[numbers]), kind="stable")]


def of_question(answers: Mapping[str, Answers], rule: str, number: int) -> pd.DataFrame:
    """Return the log-likelihoods of every option of question `number` under every model, by ACC or ACC_NORM.

    One row an option: its letter, whether it is right, and a column a model, all asked the same.
    """
    reference = next(iter(answers.values()))
    start, count = int(_starts(reference)[number]), int(reference.counts[number])
    right = np.arange(count) == reference.right[number]
    columns = {name: values(item, rule)[start : start + count] for name, item in answers.items()}
    return pd.DataFrame({"option": [letter(index) for index in range(count)], "right": right} | columns)


def letter(index: int) -> str:
    """Return the label of an option: A to Z, then its number; a dash for none."""
    if index < 0:
        return "–"
    return chr(ord("A") + index) if index < 26 else str(index + 1)


def answers_title(counts: AnswerCounts, name: str, base: str) -> str:
    """Return how the answers of model `name` differ from those of model `base`, in one sentence."""
    if not counts.lost + counts.gained:
        return f"{name} answers every question as {base} does, right or wrong"
    lost_text, gained_text = f"{counts.lost:,} of {base}’s right answers", f"{counts.gained:,} others"
    verdict = "more than chance" if counts.chance < CALLED else "which chance alone can do"
    return f"{name} loses {lost_text} and gains {gained_text}: {verdict}, p {probability(counts.chance)}"


def probability(value: float) -> str:
    """Format a probability as it follows a p."""
    return "< 0.001" if value < 0.001 else f"= {value:.3f}"


def _starts(answers: Answers) -> Array:
    return np.concatenate([[0], np.cumsum(answers.counts)[:-1]]).astype(np.int64)
