"""Answers: what does a reproduced table look like, line by line for machines and short for people?

Measured rows and the paper's own figures are two tables, never one: models, texts and sizes differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

import numpy as np
import pandas as pd

from gprune.analysis import accuracy
from gprune.analysis import tables as derived
from gprune.analysis.studies import NOT_RUN, StudyRow
from gprune.evaluation.protocol import Marks, Stamp
from gprune.experiments.reproduction import figures, means, paper_values, protocols, throughput
from gprune.experiments.reproduction.cells import cell, count, digits, heading, number, with_error
from gprune.experiments.reproduction.grid import TIMED, Row, Series, label, shared
from gprune.experiments.reproduction.lookup import NAN, Answer, Finished, Value
from gprune.experiments.reproduction.tables import PaperTable
from gprune.records import Accuracy
from gprune.study import Study

SUMMARY = "mean ± s.d."
REASON = "not filled because"
_SETTINGS = (
    *("model", "primary", "auxiliary", "substitute", "metric", "seed"),
    *("calibration.samples", "calibration.length", "modularization.kind"),
    *(
        "reliability.selection",
        "reliability.source",
        "reliability.drift_quantile",
        "reliability.score_quantile",
    ),
    *("sparsity.epochs", "sparsity.batch", "sparsity.supervision", "sparsity.alignment", "evaluation.preset"),
)


@dataclass(frozen=True, slots=True)
class Assembled:
    """One table with what is known of its rows."""

    table: PaperTable
    answers: tuple[Answer, ...]
    """one a row, in the table's order"""
    long: pd.DataFrame
    """one line a number, with settings, run and reason"""
    display: pd.DataFrame
    """as people read it: text cells only"""
    published: pd.DataFrame
    """the paper's own figures of the same table; empty where it gives none"""
    published_title: str
    """what they belong to"""
    notes: tuple[str, ...]
    """what a reader must know"""
    rows: dict[str, tuple[StudyRow, ...]] = field(default_factory=dict)
    """the rows with their numbers, by accuracy rule"""
    attachments: dict[str, pd.DataFrame] = field(default_factory=dict)
    """further tables, by the end of their file's name"""
    fixed: Assembled | None = None
    """the main table once more with single tasks under the rule `fixed`, where it has accuracies"""

    @property
    def filled(self) -> int:
        """Rows that have their numbers."""
        return sum(answer.filled for answer in self.answers)


@dataclass(frozen=True, slots=True)
class _Known:
    """The rows of a table, and the tasks that all of them are compared on."""

    table: PaperTable
    answers: tuple[Answer, ...]
    names: tuple[str, ...]
    marks: Marks
    """of figures that were measured by another protocol than the usual one of their column"""

    def frames(self) -> dict[str, pd.DataFrame]:
        """The rows as gprune.analysis.tables reads them, under each rule."""
        return {rule: wide(self.answers, rule, self.names) for rule in accuracy.RULES}


def assemble(
    table: PaperTable, series: Series, finished: Finished, failures: Mapping[Study, str] | None = None
) -> Assembled:
    """Puts a table together from the runs that are there."""
    answers = tuple(_answered(row, finished, failures or {}) for row in table.rows(series))
    known = _Known(table, answers, means.common(answers), Marks(protocols.columns(answers)))
    first, other = accuracy.RULES
    shown, title = paper_values.figures(table.name, table.derived, series, first)
    made = Assembled(
        table=table,
        answers=answers,
        long=pd.DataFrame([line for i, answer in enumerate(answers) for line in _lines(table, i, answer)]),
        display=_derived(known) if table.derived else _display(known, first),
        published=shown,
        published_title=title,
        notes=_notes(known, series),
        rows={rule: tuple(_row(known, answer, rule) for answer in answers) for rule in accuracy.RULES},
        attachments=_attachments(known),
    )
    if table.name != paper_values.MAIN or not known.names:
        return made
    shown, title = paper_values.figures(table.name, table.derived, series, other)
    again = replace(made, display=_display(known, other), published=shown, attachments={})
    own, fixed = (
        replace(part, notes=(*made.notes, f"single tasks under the rule {rule}"))
        for part, rule in ((made, first), (again, other))
    )
    return replace(own, fixed=fixed)


def _answered(row: Row, finished: Finished, failures: Mapping[Study, str]) -> Answer:
    found = finished.answer(row)
    if found is not None:
        return found
    return Answer(row, reason=failures.get(shared(row.study)) or finished.failure(row) or NOT_RUN)


def wide(answers: tuple[Answer, ...], rule: str, names: tuple[str, ...]) -> pd.DataFrame:
    """One line a row, as the functions of gprune.analysis.tables read it; rows without numbers are NaN.

    `rule` of accuracy is max or fixed; rows are compared on the tasks `names`. Has method, retention, seed,
    then `ppl:<text>`, `accuracy` and `accuracy:<task>` in points, and what a figure measures under its own
    name.
    """
    lines = []
    for answer in answers:
        study = answer.row.study
        target = 1.0 if answer.row.method == "dense" else study.retention
        line: dict[str, Any] = {"method": answer.row.method_id, "retention": target, "seed": study.seed}
        lines.append(line | _numbers(answer) | means.columns(answer, names, rule))
    return pd.DataFrame(lines)


def _row(known: _Known, answer: Answer, rule: str) -> StudyRow:
    """A row as the pages compare it, with what its table is about."""
    row, own = answer.row, figures.SHOWN.get(known.table.name)
    values = _numbers(answer) | means.columns(answer, known.names, rule)
    errors = {_column(value): value.error for value in answer.values}
    errors |= means.columns(answer, known.names, rule, error=True)
    return StudyRow(
        labels={name: cell(value, name) for name, value in row.labels.items()},
        method=row.method_id,
        retention=1.0 if row.method == "dense" else row.study.retention,
        seed=row.study.seed,
        run=answer.run,
        values={name: value for name, value in _known_numbers(values) if not own or name in own},
        errors=dict(_known_numbers(errors)),
        kept=answer.retention,
        reason=answer.reason,
        control=row.extra,
        marks=protocols.marked(known.marks, answer, values, known.names),
    )


def _known_numbers(found: dict[str, float]) -> list[tuple[str, float]]:
    return [(name, float(value)) for name, value in found.items() if not np.isnan(value)]


def _numbers(answer: Answer) -> dict[str, float]:
    """The numbers of a row but accuracies, by their column."""
    return {_column(value): value.value for value in answer.values}


def _column(value: Value) -> str:
    return f"ppl:{value.subject}" if value.measure == "perplexity" else value.measure


def _lines(table: PaperTable, index: int, answer: Answer) -> list[dict[str, Any]]:
    """The long form of a row: one line a number, or one with the reason."""
    row = answer.row
    start = {"table": table.name, "row": index + 1, **row.labels, "in paper": not row.extra}
    start |= {"method id": row.method_id, "target": 1.0 if row.method == "dense" else row.study.retention}
    end = {
        "retained": answer.retention,
        "parameters": answer.parameters or None,
        "reason": answer.reason,
        "run": answer.run,
        "precision": answer.precision,
        **{name: attrgetter(name)(row.study) for name in _SETTINGS},
    }
    values = (*answer.values, *(value for found, stamp in answer.tasks for value in _both(found, stamp)))
    return [start | _number(value) | end for value in values or (Value("", "", NAN),)]


def _both(found: Accuracy, stamp: Stamp | None) -> list[Value]:
    """Both accuracies of a task; the normalised one where the task has it."""
    known: dict[str, Any] = {
        "samples": found.samples,
        "chance": found.chance,
        "version": found.version,
        "stamp": stamp,
    }
    pairs = {"acc": (found.acc, found.acc_error), "acc_norm": (found.acc_norm, found.acc_norm_error)}
    return [
        Value(name, found.task, value, error, **known)
        for name, (value, error) in pairs.items()
        if name == "acc" or not np.isnan(value)
    ]


def _number(value: Value) -> dict[str, Any]:
    return {
        "measure": value.measure,
        "subject": value.subject,
        "value": value.value,
        "standard error": value.error,
        "windows": value.windows or None,
        "window tokens": value.length or None,
        "samples": value.samples or None,
        "chance": value.chance,
        "version": value.version,
        "protocol": value.stamp.line if value.stamp else "",
    }


def _display(known: _Known, rule: str) -> pd.DataFrame:
    """One line a row; single tasks in the main table only, under a rule, mean accuracies under both."""
    name, each = known.table.name, rule if known.table.name == paper_values.MAIN else ""
    numbers = [_numbers(answer) | means.shown(answer, known.names, each) for answer in known.answers]
    columns = [column for column in dict.fromkeys(c for line in numbers for c in line) if _shown(name, column)]
    lines = []
    for answer, line in zip(known.answers, numbers, strict=True):
        errors = {_column(v): v.error for v in answer.values if v.measure != "perplexity"}
        cells = _labels(answer)
        for column in columns:
            text = number(line.get(column, NAN), column)
            text += protocols.mark(known.marks, answer, column, known.names) if text else ""
            cells[heading(column)] = with_error(text, errors.get(column, NAN), digits(column))
        lines.append(cells | {REASON: answer.reason})
    lines += _summaries(known, columns) if name == "seeds" else []
    made = pd.DataFrame(lines).fillna("")
    return made if (made[REASON] != "").any() else made.drop(columns=REASON)


def _shown(table: str, column: str) -> bool:
    of_figure = figures.SHOWN.get(table)
    return column in of_figure if of_figure is not None else throughput.shown(table, column)


def _labels(answer: Answer) -> dict[str, str]:
    row = answer.row
    cells = {name: cell(value, name) for name, value in row.labels.items()}
    if row.reads in ("perplexity", *TIMED):
        cells["kept"] = "" if np.isnan(answer.retention) else f"{answer.retention:.1%}"
    if row.reads in TIMED:
        cells["parameters"] = count(answer.parameters)
    return cells


def _summaries(known: _Known, columns: list[str]) -> list[dict[str, str]]:
    """Mean and spread over the seeds that are there, one line a method; only what all of these seeds have."""
    spread = means.under_both(derived.over_seeds, known.frames())
    lines = []
    for identifier, found in spread.groupby("method", sort=False):
        rows = [answer for answer in known.answers if answer.row.method_id == identifier]
        there = int(found["seeds"].max())
        which = SUMMARY if there == len(rows) else f"{SUMMARY} of {there} of {len(rows)} seeds"
        line = {"method": label(rows[0].row), "seed": which}
        for item in found[found["seeds"] == there].itertuples():
            metric = str(item.metric)
            if metric in columns:
                line[heading(metric)] = with_error(number(item.mean, metric), float(item.std), 2)
        lines.append(line)
    return lines


def _derived(known: _Known) -> pd.DataFrame:
    """A derived table, every metric below the other; single tasks are in its values only."""
    made = derived_values(known.table.name, known.frames())
    if "metric" not in made.columns:
        return paper_values.spelled(made)
    return paper_values.spelled(means.without_singles(made))


def derived_values(name: str, frames: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """The numbers of a derived table, every metric below the other.

    `frames` are the rows that it is computed from, as gprune.analysis.tables reads them, under each rule.
    """
    if name == paper_values.GAP:
        return means.under_both(gaps, frames)
    made = means.under_both(derived.gain_by_retention, frames)
    return made.sort_values("retention", ascending=False, kind="stable", ignore_index=True)


def gaps(frame: pd.DataFrame) -> pd.DataFrame:
    """The metric gap of every metric of a frame."""
    parts = [
        derived.metric_gap(frame, metric).assign(metric=metric)
        for metric in derived.metrics(frame)
        if not metric.startswith("accuracy:")
    ]
    made = pd.concat(parts, ignore_index=True) if parts else derived.metric_gap(frame)
    return made[["metric", *(name for name in made.columns if name != "metric")]] if parts else made


def _notes(known: _Known, series: Series) -> tuple[str, ...]:
    table, answers = known.table, known.answers
    notes = [note for note in (table.note, table.left_out(series)) if note]
    extra = sum(answer.row.extra for answer in answers)
    notes += [f"rows that the paper does not have, as controls: {extra}"] * (0 < extra < len(answers))
    notes += means.notes(answers, known.names)
    kinds = {answer.precision for answer in answers if answer.filled} - {""}
    if len(kinds) > 1:
        notes.append(f"rows were computed in different number types ({', '.join(sorted(kinds))})")
    notes += protocols.notes(known.marks)
    notes += [
        f"speed: {setting}"
        for setting in sorted({throughput.describe(answer.clock) for answer in answers if answer.clock})
    ]
    return tuple(notes)


def _attachments(known: _Known) -> dict[str, pd.DataFrame]:
    table, answers = known.table, known.answers
    if table.derived:
        return {"values": derived_values(table.name, known.frames())}
    made = {"accuracy": means.table(answers, known.names)} if known.names else {}
    if table.name == "seeds":
        made["spread"] = means.under_both(derived.over_seeds, known.frames())
    if table.name == "figure-1a" and answers[0].drift is not None:
        made["histogram"] = figures.histogram(answers[0].drift)
    clocks = {answer.clock: answer.run for answer in answers if answer.clock is not None}
    if clocks:
        parts = [throughput.every_row(record, run) for record, run in clocks.items()]
        made["runs"] = pd.concat(parts, ignore_index=True)
    return made
