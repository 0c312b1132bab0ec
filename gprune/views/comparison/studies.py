"""Reads reproduced tables for the pages, and says what it takes to make those that are not there yet."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from math import nan
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
import streamlit as st

from gprune.analysis import accuracy
from gprune.analysis.studies import StudyRow
from gprune.errors import StoreError
from gprune.records import Accuracy
from gprune.reproduction import assembly, catalogue, figures, tables
from gprune.reproduction.scale import SCALES, choose
from gprune.reproduction.series import GROUP, Series
from gprune.reproduction.series import errands as studies_of
from gprune.study import short
from gprune.views.frame.loaders import Run
from gprune.views.frame.text import duration

HISTOGRAM = "figure-1a"
MOST_BYTES = 32_000_000
"""a larger file is no table of ours"""


@dataclass(frozen=True, slots=True)
class StudyTable:
    """One reproduced table."""

    name: str
    title: str
    notes: tuple[str, ...]
    rows: tuple[StudyRow, ...]
    published: pd.DataFrame
    """the paper's figures of the same table, text cells; may be empty"""
    published_title: str
    command: str
    """the command that goes on with it"""

    @property
    def filled(self) -> int:
        """Rows that have numbers."""
        return sum(bool(row.values) for row in self.rows)


def found(root: str) -> list[catalogue.Reproduction]:
    """Every reproduction of a cache, the latest first."""
    return catalogue.reproductions(Path(root))


def title(made: catalogue.Reproduction) -> str:
    """What to call a reproduction in a list."""
    return f"{short(made.model)}, scale {made.scale.get('name', '?')}"


def read(root: str, made: catalogue.Reproduction, name: str, protocol: str = "max") -> StudyTable | None:
    """One table of a reproduction; None where it has not been made.

    Args:
        root: the cache folder.
        made: which reproduction.
        name: name of the table.
        protocol: accuracy protocol, max or fixed.

    Raises:
        StoreError: its index or the table is damaged.
    """
    table = catalogue.load(Path(root), made.name).get(name)
    if table is None:
        return None
    return StudyTable(
        name=name,
        title=table.title,
        notes=table.notes,
        rows=tuple(_rows(table, protocol)),
        published=table.published,
        published_title=table.published_title,
        command=_command(name, made),
    )


def _rows(table: catalogue.Reproduced, protocol: str) -> list[StudyRow]:
    long = _comparable(_numbers(table.csv))
    shown, rows = figures.SHOWN.get(table.name), []
    for index, entry in enumerate(table.entries):
        lines = long[long["row"] == index + 1]
        values, errors = _values(lines, protocol)
        if shown:
            values = {name: value for name, value in values.items() if name in shown}
        first = lines.iloc[0] if len(lines) else None
        labels = {str(name): assembly.cell(value, str(name)) for name, value in entry.labels.items()}
        rows.append(
            StudyRow(
                labels=labels,
                method=str(entry.method),
                retention=_number(first, "target"),
                seed=int(seed) if (seed := _number(first, "seed")) == seed else 0,
                run=str(entry.run),
                values=values,
                errors=errors,
                kept=_number(first, "retained"),
                reason=str(entry.reason),
                control=not entry.in_paper,
            )
        )
    return rows


def _comparable(long: pd.DataFrame) -> pd.DataFrame:
    """Leaves out tasks that a row with accuracies lacks, so that no row's mean is spared a hard task."""
    accuracies = long["measure"].isin(["acc", "acc_norm"])
    measured = long[accuracies & pd.to_numeric(long["value"], errors="coerce").notna()]
    tasks = [set(part["subject"]) for _, part in measured.groupby("row")]
    return long[~accuracies | long["subject"].isin(set.intersection(*tasks) if tasks else set())]


def _number(line: pd.Series | None, name: str) -> float:
    value = None if line is None else pd.to_numeric(line.get(name), errors="coerce")
    return float("nan") if value is None or pd.isna(value) else float(value)


def _values(lines: pd.DataFrame, protocol: str) -> tuple[dict[str, float], dict[str, float]]:
    """Numbers and errors of a row by column; accuracies in points under a protocol."""
    values: dict[str, float] = {}
    errors: dict[str, float] = {}
    known = lines[pd.to_numeric(lines["value"], errors="coerce").notna()]
    for line in known.itertuples():
        name = f"ppl:{line.subject}" if line.measure == "perplexity" else str(line.measure)
        if name not in ("acc", "acc_norm"):
            values[name] = float(line.value)
            if pd.notna(line.error):
                errors[name] = float(line.error)
    scored, spread = _accuracies(known, protocol)
    return values | scored, errors | spread


def _accuracies(lines: pd.DataFrame, protocol: str) -> tuple[dict[str, float], dict[str, float]]:
    """Accuracies of a row in points, their mean first, and their standard errors."""
    measured = [
        _accuracy(str(task), dict(zip(part["measure"], part[["value", "error"]].to_numpy(), strict=True)))
        for task, part in lines[lines["measure"].isin(["acc", "acc_norm"])].groupby("subject", sort=False)
    ]
    if not measured:
        return {}, {}
    mean = accuracy.mean_accuracy(measured, protocol)
    values, errors = {"accuracy": mean.value}, {"accuracy": mean.error}
    for task in measured:
        values[f"accuracy:{task.task}"] = accuracy.reported(task, protocol)
        errors[f"accuracy:{task.task}"] = accuracy.reported_error(task, protocol)
    return _points(values), _points(errors)


def _points(shares: dict[str, float]) -> dict[str, float]:
    return {name: 100.0 * value for name, value in shares.items()}


def _accuracy(task: str, found: dict[str, Any]) -> Accuracy:
    (raw, raw_error), (normalised, normalised_error) = (found.get(n, (nan, nan)) for n in ("acc", "acc_norm"))
    figures_ = {
        "acc": raw,
        "acc_norm": normalised,
        "acc_error": raw_error,
        "acc_norm_error": normalised_error,
    }
    return Accuracy(task, **figures_, samples=0, limit=0, chance=nan, version="", data="")


def _numbers(path: Path) -> pd.DataFrame:
    try:
        status = path.stat()
    except OSError as error:
        raise StoreError(f"{path} cannot be read ({error}): run `reproduce` again") from error
    return _csv(str(path), status.st_mtime_ns, status.st_size).rename(columns={"standard error": "error"})


@st.cache_data(max_entries=64, show_spinner=False)
def _csv(path: str, changed: int, size: int) -> pd.DataFrame:
    """A table's long form; read again only when the file has changed."""
    if size > MOST_BYTES:
        raise StoreError(f"{path} has {size:,} bytes: this is no table of `reproduce`")
    try:
        read_table = pd.read_csv(path, keep_default_na=False, na_values=[""])
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} is damaged ({error}): run `reproduce` again") from error
    missing = {"row", "measure", "subject", "value", "standard error"} - set(read_table.columns)
    if missing:
        raise StoreError(f"{path} lacks the column {min(missing)!r}: run `reproduce` again")
    return read_table


def curves(made: catalogue.Reproduction) -> pd.DataFrame | None:
    """The histogram behind Figure 1a; None where it was not written."""
    path = made.folder / f"{HISTOGRAM}-histogram.csv"
    try:
        status = path.stat()
    except OSError:
        return None
    return _histogram(str(path), status.st_mtime_ns)


@st.cache_data(max_entries=16, show_spinner=False)
def _histogram(path: str, changed: int) -> pd.DataFrame:
    try:
        return pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} is damaged ({error}): run `reproduce` again") from error


def command(table: str, model: str, scale: str = "demo") -> str:
    """The command that makes a table."""
    chosen = scale if scale in SCALES else "demo"
    return f"python -m gprune reproduce {shlex.quote(table)} --model {shlex.quote(model)} --scale {chosen}"


def _command(table: str, made: catalogue.Reproduction) -> str:
    """The command that goes on with a table: the recorded one where the scale has settings of its own."""
    scale = str(made.scale.get("name", ""))
    if made.command and not made.name.endswith(f"-{scale}"):
        return made.command
    return command(table, made.model, scale)


def effort(table: str, model: str, scale: str, runs: list[Run]) -> str:
    """What it takes to make a table, in one sentence.

    Args:
        table: name of the table.
        model: folder or hub name of the model.
        scale: paper or demo.
        runs: runs of the cache; those of the same model that series of studies made say how long one takes.

    Raises:
        SettingsError: the scale does not fit the model.
    """
    size = choose(model, scale if scale in SCALES else "demo")
    count = len(studies_of(tables.TABLES[table].rows(Series(model, size))))
    many = f"{count} studies" if count > 1 else "1 study"
    words = f"{many} of {size.samples} sequences a text and {size.epochs} epochs at most"
    like = [run for run in runs if run.complete and run.study.model == model and run.study.group == GROUP]
    seconds = [float(run.record.get("seconds") or 0.0) for run in like]
    if not seconds:
        return f"It takes {words}; what the cache has already is not run again."
    about = f"about {duration(count * median(seconds))} at the pace of the {len(seconds)} that are done"
    return f"It takes {words}, {about}; what the cache has already is not run again."
