"""Answers: what does a reproduced table look like, line by line for machines and short for people?

Measured rows and the paper's own figures are two tables, never one: models, texts and sizes differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from gprune import published
from gprune.analysis import accuracy
from gprune.analysis import published as claims
from gprune.analysis import tables as derived
from gprune.records import Accuracy
from gprune.reproduction import figures
from gprune.reproduction.answers import NAN, Answer, Finished, Value
from gprune.reproduction.scale import paper_model
from gprune.reproduction.series import Row, Series, label, short, task_key
from gprune.reproduction.tables import Table

NOT_RUN = "not run yet"
SUMMARY = "mean ± s.d."
REASON = "not filled because"
_SETTINGS = (
    "model",
    "primary",
    "auxiliary",
    "substitute",
    "metric",
    "seed",
    "calibration.samples",
    "calibration.length",
    "modularization.kind",
    "reliability.selection",
    "reliability.source",
    "reliability.drift_quantile",
    "reliability.score_quantile",
    "sparsity.epochs",
    "sparsity.batch",
    "sparsity.supervision",
    "evaluation.preset",
)


@dataclass(frozen=True, slots=True)
class Assembled:
    """One table with what is known of its rows."""

    table: Table
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
    attachments: dict[str, pd.DataFrame] = field(default_factory=dict)
    """further tables, by the end of their file's name"""

    @property
    def filled(self) -> int:
        """Rows that have their numbers."""
        return sum(answer.filled for answer in self.answers)


def assemble(
    table: Table,
    series: Series,
    finished: Finished,
    failures: Mapping[str, str] | None = None,
    protocol: str = "max",
) -> Assembled:
    """Puts a table together from the runs that are there.

    Args:
        table: which one.
        series: the reproduction it belongs to.
        finished: the runs of the cache.
        failures: why tasks failed just now, by their key.
        protocol: accuracy protocol of the short form, max or fixed.
    """
    answers = tuple(_answered(row, finished, failures or {}) for row in table.rows(series))
    frame = wide(answers, protocol)
    display = _derived(table, frame) if table.derived else _display(table, answers, frame)
    shown, title = _published(table, series, protocol)
    return Assembled(
        table=table,
        answers=answers,
        long=pd.DataFrame([line for i, answer in enumerate(answers) for line in _lines(table, i, answer)]),
        display=display,
        published=shown,
        published_title=title,
        notes=_notes(table, answers, protocol, frame),
        attachments=_attachments(table, answers, finished, frame),
    )


def _answered(row: Row, finished: Finished, failures: Mapping[str, str]) -> Answer:
    found = finished.answer(row)
    if found is not None:
        return found
    return Answer(row, reason=failures.get(task_key(row.study)) or finished.failure(row) or NOT_RUN)


def wide(answers: tuple[Answer, ...], protocol: str) -> pd.DataFrame:
    """One line a row, as the functions of gprune.analysis.tables read it; rows without numbers are NaN.

    Returns:
        method, retention, seed, then `ppl:<text>`, `accuracy` and `accuracy:<task>` in points, and what a
        figure measures under its own name.
    """
    lines = []
    for answer in answers:
        study = answer.row.study
        dense = answer.row.method == "dense"
        line: dict[str, Any] = {
            "method": answer.row.method_id,
            "retention": 1.0 if dense else study.retention,
        }
        lines.append(line | {"seed": study.seed} | _metrics(answer, protocol))
    return pd.DataFrame(lines)


def _metrics(answer: Answer, protocol: str) -> dict[str, float]:
    """The numbers of a row by their column."""
    columns = {
        f"ppl:{value.subject}" if value.measure == "perplexity" else value.measure: value.value
        for value in answer.values
    }
    if answer.accuracies:
        columns["accuracy"] = 100.0 * accuracy.mean_accuracy(answer.accuracies, protocol).value
    for found in answer.accuracies:
        columns[f"accuracy:{found.task}"] = 100.0 * accuracy.reported(found, protocol)
    return columns


def _lines(table: Table, index: int, answer: Answer) -> list[dict[str, Any]]:
    """The long form of a row: one line a number, or one with the reason."""
    row = answer.row
    start = {"table": table.name, "row": index + 1, **row.labels, "in paper": not row.extra}
    start |= {"method id": row.method_id, "target": 1.0 if row.method == "dense" else row.study.retention}
    end = {
        "retained": answer.retained,
        "parameters": answer.parameters or None,
        "reason": answer.reason,
        "run": answer.run,
        "precision": (answer.provenance.get("inputs") or {}).get("precision", ""),
        **{name: _field(row.study, name) for name in _SETTINGS},
    }
    values = (*answer.values, *(value for found in answer.accuracies for value in _both(found)))
    return [start | _number(value) | end for value in values or (Value("", "", NAN),)]


def _both(found: Accuracy) -> list[Value]:
    """Both accuracies of a task; the normalised one where the task has it."""
    raw = Value("acc", found.task, found.acc, found.acc_error)
    normalised = Value("acc_norm", found.task, found.acc_norm, found.acc_norm_error)
    return [raw] if np.isnan(found.acc_norm) else [raw, normalised]


def _number(value: Value) -> dict[str, Any]:
    return {
        "measure": value.measure,
        "subject": value.subject,
        "value": value.value,
        "standard error": value.error,
        "windows": value.windows or None,
        "window tokens": value.length or None,
    }


def _field(study: Any, dotted: str) -> Any:
    for part in dotted.split("."):
        study = getattr(study, part)
    return study


# ---- the short form ----------------------------------------------------------------------------------------


def _display(table: Table, answers: tuple[Answer, ...], frame: pd.DataFrame) -> pd.DataFrame:
    shown = figures.SHOWN.get(table.name)
    measured = [name for name in frame.columns if name not in ("method", "retention", "seed")]
    measured = [name for name in measured if shown is None or name in shown]
    perplexities = any(answer.row.reads == "perplexity" for answer in answers)
    lines = []
    for index, answer in enumerate(answers):
        line = {name: cell(value, name) for name, value in answer.row.labels.items()}
        if perplexities:
            line["kept"] = "" if np.isnan(answer.retained) else f"{answer.retained:.1%}"
        errors = {value.measure: value.error for value in answer.values if value.measure in measured}
        for name in measured:
            line[heading(name)] = with_error(number(frame[name].iloc[index], name), errors.get(name, NAN))
        lines.append(line | {REASON: answer.reason})
    lines += _summaries(table, answers, frame) if table.name == "seeds" else []
    made = pd.DataFrame(lines).fillna("")
    return made if (made[REASON] != "").any() else made.drop(columns=REASON)


def _summaries(table: Table, answers: tuple[Answer, ...], frame: pd.DataFrame) -> list[dict[str, str]]:
    """Mean and spread over the seeds that are there, one line a method."""
    spread = derived.over_seeds(frame)
    lines = []
    for identifier, found in spread.groupby("method", sort=False):
        rows = [answer for answer in answers if answer.row.method_id == identifier]
        there = int(found["seeds"].max())
        which = SUMMARY if there == len(rows) else f"{SUMMARY} of {there} of {len(rows)} seeds"
        line = {"method": label(rows[0].row), "seed": which}
        for item in found.itertuples():
            metric = str(item.metric)
            line[heading(metric)] = with_error(number(item.mean, metric), float(item.std), 2)
        lines.append(line)
    return lines


def _derived(table: Table, frame: pd.DataFrame) -> pd.DataFrame:
    """The derived tables, every metric of the metric gap one below the other."""
    return _spelled(derived.gain_by_retention(frame) if table.name == "gain-by-retention" else gaps(frame))


def _spelled(made: pd.DataFrame) -> pd.DataFrame:
    """A derived table with names for ids, percentages for retentions, and words for truth."""
    writers: dict[str, Callable[[Any], str]] = {
        "base": published.paper_name,
        "method": published.paper_name,
        "metric": heading,
        "better": lambda value: "yes" if value else "no",
    }
    shown = made.drop(columns="seed", errors="ignore")
    columns = {name: [writers.get(name, partial(cell, name=name))(v) for v in shown[name]] for name in shown}
    return pd.DataFrame(columns, columns=list(shown.columns), dtype=str)


def gaps(frame: pd.DataFrame) -> pd.DataFrame:
    """The metric gap of every metric of a frame."""
    parts = [
        derived.metric_gap(frame, metric).assign(metric=metric)
        for metric in derived.metrics(frame)
        if not metric.startswith("accuracy:")
    ]
    made = pd.concat(parts, ignore_index=True) if parts else derived.metric_gap(frame)
    return made[["metric", *(name for name in made.columns if name != "metric")]] if parts else made


def heading(metric: str) -> str:
    """A metric's column title: `wikitext2 PPL`, `accuracy`, `boolq`."""
    kind, sign, subject = metric.partition(":")
    if not sign:
        return kind
    return f"{short(subject)} PPL" if kind == "ppl" else short(subject)


def number(value: float, metric: str) -> str:
    """A number as short text: two digits of perplexities and accuracies, three of all else."""
    if np.isnan(value):
        return ""
    return f"{value:.2f}" if metric.startswith(("ppl:", "accuracy")) else f"{value:.3f}"


def with_error(text: str, error: float, digits: int = 3) -> str:
    """A short number with its spread, where there is one."""
    return text if not text or np.isnan(error) else f"{text} ± {error:.{digits}f}"


def cell(value: Any, name: str) -> str:
    """A label or a number as text; retentions as percentages."""
    if value is None or (isinstance(value, float) and np.isnan(value)) or value is pd.NA:
        return ""
    if name == "retention":
        return f"{value:.0%}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


# ---- beside it ---------------------------------------------------------------------------------------------


def _published(table: Table, series: Series, protocol: str) -> tuple[pd.DataFrame, str]:
    """The paper's figures of a table, and what they belong to."""
    known = paper_model(series.model)
    model = known if known and (table.name == "main" or table.derived) else published.MODELS[0]
    title = f"published, {model}, not measured here: its texts, sample counts and windows are the paper's"
    if table.name == "metric-gap":
        return _spelled(claims.metric_gap(model, protocol).assign(metric="accuracy")), title
    if table.derived:
        return _spelled(claims.gain_by_retention(model, protocol)), title
    figures_ = published.table(table.name, model, protocol)
    frame = published.frame(figures_)
    frame["note"] = [figure.note for figure in figures_]
    frame["method"] = [published.paper_name(name) if name else "" for name in frame["method"]]
    shown = frame.drop(columns=["table", "model"])
    shown = pd.DataFrame({heading(name): _texts(shown[name], name) for name in shown.columns})
    return shown.loc[:, (shown != "").any()], title


def _texts(column: pd.Series, name: str) -> list[str]:
    measured = name.startswith(("ppl:", "accuracy"))
    return [number(value, name) if measured else cell(value, name) for value in column]


def _notes(table: Table, answers: tuple[Answer, ...], protocol: str, frame: pd.DataFrame) -> tuple[str, ...]:
    notes = [table.note] if table.note else []
    beside = sum(answer.row.extra for answer in answers)
    notes += [f"rows that the paper does not have, as controls: {beside}"] * (beside > 0)
    if "accuracy" in frame.columns:
        notes.append(f"accuracies in points, protocol {protocol}")
    kinds = {str((a.provenance.get("inputs") or {}).get("precision", "")) for a in answers if a.filled} - {""}
    if len(kinds) > 1:
        notes.append(f"rows were computed in different number types ({', '.join(sorted(kinds))})")
    windows = {(value.windows, value.length) for a in answers for value in a.values if value.windows}
    notes += [f"perplexity over {many} windows of {length} tokens" for many, length in sorted(windows)[:3]]
    return tuple(notes)


def _attachments(
    table: Table, answers: tuple[Answer, ...], finished: Finished, frame: pd.DataFrame
) -> dict[str, pd.DataFrame]:
    if table.derived and table.name == "metric-gap":
        return {"values": gaps(frame)}
    if table.derived:
        return {"values": derived.gain_by_retention(frame)}
    if table.name == "seeds":
        return {"spread": derived.over_seeds(frame)}
    if table.name == "figure-1a" and answers[0].filled:
        key = finished.stage_key(answers[0].run, "drift")
        return {"histogram": figures.histogram(finished.store, key)}
    return {}
