"""Reads what stands in a run's folder: its record, and what a person says of it; nothing is read twice."""

import os
from functools import lru_cache
from pathlib import Path
from typing import Any

from gprune.pipeline import runs
from gprune.pipeline.runs import notes
from gprune.pipeline.stages import Graph
from gprune.pipeline.stages.inputs import from_plain, lacking
from gprune.study import from_dict
from gprune.study.methods import register_recorded
from gprune.system import safe_parsing
from gprune.system.errors import SettingsError, UnreadableError

Read = tuple[dict[str, Any] | None, Graph | None, str]
"""record and graph of a run, or why there is none"""


def record(path: Path, status: os.stat_result) -> Read:
    """Record and graph of a run, or why there is none; read again only when the file has changed."""
    # a record that is replaced within one tick of the clock is another file
    return _record(str(path), status.st_mtime_ns, (status.st_ino, status.st_size))


def said_of(folder: Path) -> tuple[runs.RunNotes, str]:
    """What a person says of the run in a folder, and why that cannot be read."""
    path = folder / notes.FILE
    try:
        status = path.stat()
    except OSError:
        return runs.RunNotes(), ""
    return _read_about(str(path), status.st_mtime_ns, (status.st_ino, status.st_size))


@lru_cache(maxsize=1024)
def _read_about(path: str, changed: int, which: tuple[int, int]) -> tuple[runs.RunNotes, str]:
    try:
        return notes.read(Path(path).parent), ""
    except UnreadableError as error:
        return runs.RunNotes(), str(error)


@lru_cache(maxsize=1024)
def _record(path: str, changed: int, which: tuple[int, int]) -> Read:
    try:
        values = runs.load(Path(path))
    except UnreadableError as error:
        return None, None, str(error)
    try:
        register_recorded(values)
        study = from_dict(values["study"])
    except SettingsError as error:
        return None, None, safe_parsing.sentence(f"{path} holds a study of another version: {error}")
    inputs = from_plain((values.get("provenance") or {}).get("inputs"))
    unknown = min(lacking(study, inputs), default="") if inputs else ""
    if unknown:
        return None, None, f"{path} does not say what it has read as {unknown!r}"
    return values, Graph(study, inputs), ""
