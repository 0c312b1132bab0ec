"""Tables of the perplexity of every method on every text, and differences between methods.

Section 4: perplexity of every method on every text, next to the dense model and the actual retention. All methods are
evaluated on the same windows, so differences are tested with paired tests over windows. The module also lists the
settings in which runs differ.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from gprune.analysis.paired_test import Difference, Measurement, difference, difference_over_seeds, half_interval
from gprune.evaluation.protocol import Marks, Stamp
from gprune.study import Study
from gprune.study.fields import documentation

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
    """why there is no perplexity; empty if there is one"""

    @property
    def name(self) -> tuple[str, str]:
        """Return run and method."""
        return self.run, self.method


@dataclass(frozen=True, slots=True)
class MethodResult:
    """One line of the table: a method of one run, or of several runs that differ only in their seed."""

    rows: tuple[Row, ...]
    """one row per seed, at least one"""
    seeds: tuple[int, ...]
    """seeds of the rows"""

    @property
    def name(self) -> tuple[str, str]:
        """Return run and method of the first row."""
        return self.rows[0].name

    @property
    def method(self) -> str:
        """Return the name of the method."""
        return self.rows[0].method

    @property
    def reason(self) -> str:
        """Return the reason why there is no perplexity; empty if there is one."""
        return self.rows[0].reason

    @property
    def retention(self) -> float:
        """Return the mean retention over seeds."""
        return float(np.mean([row.retention for row in self.rows]))

    def by_seed(self, text: str) -> dict[int, Measurement]:
        """Return the perplexities on a text by seed."""
        pairs = zip(self.seeds, self.rows, strict=True)
        return {seed: row.cells[text] for seed, row in pairs if text in row.cells}

    def cell(self, text: str) -> Measurement:
        """Return the perplexity on a text for the first seed with which it is measured."""
        return next(iter(self.by_seed(text).values()))

    def loss(self, text: str) -> float:
        """Return the mean loss over seeds, nats per token."""
        return float(np.mean([np.log(cell.perplexity) for cell in self.by_seed(text).values()]))

    def stamps(self, text: str) -> list[Stamp | None]:
        """Return the protocols of the perplexities on a text, one per seed."""
        return [cell.stamp for cell in self.by_seed(text).values()]

    def perplexity(self, text: str) -> float:
        """Return the perplexity at the mean loss: the geometric mean over seeds."""
        return float(np.exp(self.loss(text)))

    def mean(self, text: str) -> float:
        """Return the arithmetic mean of the perplexity over seeds, or NaN if there is none."""
        perplexities = [cell.perplexity for cell in self.by_seed(text).values()]
        return float(np.mean(perplexities)) if perplexities else float("nan")

    def spread(self, text: str) -> float:
        """Return the standard deviation over seeds (n - 1); NaN for fewer than two."""
        perplexities = [cell.perplexity for cell in self.by_seed(text).values()]
        with np.errstate(invalid="ignore"):
            return float(np.std(perplexities, ddof=1)) if len(perplexities) > 1 else float("nan")

    def margin(self, text: str) -> float:
        """Return half the confidence interval of the mean over seeds, or with one seed that over windows."""
        cells = list(self.by_seed(text).values())
        if len(cells) > 1:
            return half_interval(self.spread(text) / math.sqrt(len(cells)), len(cells) - 1)
        return cells[0].margin if cells else float("nan")


def lines(table: list[Row], groups: Mapping[str, tuple[str, int]] | None = None) -> list[MethodResult]:
    """Return the lines of a table: one per row, or with `groups` one per method and group of runs.

    `groups` has the group key and the seed of each run, as from `seed_groups`. Of several runs of a group with the same
    seed, only the first is used.
    """
    grouped: dict[tuple[str, str], dict[int, Row]] = {}
    for row in table:
        group, seed = (row.run, 0) if groups is None else groups[row.run]
        grouped.setdefault((group, row.method), {}).setdefault(seed, row)
    return [MethodResult(tuple(by_seed.values()), tuple(by_seed)) for by_seed in grouped.values()]


def rows(measurements: list[Measurement]) -> list[Row]:
    """Group measurements by run and method, dense rows first.

    Runs of one dense model that use the same windows share a dense row; a run with other windows has its own.
    """
    dense_runs = _assign_dense_runs([item for item in measurements if item.method == DENSE])
    grouped: dict[tuple[str, str], list[Measurement]] = {}
    for item in measurements:
        run = dense_runs[item.run] if item.method == DENSE else item.run
        grouped.setdefault((run, item.method), []).append(item)
    table = []
    for (run, method), items in grouped.items():
        cells: dict[str, Measurement] = {}
        for item in items:
            cells.setdefault(item.text, item)
        table.append(Row(run, method, items[0].retention, items[0].parameters, cells))
    # the sort is stable, so that the order of runs and methods is preserved
    return sorted(table, key=lambda row: row.method != DENSE)


def _assign_dense_runs(dense: list[Measurement]) -> dict[str, str]:
    """Return for each run the run whose dense row includes its dense measurements: itself, or an earlier run."""
    windows_by_run: dict[tuple[str, str], dict[str, str]] = {}
    for item in dense:
        windows_by_run.setdefault((item.model, item.run), {})[item.text] = item.window_label
    # the dense rows of each model: run of the row, and its windows by text
    rows_by_model: dict[str, list[tuple[str, dict[str, str]]]] = {}
    dense_runs: dict[str, str] = {}
    for (model, run), windows in windows_by_run.items():
        rows_of_model = rows_by_model.setdefault(model, [])
        compatible_rows = (
            row for row in rows_of_model if all(row[1].get(text, label) == label for text, label in windows.items())
        )
        dense_row = next(compatible_rows, None)
        if dense_row is None:
            dense_row = (run, {})
            rows_of_model.append(dense_row)
        dense_row[1].update(windows)
        dense_runs[run] = dense_row[0]
    return dense_runs


def unavailable(run: str, reasons: dict[str, str]) -> list[Row]:
    """Return rows for the methods that a run skipped, with their reasons."""
    return [Row(run, method, float("nan"), 0, {}, reason) for method, reason in reasons.items()]


def texts(table: Iterable[Row]) -> list[str]:
    """Return all measured texts in order of first appearance."""
    return list(dict.fromkeys(text for row in table for text in row.cells))


def marks(table: Iterable[Row]) -> Marks:
    """Return the marks of perplexities with another protocol than most of their text."""
    rows_ = list(table)
    return Marks({text: [row.cells[text].stamp for row in rows_ if text in row.cells] for text in texts(rows_)})


def change(line: MethodResult, pinned: MethodResult, text: str) -> Difference | str:
    """Return the loss of a line minus that of the pinned line on a text, or the reason why they are not comparable."""
    return difference_over_seeds(line.by_seed(text), pinned.by_seed(text))


def loss_difference(first: MethodResult, second: MethodResult, text: str) -> Difference:
    """Return the loss of the first line minus that of the second on a text.

    If their measurements cannot be paired, the errors are added in quadrature as if independent.
    """
    paired = change(first, second, text)
    return paired if isinstance(paired, Difference) else difference(first.cell(text), second.cell(text))


def incomparable_methods(table: list[MethodResult], pinned: MethodResult) -> dict[tuple[str, str], list[str]]:
    """Return the methods that are not comparable with the pinned line, by text and reason."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for text in texts(row for line in table for row in line.rows):
        for line in table:
            gap = change(line, pinned, text) if line.by_seed(text) and line is not pinned else None
            if isinstance(gap, str):
                reasons.setdefault((text, gap), []).append(line.method)
    return reasons


def long_table(table: list[Row], baseline: tuple[str, str] | None, labels: Mapping[str, str]) -> pd.DataFrame:
    """Return a table with one row per measurement and its change relative to the row `baseline`.

    `baseline` is a run and method, or None for no changes. `labels` are the display names of the methods.
    """
    pinned = next((row for row in table if row.name == baseline), None)
    lines = []
    for row in table:
        shared_cells = {
            "run": row.run,
            "method": labels.get(row.method, row.method),
            "retention": row.retention,
            "parameters": row.parameters or None,
        }
        for text, cell in row.cells.items():
            against = pinned.cells.get(text) if pinned else None
            lines.append(shared_cells | _build_numbers(cell, against) | {"left out because": ""})
        if row.reason:
            lines.append(shared_cells | {"left out because": row.reason})
    return pd.DataFrame(lines)


def _build_numbers(cell: Measurement, against: Measurement | None) -> dict[str, Any]:
    """Return the numbers of a row of `long_table`; changes are relative to `against`, if it has the same windows."""
    comparable = against is not None and against.window_label == cell.window_label
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


@dataclass(frozen=True, slots=True)
class Cost:
    """Perplexity of one method on one text, relative to the dense model."""

    method: str
    perplexity: float
    ratio: float
    """perplexity divided by that of the dense model; infinite on overflow"""
    low: float
    """lower end of the 95% interval of `ratio`, computed on the scale of the mean loss"""
    high: float
    """upper end of the 95% interval of `ratio`"""
    paired: bool
    """whether both use the same windows"""
    error: float = 0.0
    """standard error of the difference of the mean losses, nats per token; 0 if unknown"""


def costs(lines: list[MethodResult], text: str) -> list[Cost]:
    """Return the cost of each pruned model on a text, in ascending order of perplexity.

    The result is empty if `lines` does not include the dense model.
    """
    dense = [line for line in lines if line.method == DENSE]
    pruned = (_cost(line, dense[0], text) for line in lines if line.method != DENSE)
    return sorted(pruned, key=lambda cost: cost.perplexity) if dense else []


def _cost(line: MethodResult, dense: MethodResult, text: str) -> Cost:
    """Return the cost of a pruned model; ratio and interval are infinite if its perplexity is not finite."""
    perplexity = line.perplexity(text)
    if not np.isfinite(perplexity):
        return Cost(line.method, perplexity, float("inf"), float("inf"), float("inf"), False)
    gap = loss_difference(line, dense, text)
    # there is no interval for one window
    half = gap.nats_margin if np.isfinite(gap.nats_margin) else 0.0
    error = gap.nats_error if np.isfinite(gap.nats_error) else 0.0
    ratio, low, high = (float(np.exp(gap.nats + offset)) for offset in (0.0, -half, half))
    return Cost(line.method, perplexity, ratio, low, high, gap.paired, error)


def cost_table(table: list[Cost], labels: Mapping[str, str]) -> pd.DataFrame:
    """Return the costs as a table with the display names of the methods."""
    return pd.DataFrame(
        {
            "method": [labels.get(cost.method, cost.method) for cost in table],
            "perplexity": [cost.perplexity for cost in table],
            "change against dense": [cost.ratio - 1 for cost in table],
            "two standard errors below": [cost.ratio * np.exp(-2 * cost.error) - 1 for cost in table],
            "two standard errors above": [cost.ratio * np.exp(2 * cost.error) - 1 for cost in table],
            "95% interval from": [cost.low - 1 for cost in table],
            "95% interval to": [cost.high - 1 for cost in table],
            "paired": [cost.paired for cost in table],
        }
    )


_NAMES = ("name", "group", "text_names")
"""display names, which do not affect results"""
_IGNORED_IN_GROUPS = (*_NAMES, "device", "methods", "seed")
"""fields in which the runs of a group of seeds may differ; the list of methods does not change a method's result"""


_LAST_FIELDS = ("device", "offload", "evaluation.task_folder", "evaluation.batch", "calibration.batch")
"""fields that distinguish runs only if no other field does"""
MOST_LABELLED = 3
"""maximum number of settings in the label of a run"""


def distinguishing_settings(studies: Mapping[str, Study]) -> dict[str, dict[str, str]]:
    """Return for each study the formatted settings, by dotted name, that distinguish it from the others.

    Settings are selected in the order of `differing` if they split the studies further, at most MOST_LABELLED of them.
    """
    settings_of = {name: flatten_settings(study) for name, study in studies.items()}
    selected, groups = list[str](), 1
    for field in differing(studies):
        split = len({tuple(settings[key] for key in (*selected, field)) for settings in settings_of.values()})
        if split > groups and len(selected) < MOST_LABELLED:
            selected, groups = [*selected, field], split
    return {name: {field: settings[field] for field in selected} for name, settings in settings_of.items()}


def differing(studies: Mapping[str, Study]) -> list[str]:
    """Return the dotted names of the settings in which studies differ, those with the most different values first.

    Settings of the machine and of batches (_LAST_FIELDS) are last.
    """
    all_settings = [flatten_settings(study) for study in studies.values()]
    fields = [field for field in next(iter(all_settings), {}) if field not in _NAMES]
    values = {field: len({settings[field] for settings in all_settings}) for field in fields}
    several = (field for field in fields if values[field] > 1)
    return sorted(several, key=lambda field: (field in _LAST_FIELDS, -values[field]))


@lru_cache(maxsize=2048)
def flatten_settings(study: Study) -> dict[str, str]:
    """Return all settings of a study as formatted text by dotted name."""
    fields: dict[str, str] = {}
    for name, value in study.to_dict().items():
        inner = {f"{name}.{field}": item for field, item in value.items()} if isinstance(value, dict) else {}
        fields |= {key: _format_value(item) for key, item in (inner or {name: value}).items()}
    return fields


def differences(studies: Mapping[str, Study]) -> pd.DataFrame:
    """Return a table of the settings in which studies differ, with one column per study and their documentation."""
    settings_of = {name: flatten_settings(study) for name, study in studies.items()}
    lines = []
    fields = [field for field in next(iter(settings_of.values()), {}) if field not in _NAMES]
    for field in fields:
        values = {name: settings[field] for name, settings in settings_of.items()}
        if len(set(values.values())) > 1:
            lines.append({"setting": field, **values, "meaning": documentation()[field]})
    return pd.DataFrame(lines)


def seed_groups(studies: Mapping[str, Study]) -> dict[str, tuple[str, int]]:
    """Return for each run its seed and a group key, which is equal for runs that differ only in their seed.

    The group key is first.
    """
    groups = {}
    for run, study in studies.items():
        settings = {name: value for name, value in study.to_dict().items() if name not in _IGNORED_IN_GROUPS}
        groups[run] = json.dumps(settings, sort_keys=True), study.seed
    return groups


def has_several_seeds(groups: Mapping[str, tuple[str, int]]) -> bool:
    """Return True if a group has more than one seed."""
    # there are then more pairs of group and seed than groups
    return len({group for group, _ in groups.values()}) < len(set(groups.values()))


def _format_value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return "none" if value in ("", None) else str(value)
