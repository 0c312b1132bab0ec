"""Records of runs with their graphs, read again only when a file has changed."""

from functools import lru_cache
from pathlib import Path
from typing import Any

from gprune.pipeline import runs
from gprune.pipeline.stages import Graph
from gprune.pipeline.stages.inputs import from_plain, missing_texts
from gprune.store.checksums import Stamp, stamp
from gprune.study import from_dict
from gprune.study.methods import register_recorded
from gprune.system import safe_parsing
from gprune.system.errors import SettingsError, UnreadableError

ReadRecord = tuple[dict[str, Any] | None, Graph | None, str]
"""record and graph of a run, or why there is none"""


def read_record(path: Path) -> ReadRecord:
    """Return record and graph of a run, or why there is none. Raises OSError if there is no such file."""
    return _read_record(path, stamp(path))


@lru_cache(maxsize=1024)
def _read_record(path: Path, _: Stamp) -> ReadRecord:
    try:
        record = runs.load(path)
        return record, recorded_graph(record, str(path), require_inputs=False), ""
    except UnreadableError as error:
        return None, None, str(error)


def recorded_graph(record: dict[str, Any], source: str, *, require_inputs: bool = True) -> Graph:
    """Return the stages of a run under the digests of what it has read, without model or texts.

    Raises UnreadableError if the record holds a study of another version, or lacks digests; a record
    without any is accepted unless `require_inputs`.
    """
    try:
        register_recorded(record)
        study = from_dict(record["study"])
    except SettingsError as error:
        raise UnreadableError(safe_parsing.sentence(f"{source} holds a study of another version: {error}")) from error
    inputs = from_plain((record.get("provenance") or {}).get("inputs"))
    missing_text = min(missing_texts(study, inputs), default="") if inputs else ""
    if missing_text:
        raise UnreadableError(f"{source} does not say what it has read as {missing_text!r}")
    if inputs is None and require_inputs:
        raise UnreadableError(f"{source} does not say what the run has read: run the study again")
    return Graph(study, inputs, failures=runs.failures(record))
