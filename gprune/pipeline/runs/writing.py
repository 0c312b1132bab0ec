"""Write the records of runs, and tell whether the process of one still runs.

The record of a run that goes on names its owner. Whether that process still runs is asked of the system where
it is one of this machine; a record of another machine counts as long as it is not older than QUIET_SECONDS: an
owner writes at least every BEAT_SECONDS.
"""

import time
from datetime import datetime
from typing import Any

from gprune.pipeline.runs.reading import RECORD
from gprune.store import Store, explained
from gprune.system import processes
from gprune.system.files import make_folder, write_json
from gprune.system.locks import Lock
from gprune.system.processes import BEAT_SECONDS as BEAT_SECONDS
from gprune.system.processes import QUIET_SECONDS as QUIET_SECONDS


def save(store: Store, run: str, values: dict[str, Any]) -> None:
    """Replace the record of a run: study, keys of its stages, state, result.

    Raises StoreError where the disk is full or the cache is read-only.
    """
    folder = store.folder("runs", run)
    with explained(store.root):
        make_folder(folder)
        write_json(folder / RECORD, values)


INTERRUPTED = "interrupted"
"""the state of a run that a signal has ended, or that reads as running while no process is at work on it"""


class Ownership:
    """The right to write one run's record; a killed process loses it at once."""

    def __init__(self, store: Store, run: str) -> None:
        """Takes nothing yet."""
        self._path = store.root / "locks" / f"{store.folder('runs', run).name}.run.lock"
        self._lock = Lock(self._path)
        self.writable = True
        """whether the cache let the lock be tried"""

    @property
    def held(self) -> bool:
        """Whether this process has it."""
        return self._lock.held

    def take(self) -> bool:
        """Takes it if nobody has it; says whether this process has it now."""
        if self.held:
            return True
        try:
            make_folder(self._path.parent)
            self._lock.acquire(0)
            self.writable = True
        except OSError:
            # of a cache that cannot be written nothing can be owned
            self.writable = False
        return self.held

    def give_up(self) -> None:
        """Lets another process have it."""
        self._lock.release()


def standing(record: dict[str, Any]) -> str:
    """The state of a run as it is now: what its record says, or interrupted where its process is gone."""
    state = str(record.get("state") or "")
    return INTERRUPTED if state == "running" and not _at_work(record) else state


def _at_work(record: dict[str, Any]) -> bool:
    owner = record.get("owner") or {}
    if not owner.get("pid") or elsewhere(record):
        # a moment in the future is one of a clock that was set back since
        return abs(age(record)) < QUIET_SECONDS
    return owner.get("boot") == processes.boot() and processes.is_alive(owner["pid"], owner.get("started"))


def elsewhere(record: dict[str, Any]) -> str:
    """The machine on which a run goes on, if it is another one than this; else empty."""
    host = str((record.get("owner") or {}).get("host") or "")
    return "" if host == processes.host() else host


def age(record: dict[str, Any]) -> float:
    """Seconds since a record was written, by the clock; infinite where it does not say."""
    try:
        return time.time() - datetime.fromisoformat(str(record.get("updated"))).timestamp()
    except (ValueError, OverflowError, OSError):
        return float("inf")
