"""Reads what stands in a run's folder: its record, and what a person says of it; nothing is read twice."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Any

from gprune import run_records, untrusted
from gprune.errors import SettingsError, UnreadableError
from gprune.run_records import about
from gprune.stages import Graph
from gprune.stages.inputs import from_plain, lacking
from gprune.study import from_dict

Read = tuple[dict[str, Any] | None, Graph | None, str]
"""record and graph of a run, or why there is none"""


def record(path: Path, status: os.stat_result) -> Read:
    """Record and graph of a run, or why there is none; read again only when the file has changed.

    Args:
        path: the record.
        status: of the file, as it is now.
    """
    # a record that is replaced within one tick of the clock is another file
    return _record(str(path), status.st_mtime_ns, (status.st_ino, status.st_size))


def said_of(folder: Path) -> tuple[run_records.About, str]:
    """What a person says of the run in a folder, and why that cannot be read."""
    path = folder / about.FILE
    try:
        status = path.stat()
    except OSError:
        return run_records.About(), ""
    return _read_about(str(path), status.st_mtime_ns, (status.st_ino, status.st_size))


@lru_cache(maxsize=1024)
def _read_about(path: str, changed: int, which: tuple[int, int]) -> tuple[run_records.About, str]:
    try:
        return about.read(Path(path).parent), ""
    except UnreadableError as error:
        return run_records.About(), str(error)


@lru_cache(maxsize=1024)
def _record(path: str, changed: int, which: tuple[int, int]) -> Read:
    try:
        values = run_records.load(Path(path))
    except UnreadableError as error:
        return None, None, str(error)
    try:
        study = from_dict(values["study"])
    except SettingsError as error:
        return None, None, untrusted.sentence(f"{path} holds a study of another version: {error}")
    inputs = from_plain((values.get("provenance") or {}).get("inputs"))
    unknown = min(lacking(study, inputs), default="") if inputs else ""
    if unknown:
        return None, None, f"{path} does not say what it has read as {unknown!r}"
    return values, Graph(study, inputs), ""
