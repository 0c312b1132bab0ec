"""The perplexity of every method on every text, and the difference of two of them.

Section 4: perplexity of every method on every text, beside the dense model and the retention really met.
All methods read the same windows, so a difference is judged by the windows' differences (paired).
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from gprune.analysis.paired_test import Difference, Measurement, difference, difference_over_seeds, half_interval
from gprune.evaluation.protocol import Marks, Stamp

DENSE = "dense"


@dataclass(frozen=True, slots=True)
class Row:
    """One method of one run with its perplexity on every text."""

    run: str
    method: str
    retention: float
    parameters: int
    cells: dict[str, Measurement]
    reason: str = ""
    """why it has no perplexity; empty if it has"""

    @property
    def name(self) -> tuple[str, str]:
        """Run and method."""
        return self.run, self.method


@dataclass(frozen=True, slots=True)
class MethodResult:
    """One line of the table: a method of a run, or of several runs that differ in their seed."""

    rows: tuple[Row, ...]
    """one a seed, at least one"""
    seeds: tuple[int, ...]
    """their seeds"""

    @property
    def name(self) -> tuple[str, str]:
        """Run and method of the first row."""
        return self.rows[0].name

    @property
    def method(self) -> str:
        """Name of the method."""
        return self.rows[0].method

    @property
    def reason(self) -> str:
        """Return the reason for a missing perplexity; empty if there is one."""
        return self.rows[0].reason

    @property
    def retention(self) -> float:
        """Return the mean retention over seeds."""
        return float(np.mean([row.retention for row in self.rows]))

    def by_seed(self, text: str) -> dict[int, Measurement]:
        """Return the perplexities on a text, by seed."""
        pairs = zip(self.seeds, self.rows, strict=True)
        return {seed: row.cells[text] for seed, row in pairs if text in row.cells}

    def cell(self, text: str) -> Measurement:
        """Return the perplexity on a text of the first seed that has one."""
        return next(iter(self.by_seed(text).values()))

    def loss(self, text: str) -> float:
        """Return the mean loss over seeds, nats per token."""
        return float(np.mean([np.log(cell.perplexity) for cell in self.by_seed(text).values()]))

    def stamps(self, text: str) -> list[Stamp | None]:
        """Return the protocols by which its perplexities on a text were measured."""
        return [cell.stamp for cell in self.by_seed(text).values()]

    def mean(self, text: str) -> float:
        """Return the mean perplexity over seeds, or NaN if there is none."""
        perplexities = [cell.perplexity for cell in self.by_seed(text).values()]
        return float(np.mean(perplexities)) if perplexities else float("nan")

    def spread(self, text: str) -> float:
        """Return the standard deviation over seeds (n - 1); NaN for fewer than two."""
        perplexities = [cell.perplexity for cell in self.by_seed(text).values()]
        with np.errstate(invalid="ignore"):
            return float(np.std(perplexities, ddof=1)) if len(perplexities) > 1 else float("nan")

    def margin(self, text: str) -> float:
        """Return half the interval of the mean over seeds, or over one run's windows."""
        cells = list(self.by_seed(text).values())
        if len(cells) > 1:
            return half_interval(self.spread(text) / math.sqrt(len(cells)), len(cells) - 1)
        return cells[0].margin if cells else float("nan")


def lines(table: list[Row], groups: Mapping[str, tuple[str, int]] | None = None) -> list[MethodResult]:
    """Return the lines of a table: one a row, or one for the rows of runs that differ only in their seed.

    `groups` says by run what it shares with those that differ in their seed only, and its seed; of equal
    seeds of a group the first counts.
    """
    grouped: dict[tuple[str, str], dict[int, Row]] = {}
    for row in table:
        group, seed = (row.run, 0) if groups is None else groups[row.run]
        grouped.setdefault((group, row.method), {}).setdefault(seed, row)
    return [MethodResult(tuple(by_seed.values()), tuple(by_seed)) for by_seed in grouped.values()]


def rows(measurements: list[Measurement]) -> list[Row]:
    """Group measurements by run and method, dense rows first.

    The dense model of several runs stands there once, as long as they read the same windows of a text; a run
    that read others keeps its own reference.
    """
    homes = _dense_homes([item for item in measurements if item.method == DENSE])
    grouped: dict[tuple[str, str], list[Measurement]] = {}
    for item in measurements:
        run = homes[item.run] if item.method == DENSE else item.run
        grouped.setdefault((run, item.method), []).append(item)
    table = []
    for (run, method), items in grouped.items():
        cells: dict[str, Measurement] = {}
        for item in items:
            cells.setdefault(item.text, item)
        table.append(Row(run, method, items[0].retention, items[0].parameters, cells))
    # sorting is stable: within dense and pruned the order of the runs and methods stays
    return sorted(table, key=lambda row: row.method != DENSE)


def _dense_homes(dense: list[Measurement]) -> dict[str, str]:
    """Return for each run the run whose dense row holds its dense measurements."""
    windows_by_run: dict[tuple[str, str], dict[str, str]] = {}
    for item in dense:
        windows_by_run.setdefault((item.model, item.run), {})[item.text] = item.windows_read
    rows_of: dict[str, list[tuple[str, dict[str, str]]]] = {}
    homes: dict[str, str] = {}
    for (model, run), windows in windows_by_run.items():
        homes_of_model = rows_of.setdefault(model, [])
        fits = (
            home for home in homes_of_model if all(home[1].get(text, sizes) == sizes for text, sizes in windows.items())
        )
        home_row = next(fits, None)
        if home_row is None:
            home_row = (run, {})
            homes_of_model.append(home_row)
        home_row[1].update(windows)
        homes[run] = home_row[0]
    return homes


def unavailable(run: str, reasons: dict[str, str]) -> list[Row]:
    """Return rows for the methods that a run left out, each with its reason."""
    return [Row(run, method, float("nan"), 0, {}, reason) for method, reason in reasons.items()]


def texts(table: Iterable[Row]) -> list[str]:
    """Return every measured text, in order of first appearance."""
    return list(dict.fromkeys(text for row in table for text in row.cells))


def marks(table: Iterable[Row]) -> Marks:
    """Return the marks of perplexities that follow another protocol than usual for their text."""
    rows_ = list(table)
    return Marks({text: [row.cells[text].stamp for row in rows_ if text in row.cells] for text in texts(rows_)})


def change(line: MethodResult, pinned: MethodResult, text: str) -> Difference | str:
    """Return the loss of a line over the pinned one on a text, or the reason for none."""
    return difference_over_seeds(line.by_seed(text), pinned.by_seed(text))


def without_change(table: list[MethodResult], pinned: MethodResult) -> dict[tuple[str, str], list[str]]:
    """Return the methods without a meaningful difference to the pinned line, by text and reason."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for text in texts(row for line in table for row in line.rows):
        for line in table:
            gap = change(line, pinned, text) if line.by_seed(text) and line is not pinned else None
            if isinstance(gap, str):
                reasons.setdefault((text, gap), []).append(line.method)
    return reasons


def long_table(table: list[Row], baseline: tuple[str, str] | None, labels: Mapping[str, str]) -> pd.DataFrame:
    """Return every measurement as one line, with its change against the pinned row.

    `labels` are the display names of the methods.
    """
    pinned = next((row for row in table if row.name == baseline), None)
    lines = []
    for row in table:
        start = {
            "run": row.run,
            "method": labels.get(row.method, row.method),
            "retention": row.retention,
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
    gap = difference(cell, against) if against is not None and comparable else None
    return {
        "text": cell.text,
        "perplexity": cell.perplexity,
        "standard error": cell.standard_error,
        "change against baseline": gap.change if gap else float("nan"),
        "standard error of the change": gap.error if gap else float("nan"),
        "paired": gap.paired if gap else None,
        "window tokens": cell.length,
        "windows": cell.windows,
        "protocol": cell.stamp.line if cell.stamp else "",
    }
