"""Writes the records of runs, so that a full disk can still be told.

A record begins with its state and its error in a room of fixed size. Saving it replaces the whole file; where
that needs space which is not there, these two are rewritten in place without any: within one page, so that a
reader never meets half of them, and within what a disk writes at once, so that no failure of power leaves it.

The record of a run that goes on names its owner. Whether that process still runs is asked of the system where
it is one of this machine; of another machine nothing can be asked, so there its record counts as long as it
is not older than QUIET_SECONDS: an owner writes at least every BEAT_SECONDS.
"""

import json
import os
import time
from datetime import datetime
from typing import Any

from gprune.pipeline.runs.reading import RECORD
from gprune.store import Store, explained
from gprune.system import processes
from gprune.system.files import make_folder, write_bytes
from gprune.system.locks import Lock
from gprune.system.processes import BEAT_SECONDS as BEAT_SECONDS
from gprune.system.processes import QUIET_SECONDS as QUIET_SECONDS
from gprune.system.safe_parsing import SENTENCE_LENGTH, sentence

ROOM = 2048
"""bytes of state and error: an error has at most 300 characters, of six bytes each"""
SECTOR = 512
"""bytes that a disk writes all or none of"""


def save(store: Store, run: str, values: dict[str, Any]) -> None:
    """Writes the record of a run (study, keys of its stages, state, result) in one step.

    Raises StoreError where the disk is full or the cache is read-only.
    """
    folder = store.folder("runs", run)
    rest = {name: value for name, value in values.items() if name not in ("state", "error")}
    tail = json.dumps(rest, indent=1, ensure_ascii=False).encode("utf-8")
    known = "state" in values
    data = _head(values["state"], values.get("error")) + tail[1:] if known else tail
    with explained(store.root):
        make_folder(folder)
        write_bytes(folder / RECORD, data)


def restate(store: Store, run: str, state: str, error: str | None) -> bool:
    """Changes the state in a record that is there, without any new space; says whether that was possible."""
    try:
        with open(store.folder("runs", run) / RECORD, "r+b", buffering=0) as file:
            found = file.read(ROOM)
            if len(found) < ROOM or not found.startswith(b'{"state": ') or not found.endswith(b" ,"):
                return False
            # what stands behind the first sector was blank before and is blank again
            heads = (_head(state, error, length) for length in (SENTENCE_LENGTH, 150, 70))
            chosen = next((head for head in heads if not head[SECTOR:-1].strip()), b"")
            os.pwrite(file.fileno(), chosen, 0)
            os.fsync(file.fileno())
    except OSError:
        return False
    return True


def _head(state: object, error: object, length: int = SENTENCE_LENGTH) -> bytes:
    """The beginning of a record, up to its third field; its error has so many characters at most."""
    values = {"state": state, "error": error if error is None else sentence(error, length)}
    text = json.dumps(values, ensure_ascii=False).encode("utf-8", "replace")[:-1]
    return text.ljust(ROOM - 1) + b","


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
