"""Compare the answers of two models to the questions of a task.

A model chooses the option with the highest log-likelihood (acc), or the highest log-likelihood per character
(acc_norm). Only questions that flip between right and wrong distinguish two models. McNemar's exact test compares the
numbers of flips in both directions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gprune.analysis.formatting import format_signed
from gprune.analysis.paired_test import over_windows
from gprune.records import Array
from gprune.records.answers import Answers

ACC, ACC_NORM = "acc", "acc_norm"
LOST, GAINED, EITHER = "lost", "gained", "either"
UNITS = {ACC: "nats", ACC_NORM: "nats/character"}
SIGNIFICANCE = 0.05
"""significance level of McNemar's test"""


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """Options that a model chooses under one rule."""

    option: Array
    """(questions,) index of the chosen option"""
    hit: Array
    """(questions,) bool, True if the chosen option is right"""
    margin: Array
    """(questions,) value of the right option minus that of the best wrong option"""


@dataclass(frozen=True, slots=True)
class AnswerCounts:
    """Counts of right and wrong answers of two models to the same questions."""

    both: int
    """questions that both models answer right"""
    lost: int
    """questions that only the first model answers right"""
    gained: int
    """questions that only the second model answers right"""
    neither: int
    """questions that both models answer wrong"""

    @property
    def questions(self) -> int:
        """Return the number of questions."""
        return self.both + self.lost + self.gained + self.neither

    @property
    def p_value(self) -> float:
        """Return the p-value of McNemar's exact test."""
        flips = self.lost + self.gained
        if not flips:
            return 1.0
        # scipy.special is faster to import than scipy.stats
        from scipy.special import bdtr

        return min(1.0, 2.0 * float(bdtr(min(self.lost, self.gained), flips, 0.5)))


def option_scores(answers: Answers, rule: str) -> Array:
    """Return the (options,) log-likelihoods of the options of all questions, per character for ACC_NORM."""
    likelihoods: Array = answers.likelihoods.astype(np.float64)
    return likelihoods / np.maximum(answers.lengths, 1) if rule == ACC_NORM else likelihoods


def choices(answers: Answers, rule: str) -> Choices:
    """Return the options that a model chooses; the first one at a tie, as in lm-eval."""
    likelihoods, starts = option_scores(answers, rule), _option_starts(answers)
    if answers.scored:
        # a generated answer has one option, the right answer, whose value is 1 or 0
        is_right = likelihoods > 0.5
        return Choices(np.where(is_right, 0, -1), is_right, likelihoods - 0.5)
    question = np.repeat(np.arange(len(starts)), answers.counts)
    # all options with the highest value of their question, then the first of them for each question
    best = np.flatnonzero(likelihoods == np.maximum.reduceat(likelihoods, starts)[question])
    first_best = best[np.unique(question[best], return_index=True)[1]]
    right = starts + answers.right
    wrong = likelihoods.copy()
    wrong[right] = -np.inf
    with np.errstate(invalid="ignore"):
        margin = likelihoods[right] - np.maximum.reduceat(wrong, starts)
    return Choices(first_best - starts, first_best == right, margin)


def counts(base: Choices, other: Choices) -> AnswerCounts:
    """Count the questions that both models, only `base`, only `other`, or neither model answers right."""
    return count_hits(base.hit, other.hit)


def count_hits(first: Array, second: Array) -> AnswerCounts:
    """Count the questions that are right, (questions,) bool, in both arrays, only the first, only the second, none."""
    kinds = (first & second, first & ~second, ~first & second, ~first & ~second)
    return AnswerCounts(*(int(kind.sum()) for kind in kinds))


def describe_overrating(hits: Sequence[Array], dense_hits: Sequence[Array], name: str) -> str:
    """Describe in a sentence whether multiple choice overrates the model `name` relative to the dense model.

    `hits` and `dense_hits` are (questions,) bool, True for right answers: to multiple choice, and to the same questions
    asked openly.
    """
    gains = [model.astype(float) - dense for dense, model in zip(dense_hits, hits, strict=True)]
    difference = over_windows(gains[0], gains[1])
    verdict = "does not clearly overrate" if difference.close else "overrates" if difference.nats > 0 else "underrates"
    choice, question = (format_signed(100 * gain.mean(), ".1f") for gain in gains)
    margin = f" ± {100 * difference.nats_margin:.1f}" if np.isfinite(difference.nats_margin) else ""
    change = f"against dense, accuracy changes by {choice} points with options and {question} points asked openly"
    return f"Multiple choice {verdict} {name}: {change} (difference {100 * difference.nats:.1f}{margin})"


def margin_shift(base: Choices, other: Choices) -> Array:
    """Return the (questions,) change from `base` to `other` of the right option's margin over the best wrong one."""
    with np.errstate(invalid="ignore"):
        change: Array = np.nan_to_num(other.margin - base.margin, nan=0.0)
    return change


def flips(base: Choices, other: Choices, kind: str = EITHER) -> Array:
    """Return the indices of the flipped questions of a kind (LOST, GAINED or EITHER).

    The question with the largest absolute change of margin is first.
    """
    is_flipped = {LOST: base.hit & ~other.hit, GAINED: ~base.hit & other.hit, EITHER: base.hit != other.hit}[kind]
    numbers = np.flatnonzero(is_flipped)
    return numbers[np.argsort(-np.abs(margin_shift(base, other)[numbers]), kind="stable")]


def question_table(answers: Mapping[str, Answers], rule: str, number: int) -> pd.DataFrame:
    """Return a table of the options of question `number`, with the log-likelihoods of each model in a column.

    `rule` is ACC or ACC_NORM. The table also has the letter of each option, and whether the option is right.
    """
    reference = next(iter(answers.values()))
    start, count = int(_option_starts(reference)[number]), int(reference.counts[number])
    right = np.arange(count) == reference.right[number]
    columns = {name: option_scores(item, rule)[start : start + count] for name, item in answers.items()}
    return pd.DataFrame({"option": [letter(index) for index in range(count)], "right": right} | columns)


def letter(index: int) -> str:
    """Return the label of an option: A to Z, then its number; a dash for none."""
    if index < 0:
        return "–"
    return chr(ord("A") + index) if index < 26 else str(index + 1)


def answers_title(counts: AnswerCounts, name: str, base: str) -> str:
    """Describe how the answers of model `name` differ from those of model `base`, in one sentence."""
    if not counts.lost + counts.gained:
        return f"{name} answers every question as {base} does, right or wrong"
    lost_text, gained_text = f"{counts.lost:,} of {base}’s right answers", f"{counts.gained:,} others"
    verdict = "more than chance" if counts.p_value < SIGNIFICANCE else "which can be due to chance"
    return f"{name} loses {lost_text} and gains {gained_text}: {verdict}, p {probability(counts.p_value)}"


def probability(value: float) -> str:
    """Format a p-value: "< 0.001" or "= 0.012"."""
    return "< 0.001" if value < 0.001 else f"= {value:.3f}"


def _option_starts(answers: Answers) -> Array:
    """Return the (questions,) index of each question's first option in the options of all questions."""
    return np.concatenate([[0], np.cumsum(answers.counts)[:-1]]).astype(np.int64)
