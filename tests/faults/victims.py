"""Runs that are there to be disturbed: children of a process that has loaded everything once.

A forked child runs a study as the command line does, so that one victim costs about a second, and a hundred
of them a few minutes. Nothing of it shares state with the next one but the cache.
"""

import errno
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import damage

from gprune.__main__ import main

LONGEST_SECONDS = 600.0
FSYNC = "fsync"
# what changes files, as Python reports it before it is done; it reports no fsync
OPERATIONS = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.chmod", "fcntl.flock", FSYNC)

Prepare = Callable[[], Callable[[], None]]
"""Called in the child before it runs; what it returns is called once it has run."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a victim ended."""

    code: int
    """exit code; minus the signal's number if a signal ended it"""
    said: str
    """what it printed"""


def undisturbed() -> Callable[[], None]:
    """Nothing is done to the victim."""
    return lambda: None


def start(study: Path, cache: Path, prepare: Prepare, log: Path) -> int:
    """Forks a child that runs a study, and returns its process number.

    Args:
        study: the study's file.
        cache: the cache.
        prepare: what is done to it.
        log: where what it prints goes.
    """
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(out, 1)
        os.dup2(out, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        # as a process of its own would begin
        damage.fresh_process()
        finish = prepare()
        code = main(["run", str(study), "--cache", str(cache)])
        finish()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def wait(pid: int) -> int:
    """Waits for a child.

    Returns:
        Its exit code; minus the signal's number if a signal ended it.
    """
    began = time.monotonic()
    while True:
        result, status = os.waitpid(pid, os.WNOHANG)
        if result:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() - began > LONGEST_SECONDS:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.002)


def run(study: Path, cache: Path, prepare: Prepare = undisturbed) -> Outcome:
    """Runs a study in a child to its end, whichever that is."""
    log = cache.with_name(f"{cache.name}.log")
    log.unlink(missing_ok=True)
    code = wait(start(study, cache, prepare, log))
    return Outcome(code, log.read_text(encoding="utf-8", errors="replace"))


def recording(root: Path, into: Path) -> Prepare:
    """Write down how many operations of each kind a victim does below a folder, and the names of its events.

    An event is the first file or folder of its kind that takes its final name.
    """

    def prepare() -> Callable[[], None]:
        operations: Counter[str] = Counter()
        events: dict[str, None] = {}
        _watch(str(root), lambda name: operations.update([name]))
        _watch_renames(root, lambda event: events.setdefault(event))
        return lambda: into.write_text(json.dumps([operations, [*events]])) and None

    return prepare


def killed_at(operation: str, number: int, root: Path) -> Prepare:
    """Kills the victim right before its so many-th operation of a kind below a folder.

    Args:
        operation: one of OPERATIONS.
        number: which one, from 1.
        root: the folder; operations elsewhere do not count.
    """

    def prepare() -> Callable[[], None]:
        count = 0

        def kill(name: str) -> None:
            nonlocal count
            count += name == operation
            if name == operation and count >= number:
                os.kill(os.getpid(), signal.SIGKILL)

        _watch(str(root), kill)
        return lambda: None

    return prepare


def disturbed_at(events: Collection[str], root: Path, disturb: Callable[[], None]) -> Prepare:
    """Disturb the victim right before each of some events of `recording`."""

    def prepare() -> Callable[[], None]:
        _watch_renames(root, lambda actual: disturb() if actual in events else None)
        return lambda: None

    return prepare


def _watch_renames(root: Path, report: Callable[[str], None]) -> None:
    def hook(operation: str, arguments: tuple[Any, ...]) -> None:
        if operation == "os.rename" and str(arguments[1]).startswith(f"{root}{os.sep}"):
            final = Path(arguments[1]).relative_to(root)
            report(f"{final.parts[0]}{final.suffix}")

    sys.addaudithook(hook)


def kill_itself() -> None:
    """End this process at once, as a killed one ends."""
    os.kill(os.getpid(), signal.SIGKILL)


def fill_disk() -> None:
    """Fail as a write to a full disk does."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _watch(root: str, tell: Callable[[str], None]) -> None:
    """Tells of every operation of this process below a folder before it is done."""

    def hook(name: str, arguments: tuple[Any, ...]) -> None:
        if name not in OPERATIONS:
            return
        if name == "fcntl.flock":
            tell(name)
        elif str(arguments[0]).startswith(root) and (name != "open" or _changes(arguments)):
            tell(name)

    sys.addaudithook(hook)
    original = os.fsync

    def fsync(descriptor: int) -> None:
        tell(FSYNC)
        original(descriptor)

    os.fsync = fsync


def _changes(arguments: tuple[Any, ...]) -> bool:
    mode, flags = (*arguments[1:3], None, None)[:2]
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
