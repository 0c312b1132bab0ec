"""Read and check the records of runs.

A record may be damaged or from another version. The fields that a page, a table or a later run relies on are checked
here; fields may be absent, and fields that nobody reads may be anything.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from gprune.store import Store
from gprune.system import safe_parsing
from gprune.system.errors import StoreError, UnreadableError
from gprune.system.forms import LooseForm, Rule, one_of
from gprune.system.safe_parsing import did_you_mean

RECORD = "run.json"
REMEDY = "run its study again, which finds every finished stage and writes the record anew"
"""what is to be done where a record cannot be read"""
_STATES = ("running", "done", "failed", "cancelled", "interrupted")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,160}")


def _is_name(value: str) -> bool:
    # reject names that lead out of the folder
    return bool(_NAME.fullmatch(value)) and ".." not in value


_Name = Annotated[str, Rule("a plain name", _is_name)]


@dataclass(frozen=True)
class _Stage(LooseForm):
    key: _Name
    seconds: float | None = None
    reused: bool = False
    passes: dict[str, float] | None = None
    notices: list[str] | None = None


@dataclass(frozen=True)
class _Reason(LooseForm):
    key: _Name
    reason: str


@dataclass(frozen=True)
class _Record(LooseForm):
    study: dict[str, Any]
    stages: dict[_Name, _Stage]
    run: str = ""
    state: Annotated[str, one_of(_STATES)] = "done"
    until: str | None = None
    error: str | None = None
    started: str | None = None
    updated: str | None = None
    seconds: float | None = None
    expected: dict[str, float] | None = None
    unavailable: dict[str, _Reason] | None = None
    missing_tasks: dict[str, str] | None = None
    texts: dict[str, str] | None = None
    provenance: dict[str, Any] | None = None
    result: dict[str, Any] | None = None
    packed: dict[str, Any] | None = None
    owner: dict[str, Any] | None = None


def load(path: Path) -> dict[str, Any]:
    """Return the record in a file, with every field of the type that the program relies on.

    Raises UnreadableError with one sentence that names the file and what is wrong with it.
    """
    if not _is_name(path.parent.name):
        raise UnreadableError(f"{path} is in a folder whose name is not one of a run")
    try:
        data = safe_parsing.contents(path, str(path))
    except FileNotFoundError as error:
        raise UnreadableError(f"{path} does not exist") from error
    return parse_record(data, str(path))


def parse_record(data: bytes, source: str) -> dict[str, Any]:
    """Return the record in the bytes of a file. Raises UnreadableError if it is none, which names the source."""
    # a perplexity in the result may exceed every float
    values = safe_parsing.json_object(data, source, finite=False)
    try:
        _Record.parse(values, UnreadableError)
    except UnreadableError as error:
        raise UnreadableError(safe_parsing.sentence(f"{source} is no record of a run: {error}")) from error
    return values


def read(store: Store, run: str) -> dict[str, Any] | None:
    """Return the record of a run; None when there is none that can be read."""
    try:
        return load(store.folder("runs", run) / RECORD)
    except UnreadableError:
        return None


def failures(record: dict[str, Any] | None) -> dict[str, str]:
    """Return why stages of a run could not be computed, by key; none without a record."""
    return {entry["key"]: entry["reason"] for entry in ((record or {}).get("unavailable") or {}).values()}


def require_record(store: Store, run: str) -> dict[str, Any]:
    """Return the record of a run that a person has named. Raises StoreError if none of that name can be read."""
    path = store.folder("runs", run) / RECORD
    try:
        return load(path)
    except UnreadableError as error:
        if os.path.lexists(path):
            raise StoreError(f"{error}; {REMEDY}") from error
        suggestion = did_you_mean(run, (record_file.parent.name for record_file in path.parents[1].glob(f"*/{RECORD}")))
        raise StoreError(
            f"there is no run {safe_parsing.quote(run)}{suggestion} in {store.root}: `python -m gprune runs` "
            "lists those that are"
        ) from error


def read_all(store: Store) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the runs that can be read with their records, the latest written first."""
    paths = []
    for path in (store.root / "runs").glob(f"*/{RECORD}"):
        try:
            paths.append((path.stat().st_mtime_ns, path))
        except OSError:
            # it was deleted meanwhile
            continue
    for _, path in sorted(paths, reverse=True):
        try:
            yield path.parent.name, load(path)
        except UnreadableError:
            continue
