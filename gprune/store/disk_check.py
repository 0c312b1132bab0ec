"""Answers: does the disk of a cache hold what the program needs of it, and what follows where it does not?

Tried in the folder itself, beside a second process that this one starts. What another machine sees can only
be told by another machine: run there in the same folder, at the same time, it is seen here.
"""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from gprune.store.folder import explain
from gprune.system import installation, processes
from gprune.system.files import is_beside, make_folder, remove, write_text
from gprune.system.locks import Lock
from gprune.system.network_files import Mount, mount, move, now, refresh
from gprune.system.processes import QUIET_SECONDS

FOLDER = ".check"
"""folder of the cache in which it is tried"""
CHILD_SECONDS = 60.0
_HERE = processes.host() or "here"
_LONGEST_SECONDS = 600.0
"""what has stood for longer is of a process that was killed"""
_MOST_APART = 60.0
"""seconds that a clock may differ from the disk's before it is worth a word"""


@dataclass(frozen=True, slots=True)
class Tried:
    """One thing that was tried."""

    what: str
    """what was tried"""
    holds: bool
    """whether the disk does it"""
    words: str
    """what was seen, or what follows"""


def tried(root: Path) -> Iterator[Tried]:
    """Tries everything in a cache, made if missing, one after the other; what was made for it is removed.

    Raises StoreError where the folder cannot be written.
    """
    # a name that is swept, should this process be killed
    place = root / FOLDER / f".{_HERE}-{uuid4().hex}"
    try:
        make_folder(place)
        disk = mount(place)
        yield _disk(disk)
        yield from _tried(place, disk)
    except OSError as error:
        raise explain(error, root) from error
    finally:
        remove(place)
        with contextlib.suppress(OSError):
            # of others at the same time it is left
            place.parent.rmdir()


def _tried(place: Path, disk: Mount) -> Iterator[Tried]:
    yield _answer("a file takes the place of another in one step", lambda: _replaced(place))
    yield _answer("a folder is moved, and none is moved onto it", lambda: _moved(place))
    yield _locked(place, disk)
    yield _clock(place)
    if others := _others(place):
        yield Tried("another machine at the same time", True, f"seen here: {', '.join(others)}")


def _others(place: Path) -> list[str]:
    """Names of other machines that try it now."""
    moment, found = now(place), set()
    for path in place.parent.iterdir():
        with contextlib.suppress(FileNotFoundError):
            if is_beside(path.name) and moment - os.lstat(path).st_mtime < _LONGEST_SECONDS:
                found.add(path.name.rpartition("-")[0][1:])
    return sorted(found - {_HERE})


def _disk(disk: Mount) -> Tried:
    if not disk.network:
        return Tried("disk", True, f"{disk.kind or 'of a kind that the system does not name'}")
    words = f"{disk.kind}, of another machine: arrays are read into memory and not mapped"
    return Tried("disk", True, words)


def _answer(what: str, attempt: Callable[[], str]) -> Tried:
    try:
        wrong = attempt()
    except OSError as error:
        wrong = error.strerror or str(error)
    return Tried(what, not wrong, wrong)


def _replaced(place: Path) -> str:
    file = place / "file"
    write_text(file, "old")
    with file.open() as opened:
        write_text(file, "new")
        # who reads on reads the old one to its end; a network file system may tell that it is gone
        with contextlib.suppress(OSError):
            if opened.read() != "old":
                return "a file changes under its reader: keep the cache on another disk"
    return "" if file.read_text() == "new" else "the old file stays: keep the cache on another disk"


def _moved(place: Path) -> str:
    for name in ("one", "two"):
        make_folder(place / name)
        write_text(place / name / "file", name)
    move(place / "one", place / "final")
    with contextlib.suppress(OSError):
        move(place / "two", place / "final")
        return "a folder takes the place of another that is not empty: keep the cache on another disk"
    refresh(place)
    found = (place / "final" / "file").read_text()
    return "" if found == "one" else "what was moved is not what is there: keep the cache on another disk"


def _locked(place: Path, disk: Mount) -> Tried:
    """Whether a lock keeps a second process out, which also has to see what this one has just made."""
    what, lock = "a lock keeps a second process out", Lock(place / "lock")
    if not lock.acquire(0):
        return Tried(what, False, "it cannot be had: keep the cache on another disk")
    try:
        flag = place / "flag"
        write_text(flag, "made by the first")
        had, seen = _second(place / "lock", flag)
    finally:
        lock.release()
    if not had:
        return Tried(what, False, "a second process could not be asked: try again")
    if had != "False":
        words = "it does not: processes may compute the same at the same time, which costs time and no result"
        return Tried(what, False, words)
    if seen != "True":
        return Tried(what, False, "a second process does not see a new file: keep the cache on another disk")
    if lock.leased:
        return Tried(what, True, "by a lease: the disk has no locks, and who is killed elsewhere is waited for a while")
    if disk.local_locks:
        words = f"on this machine alone, as it is mounted ({', '.join(disk.options)}): two machines may compute "
        return Tried(what, False, words + "the same at the same time, which costs time and no result")
    return Tried(what, True, "by the server, for other machines too" if disk.network else "")


def _second(lock: Path, flag: Path) -> tuple[str, str]:
    """Whether a second process has got a lock, and whether it sees a file: True or False, or empty."""
    words = installation.command("gprune.store.disk_check", str(lock), str(flag))
    try:
        done = subprocess.run(
            words, cwd=installation.CHILD_FOLDER, capture_output=True, text=True, timeout=CHILD_SECONDS
        )
    except subprocess.TimeoutExpired:
        return "", ""
    had, _, seen = done.stdout.strip().partition(" ")
    return had, seen


def _clock(place: Path) -> Tried:
    what, apart = "its clock is this machine's", abs(now(place) - time.time())
    if apart < _MOST_APART:
        return Tried(what, True, f"{apart:.1f} seconds apart")
    follows = (
        "a run on another machine may read as interrupted while it goes on"
        if apart >= QUIET_SECONDS
        else "set one of them right"
    )
    return Tried(what, False, f"they are {apart:.0f} seconds apart: {follows}")


if __name__ == "__main__":
    # the second process
    print(Lock(Path(sys.argv[1])).acquire(0), Path(sys.argv[2]).exists())
