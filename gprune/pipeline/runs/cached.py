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
        return values, recorded_graph(values, path, require_inputs=False), ""
    except UnreadableError as error:
        return None, None, str(error)


def recorded_graph(record: dict[str, Any], source: str, *, require_inputs: bool = True) -> Graph:
    """Return the stages of a run under the digests of what it has read, without model or texts.

    Raises UnreadableError where the record holds a study of another version, or lacks digests; a record
    without any is accepted unless `require_inputs`.
    """
    try:
        register_recorded(record)
        study = from_dict(record["study"])
    except SettingsError as error:
        raise UnreadableError(safe_parsing.sentence(f"{source} holds a study of another version: {error}")) from error
    inputs = from_plain((record.get("provenance") or {}).get("inputs"))
    missing = min(lacking(study, inputs), default="") if inputs else ""
    if missing:
        raise UnreadableError(f"{source} does not say what it has read as {missing!r}")
    if inputs is None and require_inputs:
        raise UnreadableError(f"{source} does not say what the run has read: run the study again")
    return Graph(study, inputs)
