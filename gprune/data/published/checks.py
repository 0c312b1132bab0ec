"""Answers: which published numbers contradict each other?

Four things must hold in the main tables and are tried on every cell: the higher of two accuracies is not
below one of them; a task without a length-normalised accuracy, and every perplexity, is the same under both
rules; a mean is the mean of its seven tasks; an accuracy is a whole number of examples out of those the
task has. A number printed in two tables must be the same in both.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from statistics import fmean

from gprune.data.published.rows import METHODS, TASKS, Figure, main_rows, other_rows

HALF_DIGIT = 0.005
"""largest rounding error of a number printed with two decimals"""
MEAN_TOLERANCE = 2 * HALF_DIGIT
"""a mean and its seven tasks are rounded apart: this much may lie between them"""
EXAMPLES = {
    "boolq": 3270,
    "piqa": 1838,
    "hellaswag": 10042,
    "winogrande": 1267,
    "arc_easy": 2376,
    "arc_challenge": 1172,
    "openbookqa": 500,
}
"""examples of the split each task is scored on"""
_SAME_UNDER_BOTH = ("wikitext2_ppl", "ptb_ppl", "boolq", "winogrande")
_EXACT = 1e-9
# a main row's counterpart in another table: the method pruned with its own default calibration
_DEFAULT_VARIANTS = {
    "ablation": ("none", "BCM+RASA+MSL"),
    "calibration-pair": ("WikiText2", "WikiText2+PTB"),
    "multi-dataset": ("WT2", "WT2+PTB"),
    "calibration-samples": ("2048 samples 2 epochs",),
    "seeds": ("",),
    "fine-grained": (
        "BCM modularization: initialization + refinement",
        "RASA module selection: rank drift + score",
        "RASA scoring source: repeatability",
        "MSL supervision: adaptive",
    ),
}


@dataclass(frozen=True, slots=True)
class Inconsistency:
    """One published number that cannot be what it says."""

    kind: str
    """max below fixed, rules differ, mean, count or repeated"""
    model: str
    retention: float | None
    method: str
    """id of the method"""
    rule: str
    column: str
    """which number of the row"""
    value: float
    """as published"""
    expected: float
    """what it would have to be, or to reach, for the other published numbers to hold"""
    sentence: str
    """the contradiction in words, with both numbers"""


@cache
def inconsistencies() -> tuple[Inconsistency, ...]:
    """Every contradiction among the published numbers, computed from the data."""
    rows = main_rows()
    fixed = {_place(row): row for row in rows if row.rule == "fixed"}
    found: list[Inconsistency] = []
    for row in rows:
        if row.rule == "max" and _place(row) in fixed:
            found.extend(below(row, fixed[_place(row)]))
            found.extend(differing(row, fixed[_place(row)]))
        found.extend(means(row))
        found.extend(counts(row))
    found.extend(repeated(rows, other_rows()))
    return tuple(found)


def below(higher: Figure, fixed: Figure) -> Iterator[Inconsistency]:
    """Accuracies under max that are below the same under fixed.

    The mean is held against the mean of the higher of the two values of each task.
    """
    least = {task: max(higher.values[task], fixed.values[task]) for task in TASKS}
    least_mean = round(fmean(least.values()), 2)
    for column in (*TASKS, "mean_accuracy"):
        value, other = higher.values[column], fixed.values[column]
        if value >= other:
            continue
        expected = least.get(column, least_mean)
        consequence = f", and at least {least_mean:.2f} by the tasks" if column not in least else ""
        sentence = f"{column} is {value:.2f} under max, below the {other:.2f} under fixed{consequence}"
        yield _found("max below fixed", higher, column, expected, sentence)


def differing(higher: Figure, fixed: Figure) -> Iterator[Inconsistency]:
    """Numbers that differ between the rules though neither rule touches them."""
    for column in _SAME_UNDER_BOTH:
        value, other = higher.values[column], fixed.values[column]
        if abs(value - other) > _EXACT:
            sentence = f"{column} is {value:.2f} under max and {other:.2f} under fixed, which cannot differ"
            yield _found("rules differ", higher, column, other, sentence)


def means(row: Figure) -> Iterator[Inconsistency]:
    """A mean accuracy that is not the mean of the row's seven tasks, beyond rounding."""
    value, mean = row.values["mean_accuracy"], fmean(row.values[task] for task in TASKS)
    if abs(value - mean) > MEAN_TOLERANCE:
        sentence = f"mean_accuracy is {value:.2f}, but its tasks average {mean:.2f}"
        yield _found("mean", row, "mean_accuracy", round(mean, 2), sentence)


def counts(row: Figure) -> Iterator[Inconsistency]:
    """Accuracies that no whole number of correct answers gives, rounded to two decimals."""
    for task in TASKS:
        value, total = row.values[task], EXAMPLES[task]
        nearest = 100 * round(value / 100 * total) / total
        if abs(nearest - value) > HALF_DIGIT + _EXACT:
            sentence = (
                f"{task} is {value:.2f}, which no whole number out of {total} examples gives (nearest {nearest:.2f})"
            )
            yield _found("count", row, task, round(nearest, 2), sentence)


def repeated(rows: list[Figure], others: list[Figure]) -> Iterator[Inconsistency]:
    """Numbers that another table repeats differently from the main table under max."""
    main = {_place(row): row for row in rows if row.rule == "max"}
    for row in others:
        counterpart = main.get(_place(row))
        if counterpart is None or row.seed != 0 or row.variant not in _DEFAULT_VARIANTS[row.table]:
            continue
        for column in ("wikitext2_ppl", "ptb_ppl", "mean_accuracy"):
            value, other = row.values[column], counterpart.values[column]
            if abs(value - other) > _EXACT:
                sentence = f"{column} is {value:.2f} in {row.table} and {other:.2f} in the main table"
                yield _found("repeated", row, column, other, sentence)


def _place(row: Figure) -> tuple[str, float | None, str]:
    return row.model, row.retention, row.method


def _found(kind: str, row: Figure, column: str, expected: float, sentence: str) -> Inconsistency:
    name = next(name for name, identifier in METHODS.items() if identifier == row.method)
    whole = f"{row.model} at {row.retention:.0%}, {name}: {sentence}"
    return Inconsistency(
        kind, row.model, row.retention, row.method, row.rule, column, row.values[column], expected, whole
    )
