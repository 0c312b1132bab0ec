"""Write the records of runs, and tell whether the process of a run still works on it.

The record of a run that goes on names its owner: by number and create time on this machine, and by the run's lock
on another one.
"""

from pathlib import Path
from typing import Any

from gprune.pipeline.runs.reading import RECORD
from gprune.store import Store, explain_errors
from gprune.system import machine
from gprune.system.files import is_locked, make_folder, write_json

INTERRUPTED = "interrupted"
"""the state of a run that a signal has ended, or that reads as running while no process is at work on it"""


def save(store: Store, run: str, values: dict[str, Any]) -> None:
    """Replace the record of a run: study, keys of its stages, state, result.

    Raises StoreError if the disk is full or the cache is read-only.
    """
    folder = store.folder("runs", run)
    with explain_errors(store.root):
        make_folder(folder)
        write_json(folder / RECORD, values)


def lock_path(root: Path, run: str) -> Path:
    """Return the file that the only writer of a run locks; a killed process loses the lock at once."""
    return root / "locks" / f"{run}.run.lock"


def current_state(root: Path, record: dict[str, Any]) -> str:
    """Return the state in a record of the cache `root`, or interrupted if its process is gone."""
    state = str(record.get("state") or "")
    return INTERRUPTED if state == "running" and not _is_at_work(root, record) else state


def _is_at_work(root: Path, record: dict[str, Any]) -> bool:
    owner = record.get("owner") or {}
    if other_host(record):
        return is_locked(lock_path(root, str(record.get("run"))))
    return machine.is_alive(owner.get("pid"), owner.get("started"))


def other_host(record: dict[str, Any]) -> str:
    """Return the name of the machine of a run if it is not this one; else an empty text."""
    host = str((record.get("owner") or {}).get("host") or "")
    return "" if host == machine.host() else host
