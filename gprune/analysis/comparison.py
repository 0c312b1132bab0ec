"""Answers: which method is better, by how much, is it beyond noise, and at the same budget?

Section 4: perplexity of every method on every text, beside the dense model and the retention really met.
All methods read the same windows, so a difference is judged by the windows' differences (paired).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from gprune.analysis.decisions import BUDGET_TOLERANCE
from gprune.records import Array

DENSE = "dense"
BEST, SECOND = "★", "☆"
Name = TypeVar("Name")
CLOSE = 2.0
"""standard errors within which a difference is too close to call"""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One perplexity of one method of one run."""

    run: str
    """the run it belongs to"""
    method: str
    """name of the method, one of gprune.methods.METHODS"""
    text: str
    """evaluation text"""
    perplexity: float
    """lower is better; infinite where it overflows"""
    standard_error: float
    """over windows, carried to perplexity"""
    windows: int
    """windows measured"""
    length: int
    """tokens of one window"""
    retention: float
    """kept fraction of the decoder's weights; 1 for the dense model, NaN where it is not known"""
    parameters: int
    """parameters of the model; 0 where not known"""
    model: str
    """fingerprint of the dense model behind it"""
    content: str = ""
    """fingerprint of tokenizer and evaluation text; empty where not known"""
    losses: Array = field(default_factory=lambda: np.empty(0), compare=False)
    """(windows,) mean negative log-likelihood of each window, nats per token; empty where not known"""

    @property
    def windows_read(self) -> str:
        """What must be equal for two perplexities to be comparable."""
        return f"{self.windows} windows of {self.length} tokens"


@dataclass(frozen=True, slots=True)
class Difference:
    """One perplexity against another, on the scale of the mean loss."""

    nats: float
    """difference of the mean losses, nats per token; positive where the first is worse"""
    nats_error: float
    """its standard error; infinite where it is not known"""
    paired: bool
    """whether both were measured on the same windows; the error is then that of the windows' differences"""

    @property
    def change(self) -> float:
        """Relative change of perplexity: its ratio less 1."""
        with np.errstate(over="ignore"):
            return float(np.expm1(self.nats))

    @property
    def error(self) -> float:
        """Standard error of the change (delta method); NaN where the change itself is not finite."""
        return (1.0 + self.change) * self.nats_error if np.isfinite(self.change) else float("nan")

    @property
    def close(self) -> bool:
        """Whether the difference lies within two standard errors, or its error is not known."""
        return not abs(self.nats) > CLOSE * self.nats_error


@dataclass(frozen=True, slots=True)
class Row:
    """One method of one run with its perplexity on every text."""

    run: str
    method: str
    retention: float
    parameters: int
    cells: dict[str, Measurement]
    reason: str = ""
    """why it has no perplexity; empty where it has"""

    @property
    def name(self) -> tuple[str, str]:
        """Run and method."""
        return self.run, self.method


def rows(measurements: list[Measurement]) -> list[Row]:
    """Groups measurements by run and method, the dense ones on top.

    The dense model of several runs stands there once, as long as they read the same windows of a text; a run
    that read others keeps its own reference.
    """
    homes = _dense_homes([item for item in measurements if item.method == DENSE])
    grouped: dict[tuple[str, str], list[Measurement]] = {}
    for item in measurements:
        run = homes[item.run] if item.method == DENSE else item.run
        grouped.setdefault((run, item.method), []).append(item)
    made = []
    for (run, method), items in grouped.items():
        cells: dict[str, Measurement] = {}
        for item in items:
            cells.setdefault(item.text, item)
        made.append(Row(run, method, items[0].retention, items[0].parameters, cells))
    # sorting is stable: within dense and pruned the order of the runs and methods stays
    return sorted(made, key=lambda row: row.method != DENSE)


def _dense_homes(dense: list[Measurement]) -> dict[str, str]:
    """For each run the run whose dense row takes its dense measurements in."""
    read: dict[tuple[str, str], dict[str, str]] = {}
    for item in dense:
        read.setdefault((item.model, item.run), {})[item.text] = item.windows_read
    rows_of: dict[str, list[tuple[str, dict[str, str]]]] = {}
    homes: dict[str, str] = {}
    for (model, run), windows in read.items():
        there = rows_of.setdefault(model, [])
        fits = (
            home
            for home in there
            if all(home[1].get(text, words) == words for text, words in windows.items())
        )
        found = next(fits, None)
        if found is None:
            found = (run, {})
            there.append(found)
        found[1].update(windows)
        homes[run] = found[0]
    return homes


def unavailable(run: str, reasons: dict[str, str]) -> list[Row]:
    """Rows of the methods that a run had to leave out.

    Args:
        run: name of the run.
        reasons: why, by method.
    """
    return [Row(run, method, float("nan"), 0, {}, reason) for method, reason in reasons.items()]


def texts(table: list[Row]) -> list[str]:
    """Every text that was measured, in the order of first appearance."""
    return list(dict.fromkeys(text for row in table for text in row.cells))


def windows_of(table: list[Row], text: str) -> set[str]:
    """The windows in which a text was measured, in words; more than one where rows cannot be compared."""
    return {row.cells[text].windows_read for row in table if text in row.cells}


def budget_gap(table: list[Row]) -> float:
    """Largest difference of the retentions of the pruned models; 0 with fewer than two."""
    kept = [row.retention for row in table if row.method != DENSE and np.isfinite(row.retention)]
    return max(kept) - min(kept) if kept else 0.0


def obstacles(table: list[Row]) -> list[str]:
    """Why no winner can be called: one sentence for each reason, none where the comparison is fair."""
    reasons = []
    gap = budget_gap(table)
    if gap > BUDGET_TOLERANCE:
        reasons.append(
            f"the retentions differ by {gap:.1%} of the decoder's weights, more than "
            f"{BUDGET_TOLERANCE:.1%}: choose runs of the same retention"
        )
    models = {cell.model for row in table for cell in row.cells.values()}
    if len(models) > 1:
        reasons.append(f"{len(models)} different dense models are in the table: choose runs of one model")
    for text in texts(table):
        found = windows_of(table, text)
        if len(found) > 1:
            reasons.append(f"{text} was measured in different ways ({'; '.join(sorted(found))})")
    return reasons


def glyphs(table: list[Row], text: str) -> dict[tuple[str, str], str]:
    """Marks the best and second-best pruned model on a text; the best is lone where the second is a tie."""
    if obstacles(table):
        return {}
    values = {
        row.name: row.cells[text].perplexity
        for row in table
        if row.method != DENSE and text in row.cells and np.isfinite(row.cells[text].perplexity)
    }
    return best_two(values)


def best_two(values: Mapping[Name, float]) -> dict[Name, str]:
    """Signs of the lowest and the second-lowest values; equal ones share theirs, a lone one has none."""
    levels = sorted(set(values.values()))
    signs = dict(zip(levels[:2], (BEST, SECOND), strict=False))
    return {name: signs[value] for name, value in values.items() if value in signs} if len(values) > 1 else {}


def same_windows(first: Measurement, second: Measurement) -> bool:
    """Whether two perplexities were measured on the very same windows, with the loss of each window known."""
    if (first.text, first.windows_read) != (second.text, second.windows_read):
        return False
    if not len(first.losses) == len(second.losses) == first.windows:
        return False
    known = bool(first.content) or first.run == second.run
    return known and first.content == second.content


def difference(first: Measurement, second: Measurement) -> Difference:
    """How much worse the first is: paired over windows where they are the same, otherwise as if independent.

    Args:
        first: the method in question.
        second: what it is compared with.

    Returns:
        The difference of the mean losses and its standard error: that of the mean of the windows'
        differences, or both standard errors in quadrature where the windows differ.
    """
    if same_windows(first, second):
        return paired(first.losses, second.losses)
    values = np.array([first.perplexity, second.perplexity])
    errors = np.array([first.standard_error, second.standard_error])
    with np.errstate(invalid="ignore"):
        first_log, second_log = np.log(values)
        error = float(np.hypot(*(errors / values)))
        return Difference(float(first_log - second_log), error if np.isfinite(error) else np.inf, False)


def paired(first: Array, second: Array) -> Difference:
    """How much worse the first is over windows that both have read.

    Args:
        first: (windows,) losses in nats per token, at least one.
        second: (windows,) losses of the same windows.

    Returns:
        The mean of the windows' differences and its standard error, infinite with a single window.
    """
    each = first - second
    error = float(each.std(ddof=1) / np.sqrt(len(each))) if len(each) > 1 else float("inf")
    return Difference(float(each.mean()), error, True)


def undecided(table: list[Row], text: str) -> bool:
    """Whether the best and the second-best pruned model on a text are too close to call."""
    marks = glyphs(table, text)
    best = [row.cells[text] for row in table if marks.get(row.name) == BEST]
    second = [row.cells[text] for row in table if marks.get(row.name) == SECOND]
    return len(best) > 1 or any(difference(other, best[0]).close for other in second)


def unpaired(table: list[Row], baseline: Row) -> list[str]:
    """Texts on which some row was not measured on the windows of the pinned row."""
    return [
        text
        for text in texts(table)
        if text in baseline.cells
        and any(
            text in row.cells and not same_windows(row.cells[text], baseline.cells[text]) for row in table
        )
    ]


def long_table(table: list[Row], baseline: tuple[str, str] | None, labels: dict[str, str]) -> pd.DataFrame:
    """Every measurement as one line, with its change against the pinned baseline.

    Args:
        table: rows of the comparison.
        baseline: run and method of the pinned row, or None.
        labels: display names of the methods.
    """
    pinned = next((row for row in table if row.name == baseline), None)
    lines = []
    for row in table:
        start = {
            "run": row.run,
            "method": labels.get(row.method, row.method),
            "retained": row.retention,
            "parameters": row.parameters or None,
        }
        for text, cell in row.cells.items():
            against = pinned.cells.get(text) if pinned else None
            lines.append(start | _numbers(cell, against) | {"left out because": ""})
        if row.reason:
            lines.append(start | {"left out because": row.reason})
    return pd.DataFrame(lines)


def _numbers(cell: Measurement, against: Measurement | None) -> dict[str, Any]:
    comparable = against is not None and against.windows_read == cell.windows_read
    found = difference(cell, against) if against is not None and comparable else None
    return {
        "text": cell.text,
        "perplexity": cell.perplexity,
        "standard error": cell.standard_error,
        "change against baseline": found.change if found else float("nan"),
        "standard error of the change": found.error if found else float("nan"),
        "paired": found.paired if found else None,
        "window tokens": cell.length,
        "windows": cell.windows,
    }
