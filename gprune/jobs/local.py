"""Processes of jobs on this machine: command lines, start, liveness, signals.

A job is one process in a session of its own, so that closing the tab, the app or the terminal does not end it.
"""

import contextlib
import fcntl
import os
import signal
import subprocess
from pathlib import Path

from gprune.jobs import folder as files
from gprune.jobs.folder import JobState
from gprune.system import installation, machine
from gprune.system.errors import JobError
from gprune.system.files import WITHOUT_LOCKS, is_locked
from gprune.system.machine import is_alive

_children: list[subprocess.Popen[bytes]] = []


def environment() -> dict[str, str]:
    """Return the environment of a job: threads, and a log that is UTF-8 and unbuffered."""
    values = {**os.environ, machine.THREADS_VARIABLE: machine.threads()}
    if installation.CHILD_FOLDER is not None:
        # a checkout, for jobs that start in another folder
        paths = (str(installation.CHILD_FOLDER), os.environ.get("PYTHONPATH", ""))
        values["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return values | {"PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8"}


def start_worker(folder: Path, cwd: str = "") -> int | None:
    """Start the process of a job and return its number. Raises OSError if that fails."""
    with open(folder / files.LOG, "ab") as log:
        process = subprocess.Popen(
            installation.command("gprune.jobs.worker", str(folder)),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=cwd or installation.CHILD_FOLDER,
            env=environment() | {"GPRUNE_CACHE": str(folder.parents[1])},
            start_new_session=True,
        )
    _children.append(process)
    return process.pid


def reap() -> None:
    """Collect ended children, so that none stays a zombie."""
    _children[:] = [process for process in _children if process.poll() is None]


def has_process(folder: Path, state: JobState) -> bool:
    """Return True if the process of a job lives: by its number and create time here, by its lock on another host."""
    if state.host in ("", machine.host()):
        return is_alive(state.pid, state.process_started)
    return is_locked(folder / files.ALIVE)


def try_lock(path: Path) -> int | None:
    """Return a descriptor that holds the lock of a file until the process ends, or None if another holds it.

    The descriptor passes to a program that takes the place of this one. Raises JobError on a disk without locks.
    """
    with files.writable(path.parent):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            return None
        raise JobError(WITHOUT_LOCKS.format(path.parent, error.strerror)) from error
    os.set_inheritable(descriptor, True)
    return descriptor


def send(pid: int, started: float | None, number: signal.Signals) -> None:
    """Signal a process, with its whole group if it leads one; do nothing if it is gone."""
    if not is_alive(pid, started):
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.getpgid(pid) == pid:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)
