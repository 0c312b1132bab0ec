"""Reads reproduced tables for the pages, and says what it takes to make those that are not there yet."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pandas as pd
import streamlit as st

from gprune.analysis.studies import StudyRow
from gprune.experiments.reproduction import catalogue, tables
from gprune.experiments.reproduction.grid import GROUP, Series
from gprune.experiments.reproduction.grid import entries as studies_of
from gprune.experiments.reproduction.scale import SCALES, choose
from gprune.pipeline.runs.opened import Run
from gprune.study import short
from gprune.system.errors import StoreError
from gprune.system.units import duration

HISTOGRAM = "figure-1a"


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


def read(root: str, made: catalogue.Reproduction, name: str, rule: str = "max") -> StudyTable | None:
    """One table of a reproduction, its accuracies max or fixed; None where it has not been made.

    Raises StoreError where its index or the table is damaged.
    """
    table = catalogue.load(Path(root), made.name, name)
    if table is None:
        return None
    return StudyTable(
        name=name,
        title=table.title,
        notes=table.notes,
        rows=table.rows[rule],
        published=table.published,
        published_title=table.published_title,
        command=_command(name, made),
    )


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
    """What it takes to make a table, in one sentence; `runs` of the same model say how long one takes.

    Raises SettingsError where the scale, paper or demo, does not fit the model.
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
