"""The records of runs, `<cache>/runs/<run>/run.json`, and the user's notes on them.

A record may be damaged, from another version or written by hand. The types of the fields that the program reads are
checked here. Most of these fields may be absent, and other fields may have any value. The record of an active run names
its owner, the process that computes it. The number and start time of the process show whether the owner is alive; on
another machine, the run's lock does.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar

from gprune.jobs import processes
from gprune.store import Store, explain_errors
from gprune.store.checksums import Stamp, stamp
from gprune.study.settings import VALID_TEXT
from gprune.system import machine, safe_parsing
from gprune.system.errors import SettingsError, StoreError, UnreadableError
from gprune.system.files import is_locked, make_folder, write_json
from gprune.system.forms import LooseForm, Rule, max_length, one_of, validate_form
from gprune.system.safe_parsing import did_you_mean

RECORD = "run.json"
NOTES = "about.json"
LONGEST_RUN_NAME = 80
"""characters"""
INTERRUPTED = "interrupted"
"""the state of a run that a signal has stopped, or whose record says running although its process is gone"""
REMEDY = "run its study again, which rewrites the record and reuses finished stages"
"""the remedy if a record cannot be read"""
_STATES = ("running", "done", "failed", "cancelled", INTERRUPTED)
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
    """Return the record in a file, after checking the types of the fields that the program uses.

    Raises UnreadableError with one sentence that names the file and the fault.
    """
    if not _is_name(path.parent.name):
        raise UnreadableError(f"{path} is in a folder whose name is not one of a run")
    try:
        data = safe_parsing.contents(path, str(path))
    except FileNotFoundError as error:
        raise UnreadableError(f"{path} does not exist") from error
    return parse_record(data, str(path))


def parse_record(data: bytes, source: str) -> dict[str, Any]:
    """Return the record in a file's bytes.

    Raises UnreadableError, which names `source`, if they are not a valid record.
    """
    # a perplexity in the result may be too large for a float
    values = safe_parsing.json_object(data, source, finite=False)
    try:
        _Record.parse(values, UnreadableError)
    except UnreadableError as error:
        raise UnreadableError(safe_parsing.sentence(f"{source} is not a record of a run: {error}")) from error
    return values


def read(store: Store, run: str) -> dict[str, Any] | None:
    """Return the record of a run; None if there is no readable record."""
    try:
        return load(store.folder("runs", run) / RECORD)
    except UnreadableError:
        return None


def failures(record: dict[str, Any] | None) -> dict[str, str]:
    """Return the reasons why stages of a run could not be computed, by the key of the stage; empty without a record."""
    return {entry["key"]: entry["reason"] for entry in ((record or {}).get("unavailable") or {}).values()}


def require_record(store: Store, run: str) -> dict[str, Any]:
    """Return the record of a run that the user has named.

    Raises StoreError if there is no readable record of this name.
    """
    path = store.folder("runs", run) / RECORD
    try:
        return load(path)
    except UnreadableError as error:
        if os.path.lexists(path):
            raise StoreError(f"{error}; {REMEDY}") from error
        suggestion = did_you_mean(run, (record_file.parent.name for record_file in path.parents[1].glob(f"*/{RECORD}")))
        raise StoreError(
            f"there is no run {safe_parsing.quote(run)}{suggestion} in {store.root}: `python -m gprune runs` "
            "lists its runs"
        ) from error


def read_all(store: Store) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and record of every readable run, latest written first."""
    paths = []
    for path in (store.root / "runs").glob(f"*/{RECORD}"):
        try:
            paths.append((path.stat().st_mtime_ns, path))
        except OSError:
            # the record was deleted in the meantime
            continue
    for _, path in sorted(paths, reverse=True):
        try:
            yield path.parent.name, load(path)
        except UnreadableError:
            continue


# writing


def save(store: Store, run: str, values: dict[str, Any]) -> None:
    """Replace the record of a run.

    Raises StoreError if the disk is full or the cache is read-only.
    """
    folder = store.folder("runs", run)
    with explain_errors(store.root):
        make_folder(folder)
        write_json(folder / RECORD, values)


def lock_path(root: Path, run: str) -> Path:
    """Return the lock file of a run, which its owner holds; the lock of a killed process is released at once."""
    return root / "locks" / f"{run}.run.lock"


def current_state(root: Path, record: dict[str, Any]) -> str:
    """Return the state in a record of the cache `root`, or interrupted if the run's process is gone."""
    state = str(record.get("state") or "")
    return INTERRUPTED if state == "running" and not _is_at_work(root, record) else state


def _is_at_work(root: Path, record: dict[str, Any]) -> bool:
    """Return True if the process that owns a run is alive."""
    owner = record.get("owner") or {}
    if other_host(record):
        return is_locked(lock_path(root, str(record.get("run"))))
    return processes.is_alive(owner.get("pid"), owner.get("started"))


def other_host(record: dict[str, Any]) -> str:
    """Return the name of the other machine that computes a run; empty if it is this machine or unknown."""
    host = str((record.get("owner") or {}).get("host") or "")
    return "" if host == processes.host() else host


# notes


@validate_form
@dataclass(frozen=True, slots=True)
class RunNotes(LooseForm):
    """The user's notes on a run, in a separate file so that the process of the run never overwrites them."""

    WHERE: ClassVar = "a run's "
    name: Annotated[str, max_length(LONGEST_RUN_NAME), VALID_TEXT, Rule("one line", lambda name: "\n" not in name)] = ""
    """display name of the run; empty for the name of its study"""
    hidden: bool = False
    """True if lists of runs leave it out"""


def read_notes(folder: Path) -> tuple[RunNotes, str]:
    """Return the notes on the run in a folder, and the reason why they cannot be read; both may be empty."""
    path = folder / NOTES
    try:
        return _parse_notes(path, stamp(path))
    except OSError:
        return RunNotes(), ""


@lru_cache(maxsize=1024)
def _parse_notes(path: Path, _: Stamp) -> tuple[RunNotes, str]:
    # the stamp is part of the cache key, so changed notes are read again
    try:
        return RunNotes.parse(safe_parsing.json_file(path, f"the file {path}")), ""
    except (SettingsError, UnreadableError) as error:
        reason = safe_parsing.sentence(error, 200)
        return RunNotes(), f"the notes cannot be read; saving replaces them ({reason})"


def save_notes(store: Store, run: str, run_notes: RunNotes) -> None:
    """Write the notes on a run. Raises StoreError if it does not exist or cannot be written."""
    folder = store.folder("runs", run)
    if not (folder / RECORD).exists():
        raise StoreError(f"there is no run {run!r} in {store.root} any more: choose another one")
    with explain_errors(store.root):
        write_json(folder / NOTES, asdict(run_notes))
