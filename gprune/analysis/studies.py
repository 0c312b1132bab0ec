"""Rows of a table that compares studies: means over seeds, ranks, changes and checks of equal budgets.

Section 4 (ablations) and the appendix: rows differ in one setting, and their numbers come from runs. Published numbers
are not included.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from gprune.analysis.decisions import BUDGET_TOLERANCE
from gprune.analysis.formatting import percent
from gprune.analysis.paired_test import WORSE, Difference, half_interval, over_windows
from gprune.analysis.tables import ACCURACY, PERPLEXITY
from gprune.analysis.verdict import budget_gap, judge, stars

SEED, YES = "seed", "yes"
NOT_RUN = "not run yet"
"""reason of a pending row; its block has no winner"""
BLOCKS = ("retention", "component", "design dimension")
"""labels that define blocks of comparable rows"""


@dataclass(frozen=True, slots=True)
class StudyRow:
    """One row of a table: one setting with one seed."""

    labels: dict[str, str]
    """labels of the row by column"""
    method: str
    """id: dense, flap, gprune:flap"""
    retention: float
    """target retention, 1 for the dense model"""
    seed: int
    run: str = ""
    """name of the run with the numbers; empty if there is none"""
    values: dict[str, float] = field(default_factory=dict)
    """`ppl:<text>`, `accuracy` and `accuracy:<task>` in points, or the measures of a figure"""
    errors: dict[str, float] = field(default_factory=dict)
    """standard errors of `values`, if known; for measures of figures, standard deviations over layers"""
    kept: float = float("nan")
    """actual retention, or NaN if unknown"""
    reason: str = ""
    """reason for missing numbers; empty if there are numbers"""
    control: bool = False
    """True for a control that is not in the paper"""
    marks: dict[str, str] = field(default_factory=dict)
    """marks of numbers with another protocol than the others of their column"""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a table with its rows for all seeds."""

    labels: dict[str, str]
    """labels without the seed"""
    method: str
    retention: float
    rows: tuple[StudyRow, ...]
    """one row per seed, including rows without numbers"""

    @property
    def name(self) -> str:
        """Return the labels in one line, or the method without labels.

        The label "yes" is replaced by the name of its column.
        """
        labels = (name if value == YES else value for name, value in self.labels.items())
        return " · ".join(label for label in labels if label) or self.method

    @property
    def block(self) -> str:
        """Return the key of the block of comparable rows that it belongs to."""
        return " · ".join(self.labels.get(name, "") for name in BLOCKS)

    @property
    def filled(self) -> tuple[StudyRow, ...]:
        """Return the rows that have numbers."""
        return tuple(row for row in self.rows if row.values)

    @property
    def kept(self) -> float:
        """Return the mean actual retention over seeds, or NaN if unknown."""
        retentions = [row.kept for row in self.filled if np.isfinite(row.kept)]
        return float(np.mean(retentions)) if retentions else float("nan")

    @property
    def ranked(self) -> bool:
        """Return True if it is a pruned model, or a control, with numbers."""
        return self.method != "dense" and bool(self.filled)

    @property
    def control(self) -> bool:
        """Return True for a control that is not in the paper."""
        return self.rows[0].control

    @property
    def reason(self) -> str:
        """Return the reasons for missing numbers, by seed if there are several; empty if no number is missing."""
        rows_without_numbers = [row for row in self.rows if row.reason]
        if len(self.rows) == 1:
            return rows_without_numbers[0].reason if rows_without_numbers else ""
        return "; ".join(f"seed {row.seed}: {row.reason}" for row in rows_without_numbers)

    def values(self, column: str) -> list[float]:
        """Return the numbers of a column, one per seed."""
        return [row.values[column] for row in self.filled if column in row.values]

    def mark(self, column: str) -> str:
        """Return the marks of numbers in a column with another protocol; empty if there are none."""
        return "".join(dict.fromkeys(row.marks.get(column, "") for row in self.filled))

    def mean(self, column: str) -> float:
        """Return the mean over seeds, or NaN if there is no number."""
        values = self.values(column)
        return float(np.mean(values)) if values else float("nan")

    def spread(self, column: str) -> float:
        """Return the standard deviation over seeds (ddof 0).

        For one seed, return half the confidence interval of the row, or for a measure of a figure its standard
        deviation over layers.
        """
        values = self.values(column)
        if len(values) == 1:
            row = next(row for row in self.filled if column in row.values)
            error = row.errors.get(column, math.nan)
            # infinite degrees of freedom, because a row does not record its number of windows
            return half_interval(error, math.inf) if is_ranked(column) else error
        return float(np.std(values)) if values else float("nan")


def settings(rows: Iterable[StudyRow], each_seed: bool = False) -> list[Setting]:
    """Group rows that differ only in the seed, in order of first appearance; `each_seed` keeps them separate."""
    grouped: dict[tuple[tuple[tuple[str, str], ...], str, float], list[StudyRow]] = {}
    for row in rows:
        labels = {name: value for name, value in row.labels.items() if each_seed or name != SEED}
        grouped.setdefault((tuple(labels.items()), row.method, row.retention), []).append(row)
    return [
        Setting(dict(labels), method, retention, tuple(group)) for (labels, method, retention), group in grouped.items()
    ]


def keys(table: Iterable[Setting]) -> list[str]:
    """Return an id for each setting of a table, for use in addresses: `method@retention`.

    Repeated ids end in a number: `flap@0.5/2`.
    """
    ids = list[str]()
    for setting in table:
        name = f"{setting.method}@{setting.retention:g}"
        repeats = sum(key.split("/")[0] == name for key in ids)
        ids.append(f"{name}/{repeats + 1}" if repeats else name)
    return ids


def columns(table: Iterable[Setting]) -> list[str]:
    """Return all measured columns in order of first appearance."""
    return list(dict.fromkeys(name for setting in table for row in setting.rows for name in row.values))


def is_perplexity(column: str) -> bool:
    """Return True for a column of perplexities: lower is better, and changes are ratios."""
    return column.startswith(PERPLEXITY)


def is_ranked(column: str) -> bool:
    """Return True for perplexities and accuracies; measures of figures are not ranked."""
    return is_perplexity(column) or column.split(":")[0] == ACCURACY


def unfair_blocks(table: list[Setting]) -> dict[str, str]:
    """Return the reason of each block without a winner: pending rows or different budgets."""
    reasons = {}
    for block in dict.fromkeys(setting.block for setting in table):
        settings = [setting for setting in table if setting.block == block]
        location = f" at {block.strip(' ·')}" if block.strip(" ·") else ""
        pending = sum(row.reason == NOT_RUN for setting in settings for row in setting.rows)
        if gap := budget_gap(setting.kept for setting in settings if setting.ranked):
            limit = f"more than {percent(BUDGET_TOLERANCE, 1)}"
            reasons[block] = f"the retentions{location} differ by {percent(gap, 1)}, {limit}"
        elif pending:
            reasons[block] = f"{pending} of the rows{location} {'is' if pending == 1 else 'are'} not run yet"
    return reasons


def rankings(table: list[Setting], column: str) -> list[dict[int, int]]:
    """Rank the pruned settings of every fair block on a column.

    Returns one mapping per block: the rank by the index of the setting in `table`.
    """
    unfair, sign = unfair_blocks(table), 1.0 if is_perplexity(column) else -1.0
    blocks: dict[str, dict[int, float]] = {}
    for index, setting in enumerate(table):
        if is_ranked(column) and setting.ranked and setting.values(column) and setting.block not in unfair:
            blocks.setdefault(setting.block, {})[index] = sign * setting.mean(column)
    return [judge(means, lambda a, b: _difference(table[a], table[b], column)) for means in blocks.values()]


def _difference(first: Setting, second: Setting, column: str) -> Difference:
    """Return the loss of the first minus that of the second, paired over common seeds.

    The loss is the logarithm of a perplexity, or an accuracy with a negative sign. With at most one common seed, errors
    are added in quadrature as if independent, because rows do not record the losses of windows.
    """
    sides = [{row.seed: row for row in setting.filled if column in row.values} for setting in (first, second)]
    shared = [seed for seed in sides[0] if seed in sides[1]]
    loss_of, is_log = (np.log, True) if is_perplexity(column) else (np.negative, False)
    losses = [np.array([loss_of(side[seed].values[column]) for seed in shared or side]) for side in sides]
    if len(shared) > 1:
        return over_windows(*losses)
    rows = [side[seed] for side in sides for seed in (shared or list(side))[:1]]
    # the error of a logarithm is the relative error
    errors = [row.errors.get(column, math.inf) / (row.values[column] if is_log else 1.0) for row in rows]
    return Difference(float(losses[0].mean() - losses[1].mean()), math.hypot(*errors), False)


def mark_settings(table: list[Setting], column: str) -> dict[int, str]:
    """Return the stars of the best and second-best settings of every block by index in the table."""
    return {index: sign for ranks in rankings(table, column) for index, sign in stars(ranks).items()}


def good_controls(table: list[Setting]) -> dict[str, list[str]]:
    """Return for each control the measures on which it is not significantly worse than GPrune's best row of its block.

    Controls without such a measure are left out.
    """
    controls: dict[str, list[str]] = {}
    for column in filter(is_ranked, columns(table)):
        for ranks in rankings(table, column):
            gprune_rows = [i for i in ranks if table[i].method.startswith("gprune:") and not table[i].control]
            for index in ranks if gprune_rows else ():
                if table[index].control and _difference(table[index], table[gprune_rows[0]], column).verdict != WORSE:
                    controls.setdefault(table[index].name, []).append(column)
    return controls


def relative_change(setting: Setting, baseline: Setting, column: str) -> float:
    """Return the change relative to the setting `baseline`: the ratio minus 1 of perplexities, else the difference."""
    value, reference = setting.mean(column), baseline.mean(column)
    return value / reference - 1.0 if is_perplexity(column) else value - reference


def frame(rows: Iterable[StudyRow]) -> pd.DataFrame:
    """Return rows as a frame for `gprune.analysis.tables`, without controls and rows without numbers."""
    lines = [
        {"method": row.method, "retention": row.retention, "seed": row.seed} | row.values
        for row in rows
        if row.values and not row.control
    ]
    return pd.DataFrame(lines, columns=None if lines else ["method", "retention", "seed"])


def settings_table(table: list[Setting], baseline: Setting) -> pd.DataFrame:
    """Return a table with one row per setting and measure, with the change relative to the setting `baseline`."""
    lines = []
    for setting in table:
        first_cells: dict[str, object] = {**setting.labels, "method id": setting.method}
        first_cells |= {"target": setting.retention, "kept": setting.kept}
        last_cells = {"runs": " ".join(dict.fromkeys(row.run for row in setting.rows if row.run))}
        last_cells["reason"] = setting.reason
        for column in columns([setting]) or [""]:
            count = len(setting.values(column))
            numbers: dict[str, object] = {"measure": column, "mean": setting.mean(column), "seeds": count}
            over = "seeds" if count > 1 else "windows, documents or layers"
            numbers |= {"spread": setting.spread(column), "spread over": over if count else ""}
            numbers["change against baseline"] = relative_change(setting, baseline, column) if column else float("nan")
            lines.append(first_cells | numbers | last_cells)
    return pd.DataFrame(lines)
