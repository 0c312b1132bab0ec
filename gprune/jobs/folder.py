"""What a job leaves on disk: one folder a job, named by its id, and the lock that guards it.

    <cache>/jobs/<id>/study.json     what runs
                      job.json       id, created, label, command, fingerprint; written once
                      state.json     where the job stands; replaced as a whole at each change
                      events.jsonl   progress, one JSON object a line, only appended to
                      log.txt        standard output and error of the run
                      speed.json     of a job that measures speed: its setting, machine and rows
                      slurm.json     of a job that Slurm starts: its number there, and what Slurm last said
                      cancel         exists once someone asked the run to stop

The files are the only truth: the app, the command line and the run itself read and write them, and none of
them needs another to be alive.
"""

import contextlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gprune.store.folder import explain, is_full, is_refused
from gprune.system import files as whole
from gprune.system import safe_parsing
from gprune.system.errors import JobError, UnreadableError
from gprune.system.locks import Lock

STUDY = "study.json"
JOB = "job.json"
STATE = "state.json"
EVENTS = "events.jsonl"
LOG = "log.txt"
CANCEL = "cancel"
SLURM = "slurm.json"
SPEEDS = "speed.json"
LOCK = ".lock"

# UTC date, UTC time, and eight digits that tell apart jobs of the same second
ID_PATTERN = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{8}")
LOCK_SECONDS = 10.0


def root(cache: Path) -> Path:
    """The folder of all jobs of a cache, absolute; it need not exist."""
    with safe_parsing.refused_as(JobError):
        return safe_parsing.path(str(cache), "the cache folder").resolve() / "jobs"


def locate(cache: Path, job_id: str) -> Path:
    """The folder of one job, directly inside the jobs folder; JobError for a malformed id, or no such job."""
    if not ID_PATTERN.fullmatch(job_id):
        raise JobError(f"{job_id[:80]!r} is not a job id: copy one from the list of jobs, as 20260131-120000-0123abcd")
    home = root(cache)
    folder = home / job_id
    if not is_folder(folder):
        raise JobError(f"there is no job {job_id} in {home}: it may have been deleted; pick one from the list")
    return folder


def is_folder(path: Path) -> bool:
    """Whether there is a folder of that name, and no link to one."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def all_folders(home: Path) -> list[Path]:
    """The folders of all jobs, oldest id first, links passed over; empty if there is no jobs folder yet."""
    try:
        names = os.listdir(home)
    except OSError:
        return []
    folders = (home / name for name in sorted(names) if ID_PATTERN.fullmatch(name))
    return [folder for folder in folders if not folder.is_symlink()]


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file; None where the file is missing or damaged."""
    try:
        # what a run reports may be a perplexity beyond every float
        values = safe_parsing.json_file(path, path.name, finite=False)
    except (OSError, UnreadableError):
        return None
    return values if isinstance(values, dict) else None


def write_json(path: Path, values: dict[str, Any], allowed: Callable[[], bool] = lambda: True) -> bool:
    """Replaces a JSON file as a whole: readers see the old object or the new one.

    On a full disk an existing file is overwritten in place instead, which needs no new space: that a job
    ended must be recorded even then. `allowed` is asked when the disk has the new one, right before it takes
    the place; says whether it did. Raises OSError where the file cannot be written either way.
    """
    data = (json.dumps(values, indent=2, default=_plain) + "\n").encode()
    try:
        with whole.replaced(path) as temporary:
            temporary.write_bytes(data)
            whole.settle(temporary)
            if not allowed():
                raise _OvertakenError
    except _OvertakenError:
        return False
    except OSError:
        if not path.exists():
            raise
        if not allowed():
            return False
        with open(path, "r+b") as file:
            file.write(data)
            file.truncate()
    return True


class _OvertakenError(Exception):
    """A file may not be replaced any more; its new content goes."""


def _plain(value: object) -> object:
    """Numpy numbers as Python numbers, anything else that JSON lacks as text."""
    item = getattr(value, "item", None)
    return item() if callable(item) else str(value)


@contextlib.contextmanager
def locked(folder: Path, seconds: float = LOCK_SECONDS) -> Iterator[None]:
    """Holds the lock of one folder; the system frees it if the process dies.

    The lock of the jobs folder is taken before the lock of a job, never the other way round. Raises JobError
    where the folder is missing or cannot be written, or another process holds the lock for too long.
    """
    if not folder.exists():
        # the lock would make the folder anew, with nothing in it
        raise JobError(f"{folder} cannot be written: it was deleted")
    lock = Lock(folder / LOCK, poll=0.01)
    with writable(folder):
        held = lock.acquire(seconds)
    if not held:
        raise JobError(f"another process has held {folder / LOCK} for {seconds:g} seconds: wait a moment and try again")
    try:
        yield
    finally:
        lock.release()


def make(folder: Path) -> None:
    """Makes a folder where there is none; JobError where it cannot be made."""
    with writable(folder):
        whole.make_folder(folder)


@contextlib.contextmanager
def writable(folder: Path) -> Iterator[None]:
    """Around work in a folder: a JobError says why it cannot be written."""
    try:
        yield
    except OSError as error:
        raise unwritable(folder, error) from error


def unwritable(folder: Path, error: OSError) -> JobError:
    """The error that says why a folder cannot be written."""
    if is_full(error) or is_refused(error):
        return JobError(str(explain(error, folder)))
    reason = error.strerror or str(error)
    return JobError(f"{folder} cannot be written ({reason}): set GPRUNE_CACHE to another folder")


def full(folder: Path, error: BaseException) -> str:
    """The sentence for a disk or a quota that is full; empty for any other error."""
    return str(explain(error, folder)) if isinstance(error, OSError) and is_full(error) else ""


def append(path: Path, data: bytes) -> None:
    """Appends bytes in one write that reaches the file at once; on an OSError part of them may be in it."""
    with open(path, "ab", buffering=0) as file:
        if file.write(data) != len(data):
            raise OSError(f"only part of the bytes fitted into {path}")


def last_lines(path: Path, count: int, window: int = 1 << 18) -> list[str]:
    """The last lines of a log as plain text, without colours; a redrawn progress bar counts as one line.

    At most `count`, of the last `window` bytes; a missing log has no lines.
    """

    def end() -> tuple[int, bytes]:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - window))
            return size, file.read(window)

    try:
        size, data = end()
    except OSError:
        return []
    lines = data.decode("utf-8", errors="replace").replace("\r\n", "\n").rstrip().split("\n")
    if size > window:
        # the first line is cut at its beginning
        lines = lines[1:] or lines
    lines = [printable(line.rstrip("\r").rsplit("\r", 1)[-1]) for line in lines]
    return lines[-count:] if count > 0 and any(lines) else []


def printable(line: str) -> str:
    """A line of a log without the codes that move a cursor or change colours."""
    return safe_parsing.printable(line).rstrip()
