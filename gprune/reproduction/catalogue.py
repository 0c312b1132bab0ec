"""Answers: which reproductions are in the cache, and what do their tables say?

For the pages: no model, no study is run, only the folders that `reproduce` has written are read.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from gprune.errors import StoreError
from gprune.reproduction.writing import INDEX, read_index

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,120}")


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of a table and the run it comes from."""

    labels: dict[str, Any]
    """what names the row, by column"""
    method: str
    """method id, as gprune.published names it"""
    run: str
    """name of the run in the cache; empty where there is none"""
    run_method: str
    """the method within that run"""
    reason: str
    """why the row has no numbers; empty where it has"""
    in_paper: bool
    """whether the paper has this row; the others are controls"""


@dataclass(frozen=True, slots=True)
class Reproduced:
    """One reproduced table."""

    name: str
    title: str
    notes: tuple[str, ...]
    filled: int
    """rows that have their numbers"""
    entries: tuple[Entry, ...]
    """one a row"""
    display: pd.DataFrame
    """the short form: text cells"""
    published: pd.DataFrame
    """the paper's own figures, to stand beside and never among the measured ones; may be empty"""
    published_title: str
    """what they belong to"""
    csv: Path
    """the long form: one line a number, full precision"""


@dataclass(frozen=True, slots=True)
class Reproduction:
    """All tables of one model at one scale."""

    name: str
    """name of its folder"""
    folder: Path
    model: str
    scale: dict[str, Any]
    """every field of gprune.reproduction.scale.Scale"""
    updated: str
    """time of the last change, ISO 8601, UTC"""
    command: str
    """the command line that goes on with it"""
    tables: tuple[str, ...]
    """names of its tables"""


def reproductions(cache: Path) -> list[Reproduction]:
    """Every reproduction of a cache, the latest first; folders that cannot be read are passed over."""
    home = cache / "reproductions"
    try:
        names = [name for name in os.listdir(home) if _NAME.fullmatch(name)]
    except OSError:
        return []
    found = [made for name in names if (made := _reproduction(home / name)) is not None]
    return sorted(found, key=lambda made: (made.updated, made.name), reverse=True)


def load(cache: Path, name: str) -> dict[str, Reproduced]:
    """The tables of one reproduction, by name, in the order they were first written.

    Raises:
        StoreError: there is no such reproduction, or its index cannot be read.
    """
    folder = cache / "reproductions" / name
    index = read_index(folder) if _NAME.fullmatch(name) else None
    if index is None:
        raise StoreError(f"there is no reproduction {name[:80]!r} in {cache}: choose one from the list")
    try:
        return {table: _reproduced(folder, table, entry) for table, entry in index["tables"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(f"{folder / INDEX} is damaged ({error!r}): run `reproduce` again") from error


def _reproduction(folder: Path) -> Reproduction | None:
    index = read_index(folder)
    if index is None or not isinstance(index.get("scale"), dict):
        return None
    texts = {key: str(index.get(key, "")) for key in ("model", "updated", "command")}
    return Reproduction(
        folder.name, folder, scale=dict(index["scale"]), tables=tuple(map(str, index["tables"])), **texts
    )


def _reproduced(folder: Path, name: str, entry: dict[str, Any]) -> Reproduced:
    keys = ("labels", "method", "run", "run_method", "reason", "in_paper")
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not the name of a table")
    return Reproduced(
        name=name,
        title=str(entry["title"]),
        notes=tuple(map(str, entry["notes"])),
        filled=int(entry["filled"]),
        entries=tuple(Entry(**{key: row[key] for key in keys}) for row in entry["rows"]),
        display=_frame(entry["display"]),
        published=_frame(entry["published"]),
        published_title=str(entry["published"]["title"]),
        csv=folder / f"{name}.csv",
    )


def _frame(values: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(values["cells"], columns=values["columns"])
