"""Reproduced tables on disk: CSV for machines, Markdown and LaTeX for people, and an index that the pages read.

    <cache>/reproductions/<model>-<scale>/
        TABLE.csv, TABLE.md, TABLE.tex, TABLE-published.csv
        main-fixed.md, main-fixed.tex, main-fixed-published.csv    (the other accuracy rule)
        index.json

Every file is written under a temporary name and renamed, so that a reader sees the old table or the new one.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from gprune.analysis.formatting import finite_values
from gprune.analysis.studies import StudyRow
from gprune.analysis.table import Table
from gprune.data.published import RULES
from gprune.experiments.reproduction.assembly import Assembled
from gprune.experiments.reproduction.grid import Series
from gprune.experiments.reproduction.scale import Scale, choose
from gprune.store import explain_errors
from gprune.study import short
from gprune.system import safe_parsing
from gprune.system.errors import StoreError
from gprune.system.files import Lock, make_folder, write_json, write_text

INDEX = "index.json"
FORMAT = 2
_PROGRAMS = ("gprune", "commit", "package", "torch", "transformers")
"""entries of the recorded versions that the index lists"""
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,120}")


@dataclass(frozen=True, slots=True)
class Reproduced:
    """One reproduced table."""

    name: str
    title: str
    notes: tuple[str, ...]
    filled: int
    """number of rows that have numbers"""
    rows: dict[str, tuple[StudyRow, ...]]
    """the rows with numbers, by accuracy rule"""
    display: pd.DataFrame
    """the short form of the table: text cells"""
    published: pd.DataFrame
    """the paper's figures, displayed separately from measured ones; may be empty"""
    published_title: str
    versions: dict[str, tuple[str, ...]]
    """versions and commits of the rows, by program; several if runs differ"""


@dataclass(frozen=True, slots=True)
class Reproduction:
    """All tables of one model at one scale."""

    name: str
    """name of the reproduction's folder"""
    folder: Path
    model: str
    scale: dict[str, Any]
    """every field of gprune.experiments.reproduction.scale.Scale"""
    updated: str
    """time of the last change, ISO 8601, UTC"""
    command: str
    """the command line that writes its tables, and continues it if studies are missing"""
    tables: tuple[str, ...]
    """names of the tables"""


def folder_name(model: str, scale: Scale) -> str:
    """Return the name of a reproduction's folder, safe for any model name.

    A hash is appended if two reproductions could have the same name: for a model in a folder, or a scale with changed
    settings. Rows of controls do not affect the name.
    """
    stem = re.sub(r"[^a-z0-9]+", "-", short(model).lower()).strip("-")[:60] or "model"
    name = f"{stem}-{scale.name}"
    if model == "demo" and replace(scale, controls=True) == choose(model, scale.name):
        return name
    fields = {field: value for field, value in scale.to_dict().items() if field != "controls"}
    content = json.dumps([model, fields], sort_keys=True)
    return f"{name}-{hashlib.sha256(content.encode()).hexdigest()[:8]}"


def write(folder: Path, series: Series, tables: Iterable[Assembled], command: str = "") -> None:
    """Write tables and add them to the folder's index; other tables of the folder are kept.

    `command` is the command line that builds the tables. Raises StoreError if the folder cannot be written.
    """
    with explain_errors(folder):
        make_folder(folder)
        # locked, because another call may add its own tables to the same index
        lock = Lock(folder / f".{INDEX}.lock")
        while not lock.acquire(1.0):
            pass
        try:
            index = read_index(folder) or {}
            entries = {table.table.name: _write_table(folder, series, table) for table in tables}
            values = {
                "format": FORMAT,
                "model": series.model,
                "scale": series.scale.to_dict(),
                "command": command or index.get("command", ""),
                "updated": datetime.now(UTC).isoformat(timespec="seconds"),
                "tables": index.get("tables", {}) | entries,
            }
            write_json(folder / INDEX, values)
        finally:
            lock.release()


def read_index(folder: Path) -> dict[str, Any] | None:
    """Return the index of a folder of tables, or None if there is no readable index."""
    try:
        values = safe_parsing.json_file(folder / INDEX, INDEX, finite=False)
    except (OSError, ValueError):
        return None
    valid = isinstance(values, dict) and values.get("format") == FORMAT and isinstance(values.get("tables"), dict)
    return values if valid else None


def _write_table(folder: Path, series: Series, table: Assembled) -> dict[str, Any]:
    """Write the files of one table, and return the table's entry for the index."""
    name = table.table.name
    frames = {name: table.long}
    texts: dict[str, str] = {}
    for form, stem in ((table, name), (table.fixed, f"{name}-fixed")):
        if form is None:
            continue
        texts |= {f"{stem}.md": markdown(form, series), f"{stem}.tex": latex(form, series)}
        frames |= {f"{stem}-published": form.published} if len(form.published) else {}
    texts |= {f"{stem}.csv": Table(frame).csv() for stem, frame in frames.items()}
    for file, text in texts.items():
        write_text(folder / file, text)
    return {
        "title": table.table.title,
        "notes": list(table.notes),
        "files": sorted(texts),
        "filled": table.filled,
        "rows": {rule: [finite_values(asdict(row)) for row in rows] for rule, rows in table.rows.items()},
        "display": _convert_cells(table.display),
        "published": _convert_cells(table.published) | {"title": table.published_title},
        "versions": _collect_versions(table),
    }


def _convert_cells(frame: pd.DataFrame) -> dict[str, Any]:
    return {"columns": [str(name) for name in frame.columns], "cells": frame.astype(str).to_numpy().tolist()}


def _collect_versions(table: Assembled) -> dict[str, list[str]]:
    """Return all program versions of a table's rows; several if runs differ."""
    versions: dict[str, list[str]] = {}
    for answer in table.answers:
        for name in _PROGRAMS:
            version = str(answer.versions.get(name, ""))
            if version and name == "commit" and answer.versions.get("uncommitted_changes"):
                version += " with changes that were not committed"
            if version and version not in versions.setdefault(name, []):
                versions[name].append(version)
    return versions


def setting(series: Series) -> str:
    """Describe the common settings of the measured rows of a series in one line."""
    scale = series.scale
    windows = "all windows" if scale.windows is None else f"at most {scale.windows} windows"
    texts = f"A {short(scale.primary)}, B {short(scale.auxiliary)}, C {short(scale.substitute)}"
    sizes = f"{scale.samples} sequences a text, epochs of MSL: {scale.epochs}, {windows}"
    line = f"measured, {short(series.model)}, scale {scale.name}: {texts}; {sizes}"
    if not scale.tasks:
        return line
    limit = f", at most {scale.limit} documents each" if scale.limit else ""
    studies = "" if scale.tasks_in == "all" else ", in the studies of the main table"
    return f"{line}; tasks {', '.join(map(short, scale.tasks))}{limit}{studies}"


def markdown(table: Assembled, series: Series) -> str:
    """Return a table as Markdown, the published figures in a section of their own."""
    paragraphs = [f"# {table.table.name}: {table.table.title}", setting(series), Table(table.display).markdown()]
    paragraphs += [f"- {note}" for note in table.notes]
    if len(table.published):
        paragraphs += [f"## {table.published_title}", Table(table.published).markdown()]
    return "\n\n".join(paragraphs) + "\n"


def latex(table: Assembled, series: Series) -> str:
    """Return a table as LaTeX for the booktabs package, the published figures as a table of their own."""
    paragraphs = [Table(table.display).latex(f"{table.table.title}. {setting(series)}")]
    if len(table.published):
        paragraphs.append(Table(table.published).latex(f"{table.table.title}. {table.published_title}"))
    return "\n".join(paragraphs)


def reproductions(cache: Path) -> list[Reproduction]:
    """Return every reproduction of a cache, latest first; unreadable folders are skipped."""
    folder = cache / "reproductions"
    try:
        names = [name for name in os.listdir(folder) if _NAME.fullmatch(name)]
    except OSError:
        return []
    listed = [item for name in names if (item := _read_reproduction_folder(folder / name)) is not None]
    return sorted(listed, key=lambda item: (item.updated, item.name), reverse=True)


def load(cache: Path, name: str, table: str) -> Reproduced | None:
    """Return one table of a reproduction, or None if the table was not built yet.

    Raises StoreError if there is no such reproduction, or if the table's entry in the index is damaged.
    """
    folder = cache / "reproductions" / name
    index = read_index(folder) if _NAME.fullmatch(name) else None
    if index is None:
        raise StoreError(f"there is no reproduction {name[:80]!r} in {cache}: choose one from the list")
    if table not in index["tables"]:
        return None
    try:
        return _read_reproduction(table, index["tables"][table])
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        location = f"the table {safe_parsing.quote(table)} in {folder / INDEX}"
        reason = safe_parsing.sentence(repr(error), 160)
        raise StoreError(f"{location} is damaged ({reason}): run `reproduce` again") from error


def _read_reproduction_folder(folder: Path) -> Reproduction | None:
    index = read_index(folder)
    if index is None or not isinstance(index.get("scale"), dict):
        return None
    texts = {key: str(index.get(key, "")) for key in ("model", "updated", "command")}
    return Reproduction(folder.name, folder, scale=index["scale"], tables=tuple(map(str, index["tables"])), **texts)


def _read_reproduction(name: str, entry: dict[str, Any]) -> Reproduced:
    return Reproduced(
        name=name,
        title=str(entry["title"]),
        notes=tuple(map(str, entry["notes"])),
        filled=int(entry["filled"]),
        rows={rule: tuple(map(_parse_row, entry["rows"][rule])) for rule in RULES},
        display=_parse_frame(entry["display"]),
        published=_parse_frame(entry["published"]),
        published_title=str(entry["published"]["title"]),
        versions={program: tuple(map(str, versions)) for program, versions in dict(entry["versions"]).items()},
    )


def _parse_row(values: dict[str, Any]) -> StudyRow:
    return StudyRow(**{**values, "kept": float("nan") if values["kept"] is None else float(values["kept"])})


def _parse_frame(values: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(values["cells"], columns=values["columns"])
