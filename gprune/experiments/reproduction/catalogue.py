"""Lists the reproductions in a cache and reads their tables.

For the pages: no model, no study is run, only the folders that `reproduce` has written are read.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from gprune.analysis.studies import StudyRow
from gprune.data.published import RULES
from gprune.experiments.reproduction.writing import INDEX, read_index
from gprune.system import safe_parsing
from gprune.system.errors import StoreError

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,120}")


@dataclass(frozen=True, slots=True)
class Reproduced:
    """One reproduced table."""

    name: str
    title: str
    notes: tuple[str, ...]
    filled: int
    """rows that have their numbers"""
    rows: dict[str, tuple[StudyRow, ...]]
    """the rows with their numbers, by accuracy rule"""
    display: pd.DataFrame
    """the short form: text cells"""
    published: pd.DataFrame
    """the paper's figures, shown apart from the measured ones; may be empty"""
    published_title: str
    versions: dict[str, tuple[str, ...]]
    """versions and commits behind the rows, by program; more than one where runs differ"""


@dataclass(frozen=True, slots=True)
class Reproduction:
    """All tables of one model at one scale."""

    name: str
    """name of its folder"""
    folder: Path
    model: str
    scale: dict[str, Any]
    """every field of gprune.experiments.reproduction.scale.Scale"""
    updated: str
    """time of the last change, ISO 8601, UTC"""
    command: str
    """the command line that goes on with it"""
    tables: tuple[str, ...]
    """names of its tables"""


def reproductions(cache: Path) -> list[Reproduction]:
    """Return every reproduction of a cache, the latest first; folders that cannot be read are passed over."""
    folder = cache / "reproductions"
    try:
        names = [name for name in os.listdir(folder) if _NAME.fullmatch(name)]
    except OSError:
        return []
    listed = [item for name in names if (item := _reproduction(folder / name)) is not None]
    return sorted(listed, key=lambda item: (item.updated, item.name), reverse=True)


def load(cache: Path, name: str, table: str) -> Reproduced | None:
    """Return one table of a reproduction, or None if it has not been made.

    Raises StoreError if there is no such reproduction, or its index is damaged at the table.
    """
    folder = cache / "reproductions" / name
    index = read_index(folder) if _NAME.fullmatch(name) else None
    if index is None:
        raise StoreError(f"there is no reproduction {name[:80]!r} in {cache}: choose one from the list")
    if table not in index["tables"]:
        return None
    try:
        return _reproduced(table, index["tables"][table])
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        location = f"the table {safe_parsing.quote(table)} in {folder / INDEX}"
        reason = safe_parsing.sentence(repr(error), 160)
        raise StoreError(f"{location} is damaged ({reason}): run `reproduce` again") from error


def _reproduction(folder: Path) -> Reproduction | None:
    index = read_index(folder)
    if index is None or not isinstance(index.get("scale"), dict):
        return None
    texts = {key: str(index.get(key, "")) for key in ("model", "updated", "command")}
    return Reproduction(folder.name, folder, scale=index["scale"], tables=tuple(map(str, index["tables"])), **texts)


def _reproduced(name: str, entry: dict[str, Any]) -> Reproduced:
    return Reproduced(
        name=name,
        title=str(entry["title"]),
        notes=tuple(map(str, entry["notes"])),
        filled=int(entry["filled"]),
        rows={rule: tuple(map(_row, entry["rows"][rule])) for rule in RULES},
        display=_frame(entry["display"]),
        published=_frame(entry["published"]),
        published_title=str(entry["published"]["title"]),
        versions={program: tuple(map(str, versions)) for program, versions in dict(entry["versions"]).items()},
    )


def _row(values: dict[str, Any]) -> StudyRow:
    return StudyRow(**{**values, "kept": float("nan") if values["kept"] is None else float(values["kept"])})


def _frame(values: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(values["cells"], columns=values["columns"])
