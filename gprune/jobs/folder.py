"""Files of a job: one folder per job, named by its id, with the lock that guards it.

    <cache>/jobs/<id>/study.json     the study
                      job.json       id, created, label, command, arguments; written once
                      state.json     state, host, pid, create time; replaced as a whole at each change
                      events.jsonl   progress, one JSON object a line
                      log.txt        standard output and error
                      speed.json     setting, machine and rows of a speed measurement

The app, the command line and the job itself read and write these files and nothing else.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gprune.store import store_error
from gprune.system import safe_parsing
from gprune.system.errors import JobError, UnreadableError
from gprune.system.locks import Lock

STUDY = "study.json"
JOB = "job.json"
STATE = "state.json"
EVENTS = "events.jsonl"
LOG = "log.txt"
SPEEDS = "speed.json"
LOCK = ".lock"
ALIVE = ".alive"
"""Locked by the process of the job as long as it lives, for readers on other hosts."""

# UTC date, UTC time, and eight digits that distinguish jobs of the same second
ID_PATTERN = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{8}")
LOCK_SECONDS = 10.0


def root(cache: Path) -> Path:
    """Return the folder of all jobs of a cache; it need not exist."""
    with safe_parsing.reraise_as(JobError):
        return safe_parsing.path(str(cache), "the cache folder").resolve() / "jobs"


def locate(cache: Path, job_id: str) -> Path:
    """Return the folder of one job; JobError for a malformed or unknown id."""
    if not ID_PATTERN.fullmatch(job_id):
        raise JobError(f"{job_id[:80]!r} is not a job id: copy one from the list of jobs, as 20260131-120000-0123abcd")
    folder = root(cache) / job_id
    if not folder.is_dir():
        raise JobError(f"there is no job {job_id} in {folder.parent}: it may have been deleted; pick one from the list")
    return folder


def all_folders(home: Path) -> list[Path]:
    """Return the folders of all jobs, oldest id first."""
    try:
        names = os.listdir(home)
    except OSError:
        return []
    return [home / name for name in sorted(names) if ID_PATTERN.fullmatch(name)]


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the object in a JSON file, or None if the file is missing or damaged."""
    try:
        values = safe_parsing.json_file(path, path.name, finite=False)
    except (OSError, UnreadableError):
        return None
    return values if isinstance(values, dict) else None


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder. Raises JobError if it is missing, not writable or locked for too long."""
    if not folder.exists():
        # the lock would create the folder again
        raise JobError(f"{folder} cannot be written: it was deleted")
    lock = Lock(folder / LOCK, poll=0.01)
    with writable(folder):
        acquired = lock.acquire(LOCK_SECONDS)
    if not acquired:
        raise JobError(f"another process has held {folder / LOCK} for {LOCK_SECONDS:g} seconds: try again")
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def writable(folder: Path) -> Iterator[None]:
    """Turn an OSError of work in a folder into a JobError that says why it cannot be written."""
    try:
        yield
    except OSError as error:
        raise JobError(str(store_error(error, folder))) from error


def last_lines(path: Path, count: int, window: int = 1 << 18) -> list[str]:
    """Return the last lines of a log as plain text; a redrawn progress bar counts as one line.

    At most `count` lines of the last `window` bytes; a missing log has no lines.
    """
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - window))
            data = file.read(window)
    except OSError:
        return []
    lines = data.decode("utf-8", errors="replace").replace("\r\n", "\n").rstrip().split("\n")
    if size > window:
        # the first line is incomplete
        lines = lines[1:] or lines
    lines = [printable(line.rstrip("\r").rsplit("\r", 1)[-1]) for line in lines]
    return lines[-count:] if count > 0 and any(lines) else []


_TERMINAL_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def printable(line: str) -> str:
    """Return a line of a log without codes that move a cursor or change colours."""
    return _TERMINAL_CODES.sub("", line).rstrip()
