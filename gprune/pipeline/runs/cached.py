"""Read what lies in a run's folder, its record and the notes of a person, again only when a file has changed."""

import os
from functools import lru_cache
from pathlib import Path
from typing import Any

from gprune.pipeline import runs
from gprune.pipeline.runs import notes
from gprune.pipeline.stages import Graph
from gprune.pipeline.stages.inputs import from_plain, lacking
from gprune.store.checksums import Stamp, stamp_of
from gprune.study import from_dict
from gprune.study.methods import register_recorded
from gprune.system import safe_parsing
from gprune.system.errors import SettingsError, UnreadableError

ReadRecord = tuple[dict[str, Any] | None, Graph | None, str]
"""record and graph of a run, or why there is none"""


def read_record(path: Path, status: os.stat_result) -> ReadRecord:
    """Return record and graph of a run, or why there is none."""
    return _read_record(str(path), stamp_of(status))


@lru_cache(maxsize=1024)
def _read_record(path: str, stamp: Stamp) -> ReadRecord:
    try:
        record = runs.load(Path(path))
        return record, recorded_graph(record, path, require_inputs=False), ""
    except UnreadableError as error:
        return None, None, str(error)


def read_notes(folder: Path) -> tuple[runs.RunNotes, str]:
    """Return the notes on the run in a folder, and why they cannot be read."""
    path = folder / notes.FILE
    try:
        return _read_notes(str(path), stamp_of(path.stat()))
    except OSError:
        return runs.RunNotes(), ""


@lru_cache(maxsize=1024)
def _read_notes(path: str, stamp: Stamp) -> tuple[runs.RunNotes, str]:
    try:
        return notes.read(Path(path).parent), ""
    except UnreadableError as error:
        return runs.RunNotes(), str(error)


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
