"""Build a reproduced table from the results of its rows, as numbers and as formatted text.

Measured rows and the paper's figures are always separate tables, because models, texts and sizes differ. Accuracies
follow section 4 (rule `max`) and the appendix on robustness to the evaluation protocol (rule `fixed`), both from one
measurement. A mean covers the tasks that all rows with accuracies have measured, so that no row skips a hard task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

import numpy as np
import pandas as pd

from gprune.analysis import accuracy
from gprune.analysis import tables as derived
from gprune.analysis.studies import NOT_RUN, StudyRow, frame, is_ranked
from gprune.evaluation.protocol import Marks, Stamp, lines
from gprune.experiments.reproduction import cells, figures
from gprune.experiments.reproduction.grid import Row, Series, label, shared_study
from gprune.experiments.reproduction.lookup import NAN, Answer, ResultLookup, Value
from gprune.experiments.reproduction.tables import PaperTable
from gprune.records import Accuracy
from gprune.study import Study

Rows = Mapping[str, Sequence[StudyRow]]
"""the rows of a table, by accuracy rule"""
SUMMARY = "mean ± s.d."
REASON = "not filled because"
_MOST_PROTOCOLS = 4
"""number of protocols listed below a table; its CSV has the protocol of every number"""
_SETTING_COLUMNS = (
    *("model", "primary", "auxiliary", "substitute", "metric", "seed"),
    *("calibration.samples", "calibration.length", "modularization.kind"),
    *("reliability.selection", "reliability.source", "reliability.drift_quantile", "reliability.score_quantile"),
    *("sparsity.epochs", "sparsity.batch", "sparsity.supervision", "sparsity.alignment", "evaluation.preset"),
)


@dataclass(frozen=True, slots=True)
class Assembled:
    """One table with the current numbers of its rows."""

    table: PaperTable
    answers: tuple[Answer, ...]
    """one answer per row, in the order of the table"""
    long: pd.DataFrame
    """one line per number, with settings, run and reason; for a derived table, its numbers"""
    display: pd.DataFrame
    """formatted text cells"""
    published: pd.DataFrame
    """the paper's figures of the same table; empty if the paper has none"""
    published_title: str
    """model and protocol of the paper's figures"""
    notes: tuple[str, ...]
    rows: Rows = field(default_factory=dict)
    fixed: Assembled | None = None
    """the main table with single tasks under the rule `fixed`, if it has accuracies"""

    @property
    def filled(self) -> int:
        """Return the number of rows that have numbers."""
        return sum(answer.filled for answer in self.answers)


def assemble(
    table: PaperTable, series: Series, finished: ResultLookup, failures: Mapping[Study, str] | None = None
) -> Assembled:
    """Return a table built from the runs of a cache; `failures` are the reasons why studies of this command failed."""
    answers = tuple(_find_answer(row, finished, failures or {}) for row in table.rows(series))
    tasks = _find_common_tasks(answers)
    columns = dict.fromkeys(column for answer in answers for column in answer.stamps)
    marks = Marks({column: [answer.stamps.get(column) for answer in answers] for column in columns})
    rows = {rule: tuple(_study_row(table, answer, tasks, rule, marks) for answer in answers) for rule in accuracy.RULES}
    notes = _notes(table, answers, tasks, marks)
    if table.is_derived:
        long = derived_values(table.name, _build_frames(rows))
    else:
        long = pd.DataFrame([line for i, answer in enumerate(answers) for line in _long_lines(table, i, answer)])
    has_tasks = table.name == cells.MAIN and bool(tasks)

    def build_form(rule: str) -> Assembled:
        published = cells.published_figures(table.name, table.is_derived, series, rule)
        further = (f"single tasks under the rule {rule}",) if has_tasks else ()
        display = _format_display(table, answers, rows, rule)
        return Assembled(table, answers, long, display, *published, (*notes, *further), rows)

    first, second = map(build_form, accuracy.RULES)
    return replace(first, fixed=second) if has_tasks else first


def _find_answer(row: Row, finished: ResultLookup, failures: Mapping[Study, str]) -> Answer:
    answer = finished.answer(row)
    if answer is not None:
        return answer
    return Answer(row, reason=failures.get(shared_study(row.study)) or finished.failure(row) or NOT_RUN)


# accuracies


def _find_common_tasks(answers: Iterable[Answer]) -> tuple[str, ...]:
    """Return the tasks measured in every row with accuracies, in the order of the first such row."""
    tasks_by_row = [[item.task for item, _ in answer.accuracies] for answer in answers if answer.accuracies]
    first_tasks, *_ = tasks_by_row or [[]]
    return tuple(task for task in first_tasks if all(task in tasks for tasks in tasks_by_row))


def _select_accuracies(answer: Answer, tasks: Sequence[str]) -> list[Accuracy]:
    return [item for item, _ in answer.accuracies if item.task in tasks]


def _accuracies(answer: Answer, tasks: Sequence[str], rule: str, error: bool = False) -> dict[str, float]:
    """Return the mean accuracy and that of every task in points, or their standard errors if `error` is True."""
    compared = _select_accuracies(answer, tasks)
    if not compared:
        return {}
    mean = accuracy.mean_accuracy(compared, rule)
    of_task = accuracy.reported_error if error else accuracy.reported_accuracy
    points = {derived.ACCURACY: 100.0 * (mean.error if error else mean.value)}
    return points | {f"{derived.ACCURACY}:{item.task}": 100.0 * of_task(item, rule) for item in compared}


def _study_row(table: PaperTable, answer: Answer, tasks: Sequence[str], rule: str, marks: Marks) -> StudyRow:
    """Return the row of an answer under one accuracy rule; mean accuracies are over `tasks`."""
    row, stamps, shown = answer.row, answer.stamps, figures.SHOWN.get(table.name)
    values = {value.column: value.value for value in answer.values} | _accuracies(answer, tasks, rule)
    errors = {value.column: value.error for value in answer.values} | _accuracies(answer, tasks, rule, error=True)

    def mark(column: str) -> str:
        """Return the mark of a number with an unusual protocol; for a mean accuracy, the marks of its tasks."""
        names = [f"{derived.ACCURACY}:{task}" for task in tasks] if column == derived.ACCURACY else [column]
        return "".join(dict.fromkeys(marks.of(name, stamps.get(name)) for name in names))

    return StudyRow(
        labels={name: cells.format_cell(value, name) for name, value in row.labels.items()},
        method=row.method_id,
        retention=row.target,
        seed=row.study.seed,
        run=answer.run,
        values={name: value for name, value in _finite(values).items() if not shown or name in shown},
        errors=_finite(errors),
        kept=answer.retention,
        reason=answer.reason,
        control=row.extra,
        marks={column: sign for column in values if (sign := mark(column))},
    )


def _finite(numbers: dict[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in numbers.items() if not np.isnan(value)}


# the table as numbers and as text


def _long_lines(table: PaperTable, index: int, answer: Answer) -> list[dict[str, Any]]:
    """Return one line per number of a row, or one line with the reason if the row has no numbers."""
    row = answer.row
    first_cells = {"table": table.name, "row": index + 1, **row.labels, "in paper": not row.extra}
    first_cells |= {"method id": row.method_id, "target": row.target}
    last_cells = {
        "retained": answer.retention,
        "parameters": answer.parameters or None,
        "reason": answer.reason,
        "run": answer.run,
        "precision": answer.precision,
        **{name: attrgetter(name)(row.study) for name in _SETTING_COLUMNS},
    }
    values = (*answer.values, *(value for item, stamp in answer.accuracies for value in _split_accuracy(item, stamp)))
    return [first_cells | _build_number_cells(value) | last_cells for value in values or (Value("", "", NAN),)]


def _split_accuracy(item: Accuracy, stamp: Stamp) -> list[Value]:
    """Return both accuracies of a task; acc_norm only if the task has it."""
    details: dict[str, Any] = {"samples": item.samples, "chance": item.chance, "version": item.version, "stamp": stamp}
    values = [Value("acc", item.task, item.acc, item.acc_error, **details)]
    if not np.isnan(item.acc_norm):
        values.append(Value("acc_norm", item.task, item.acc_norm, item.acc_norm_error, **details))
    return values


def _build_number_cells(value: Value) -> dict[str, Any]:
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


def _format_display(table: PaperTable, answers: Sequence[Answer], rows: Rows, rule: str) -> pd.DataFrame:
    """Return one line per row; the main table has single tasks under `rule` and mean accuracies under both rules."""
    if table.is_derived:
        values = derived_values(table.name, _build_frames(rows))
        return cells.spell_out(cells.without_single_tasks(values))
    measured = list(dict.fromkeys(name for row in rows[rule] for name in row.values))
    columns = [(name, rule) for name in measured if not name.startswith(derived.ACCURACY)]
    columns += [(derived.ACCURACY, rule) for rule in accuracy.RULES if derived.ACCURACY in measured]
    columns += [(name, rule) for name in measured if cells.is_single(name) and table.name == cells.MAIN]
    table_lines = []
    for index, answer in enumerate(answers):
        line = _format_labels(answer)
        for name, column_rule in columns:
            title = cells.heading(cells.metric_with_rule(name, column_rule) if name == derived.ACCURACY else name)
            line[title] = _format_number_cell(rows[column_rule][index], name)
        table_lines.append(line | {REASON: answer.reason})
    table_lines += _summarize(answers, rows, columns) if table.name == "seeds" else []
    display = pd.DataFrame(table_lines).fillna("")
    return display if (display[REASON] != "").any() else display.drop(columns=REASON)


def _format_labels(answer: Answer) -> dict[str, str]:
    row = answer.row
    labels = {name: cells.format_cell(value, name) for name, value in row.labels.items()}
    if row.reads in ("perplexity", "speed"):
        labels["kept"] = "" if np.isnan(answer.retention) else f"{answer.retention:.1%}"
    if row.reads == "speed":
        labels["parameters"] = cells.format_parameter_count(answer.parameters)
    return labels


def _format_number_cell(row: StudyRow, column: str) -> str:
    if column not in row.values:
        return ""
    text = cells.format_number(row.values[column], column) + row.marks.get(column, "")
    # standard errors of perplexities and accuracies appear only in the CSV
    if is_ranked(column):
        return text
    return cells.format_with_error(text, row.errors.get(column, NAN), cells.decimals(column))


def _summarize(answers: Sequence[Answer], rows: Rows, columns: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    """Return one line per method with mean and standard deviation over seeds.

    Only the metrics that were measured with the most seeds are included.
    """
    summary = cells.under_both_rules(derived.over_seeds, _build_frames(rows))
    names = [cells.metric_with_rule(*column) for column in columns]
    summaries = []
    for method, group in summary.groupby("method", sort=False):
        method_rows = [answer.row for answer in answers if answer.row.method_id == method]
        seeds = int(group["seeds"].max())
        seed_label = SUMMARY if seeds == len(method_rows) else f"{SUMMARY} of {seeds} of {len(method_rows)} seeds"
        line = {"method": label(method_rows[0]), "seed": seed_label}
        for item in group[group["seeds"] == seeds].itertuples():
            metric = str(item.metric)
            if metric in names:
                mean = cells.format_number(item.mean, metric)
                line[cells.heading(metric)] = cells.format_with_error(mean, float(item.std), 2)
        summaries.append(line)
    return summaries


def _build_frames(rows: Rows) -> dict[str, pd.DataFrame]:
    return {rule: frame(study_rows) for rule, study_rows in rows.items()}


def derived_values(name: str, frames: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Return the numbers of a derived table, one block per metric.

    `frames` are its input rows as for gprune.analysis.tables, by accuracy rule.
    """
    if name == cells.GAP:
        return cells.under_both_rules(gaps, frames)
    values = cells.under_both_rules(derived.gain_by_retention, frames)
    return values.sort_values("retention", ascending=False, kind="stable", ignore_index=True)


def gaps(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the metric gap of every metric except single tasks."""
    metrics = [metric for metric in derived.metrics(rows) if not cells.is_single(metric)]
    tables = [derived.metric_gap(rows, metric).assign(metric=metric) for metric in metrics]
    if not tables:
        return derived.metric_gap(rows)
    table = pd.concat(tables, ignore_index=True)
    return table[["metric", *(name for name in table.columns if name != "metric")]]


# notes


def _notes(table: PaperTable, answers: Sequence[Answer], tasks: Sequence[str], marks: Marks) -> tuple[str, ...]:
    """Return the notes of a table, one per line: controls, accuracies, protocols and the setting of the speed."""
    control_count = sum(answer.row.extra for answer in answers)
    has_controls = 0 < control_count < len(answers)
    speed_settings = sorted({f"{speed.setting}; {speed.machine}" for answer in answers if (speed := answer.throughput)})
    notes = [
        table.note,
        f"additional controls that are not in the paper: {control_count}" if has_controls else "",
        *_list_accuracy_notes(answers, tasks),
        *_list_protocols(marks),
        *marks.footnotes,
        *(f"speed: {setting}" for setting in speed_settings),
    ]
    return tuple(filter(None, notes))


def _list_protocols(marks: Marks) -> list[str]:
    of_texts = [stamp for name, stamp in marks.usual.items() if not cells.is_single(name)]
    of_tasks = [stamp for name, stamp in marks.usual.items() if cells.is_single(name)]
    return [line for stamps in (of_texts, of_tasks) for line in lines(stamps)[:_MOST_PROTOCOLS]]


def _list_accuracy_notes(answers: Sequence[Answer], tasks: Sequence[str]) -> list[str]:
    """Return the notes on tasks: those not measured, those in the means, and rows without accuracies."""
    reasons = dict(item for answer in answers for item in answer.missing_tasks)
    notes = [f"not measured: {task}: {reason}" for task, reason in reasons.items()]
    rows = [answer for answer in answers if answer.accuracies]
    if not rows:
        return notes
    all_tasks = dict.fromkeys(item.task for answer in rows for item, _ in answer.accuracies)
    if other_tasks := [task for task in all_tasks if task not in tasks]:
        notes.append(f"not in the means, because not every row has them: {', '.join(other_tasks)}")
    if tasks:
        chance = accuracy.mean_accuracy(_select_accuracies(rows[0], tasks), accuracy.RULES[0]).chance
        guessing = "" if np.isnan(chance) else f"; guessing scores {100.0 * chance:.1f}"
        limits = sorted({item.limit for answer in rows for item in _select_accuracies(answer, tasks)})
        size = ", ".join(f"at most {limit} documents of each" if limit else "all documents" for limit in limits)
        task_count = f"{len(tasks)} task{'s' if len(tasks) > 1 else ''}"
        notes.append(f"accuracy in points, the mean over {task_count} ({', '.join(tasks)}; {size}){guessing}")
        notes.append(
            "max: the higher of acc and acc_norm of each task; fixed: acc_norm where the task has it, else acc"
        )
    filled = sum(answer.filled for answer in answers)
    if len(rows) < filled:
        notes.append(
            f"{filled - len(rows)} of {filled} rows have no accuracy: their studies measure no tasks "
            "(with --tasks all studies measure them)"
        )
    return notes
