"""Answers: which method is better, by how much, is it beyond noise, and at the same budget?

Section 4: perplexity of every method on every text, beside the dense model and the retention really met.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from gprune.analysis.decisions import BUDGET_TOLERANCE

DENSE = "dense"
BEST, SECOND = "★", "☆"


@dataclass(frozen=True, slots=True)
class Measurement:
    """One perplexity of one method of one run."""

    run: str
    """the run it belongs to"""
    method: str
    """dense, gprune, flap, flap_no_bias or wanda_sp"""
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
    """retained fraction of the decoder's weights; 1 for the dense model, NaN where it is not known"""
    parameters: int
    """parameters of the model; 0 where not known"""
    model: str
    """fingerprint of the dense model behind it"""

    @property
    def protocol(self) -> str:
        """What must be equal for two perplexities to be comparable."""
        return f"{self.windows} windows of {self.length} tokens"


@dataclass(frozen=True, slots=True)
class Row:
    """One method of one run with its perplexity on every text."""

    run: str
    method: str
    retention: float
    parameters: int
    cells: dict[str, Measurement]

    @property
    def name(self) -> tuple[str, str]:
        """Run and method."""
        return self.run, self.method


def rows(measurements: list[Measurement]) -> list[Row]:
    """Groups measurements by run and method, the dense model of each distinct model once and on top."""
    grouped: dict[tuple[str, str], list[Measurement]] = {}
    seen: dict[str, str] = {}
    for item in measurements:
        run = seen.setdefault(item.model, item.run) if item.method == DENSE else item.run
        grouped.setdefault((run, item.method), []).append(item)
    made = []
    for (run, method), items in grouped.items():
        cells: dict[str, Measurement] = {}
        for item in items:
            cells.setdefault(item.text, item)
        made.append(Row(run, method, items[0].retention, items[0].parameters, cells))
    # sorting is stable: within dense and pruned the order of the runs and methods stays
    return sorted(made, key=lambda row: row.method != DENSE)


def texts(table: list[Row]) -> list[str]:
    """Every text that was measured, in the order of first appearance."""
    return list(dict.fromkeys(text for row in table for text in row.cells))


def protocols(table: list[Row], text: str) -> set[str]:
    """The window presets under which a text was measured."""
    return {row.cells[text].protocol for row in table if text in row.cells}


def budget_gap(table: list[Row]) -> float:
    """Largest difference of the retained fractions of the pruned models; 0 with fewer than two."""
    kept = [row.retention for row in table if row.method != DENSE and np.isfinite(row.retention)]
    return max(kept) - min(kept) if kept else 0.0


def obstacles(table: list[Row]) -> list[str]:
    """Why no winner can be called: one sentence for each reason, none where the comparison is fair."""
    reasons = []
    gap = budget_gap(table)
    if gap > BUDGET_TOLERANCE:
        reasons.append(
            f"the retained fractions differ by {gap:.1%} of the decoder's weights, more than "
            f"{BUDGET_TOLERANCE:.1%}: choose runs of the same retention"
        )
    models = {cell.model for row in table for cell in row.cells.values()}
    if len(models) > 1:
        reasons.append(f"{len(models)} different dense models are in the table: choose runs of one model")
    for text in texts(table):
        found = protocols(table, text)
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
    levels = sorted(set(values.values()))
    marks = dict(zip(levels[:2], (BEST, SECOND), strict=False))
    return {name: marks[value] for name, value in values.items() if value in marks} if len(values) > 1 else {}


def within_noise(first: Measurement, second: Measurement) -> bool:
    """Whether two perplexities lie within one standard error of each other (errors added in quadrature)."""
    error = float(np.hypot(first.standard_error, second.standard_error))
    return abs(first.perplexity - second.perplexity) <= error


def undecided(table: list[Row], text: str) -> bool:
    """Whether the best and the second-best pruned model on a text lie within noise."""
    marks = glyphs(table, text)
    best = [row.cells[text] for row in table if marks.get(row.name) == BEST]
    second = [row.cells[text] for row in table if marks.get(row.name) == SECOND]
    return len(best) > 1 or bool(best and second and within_noise(best[0], second[0]))


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
        for text, cell in row.cells.items():
            against = pinned.cells.get(text) if pinned else None
            change = cell.perplexity / against.perplexity - 1 if against else float("nan")
            lines.append(
                {
                    "run": row.run,
                    "method": labels.get(row.method, row.method),
                    "retained": row.retention,
                    "parameters": row.parameters,
                    "text": text,
                    "perplexity": cell.perplexity,
                    "standard error": cell.standard_error,
                    "change against baseline": change,
                    "window tokens": cell.length,
                    "windows": cell.windows,
                }
            )
    return pd.DataFrame(lines)
