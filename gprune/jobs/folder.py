"""Files of a job: one folder per job, named by its id, with its record, its state and the lock that guards it.

    <cache>/jobs/<id>/study.json     the study
                      job.json       id, created, label, command, arguments; written once
                      state.json     state, host, pid, create time; replaced as a whole at each change
                      events.jsonl   progress, one JSON object a line
                      log.txt        standard output and error
                      speed.json     setting, machine and rows of a speed measurement

The app, the command line and the job share only these files. A job is queued, then running, and finally done, failed,
cancelled, or interrupted by a signal. A running job that was asked to stop is cancelling until its process has ended.
The state is changed only under the job's lock.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar

from gprune.jobs import processes
from gprune.store import store_error
from gprune.study import Study, run_name
from gprune.system import installation, safe_parsing
from gprune.system.errors import JobError, SettingsError, UnreadableError
from gprune.system.files import Lock, make_folder, write_json, write_text
from gprune.system.forms import Listed, LooseForm, one_of
from gprune.system.safe_parsing import sentence

STUDY = "study.json"
JOB = "job.json"
STATE = "state.json"
EVENTS = "events.jsonl"
LOG = "log.txt"
SPEEDS = "speed.json"
LOCK = ".lock"
ALIVE = ".alive"
"""Lock that the job's process holds while it lives, for readers on other hosts."""

# UTC date, UTC time, and eight hexadecimal digits that distinguish jobs of the same second
ID_PATTERN = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{8}")
LOCK_SECONDS = 10.0
"""Seconds after which waiting for a lock fails."""
_TERMINAL_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
FINISHED = ("cancelled", "interrupted", "failed", "done")
STATES = ("queued", "running", "cancelling", *FINISHED)
REMEDY = "start it again: finished stages are kept"
"""Remedy for a failed job."""
ERROR = "error: "
"""Beginning of the line in which a command reports its failure."""
LOST = "the process ended without a result (killed, out of memory, or the machine restarted)"
DAMAGED_STATE = f"the job's {STATE} is missing or damaged; {REMEDY}"
CommandBuilder = Callable[[Path, Sequence[str]], list[str]]
"""Returns the argument list of a job's process from the job's folder and arguments."""
SPEED = "speed"
"""Command that measures the speed of named models."""
EXPORTS = ("export", "gguf", "map")
"""Commands that compute on the CPU and create no run."""
SERIES = ("sweep", "reproduce")
"""Commands that submit jobs and need no device."""
CPU = "cpu"
NO_DEVICE = "none"
"""Device of a job that computes nothing itself, such as a sweep that submits its studies."""


def root(cache: Path) -> Path:
    """Return the folder of all jobs of a cache, which may not exist yet."""
    with safe_parsing.reraise_as(JobError):
        return safe_parsing.path(str(cache), "the cache folder").resolve() / "jobs"


def locate(cache: Path, job_id: str) -> Path:
    """Return the folder of one job. Raises JobError for an invalid or unknown id."""
    if not ID_PATTERN.fullmatch(job_id):
        raise JobError(f"{job_id[:80]!r} is not a job id: copy one from the list of jobs, as 20260131-120000-0123abcd")
    folder = root(cache) / job_id
    if not folder.is_dir():
        raise JobError(f"there is no job {job_id} in {folder.parent}: it may have been deleted; pick one from the list")
    return folder


def all_folders(home: Path) -> list[Path]:
    """Return the folders of all jobs, oldest id first; `home` is the folder that `root` returns."""
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
    """Hold the lock of a folder. Raises JobError if the folder is missing, not writable or locked for too long."""
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
    """Turn an OSError of the block into a JobError that says why the folder cannot be written."""
    try:
        yield
    except OSError as error:
        raise JobError(str(store_error(error, folder))) from error


def last_lines(path: Path, count: int, window: int = 1 << 18) -> list[str]:
    """Return the last lines of a log as plain text, at most `count` lines of its last `window` bytes.

    Of a line that a progress bar has overwritten, only the last version counts. A missing log has no lines.
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


def printable(line: str) -> str:
    """Return a line of a log without terminal codes for cursor and colour."""
    return _TERMINAL_CODES.sub("", line).rstrip()


def is_other_command(arguments: Sequence[str]) -> bool:
    """Return True if the arguments of a job name a command other than `run`."""
    return bool(arguments) and arguments[0] in (*EXPORTS, SPEED, *SERIES)


def is_speed_command(arguments: Sequence[str]) -> bool:
    """Return True if a job measures the speed of named models."""
    return bool(arguments) and arguments[0] == SPEED


def worker_command(folder: Path, arguments: Sequence[str]) -> list[str]:
    """Return the command line of a job: `run` with the job's study, or the command at the start of the arguments."""
    if is_other_command(arguments):
        return installation.command("gprune", *arguments, "--job", str(folder))
    study, cache = str(folder / STUDY), str(folder.parents[1])
    return installation.command("gprune", "run", study, "--job", str(folder), "--cache", cache, *arguments)


@dataclass(frozen=True)
class JobState(LooseForm):
    """State of a job; times are seconds since 1970."""

    state: Annotated[str, one_of(STATES)] = "queued"
    host: str = ""
    """Machine of the process."""
    pid: int | None = None
    process_started: float | None = None
    """Start time of the process (see `gprune.system.machine`), which distinguishes it from later processes with its
    number.
    """
    started: float | None = None
    """When the job left the queue."""
    ended: float | None = None
    cancel_requested: float | None = None
    error: str = ""
    """One sentence, empty unless failed."""
    device: str = ""
    """GPU that the queue assigned; empty if there is none."""

    @property
    def finished(self) -> bool:
        """Return True if the job has ended."""
        return self.state in FINISHED

    @property
    def killed(self) -> bool:
        """Return True if the process ended without a report; the job may succeed when started again."""
        return self.error.startswith(LOST)

    def elapsed_at(self, moment: float) -> float | None:
        """Return the seconds from the job's start to its end, or to the time `moment`; None while it waits.

        `moment` is in seconds since 1970.
        """
        return None if self.started is None else max(0.0, (self.ended or moment) - self.started)

    def with_process(self, pid: int) -> JobState:
        """Return the state with the process `pid` of this machine."""
        return replace(self, pid=pid, process_started=processes.process_start(pid), host=processes.host())

    def ended_as(self, state: str, error: str = "") -> JobState:
        """Return the job's state after it has ended now as `state`, one of FINISHED."""
        return replace(self, state=state, error=safe_parsing.sentence(error), ended=time.time())

    def after_death(self, reason: str) -> JobState:
        """Return the state of a job whose process is gone; an end that the process has reported is kept."""
        if self.finished:
            return self
        return self.ended_as("cancelled") if self.state == "cancelling" else self.ended_as("failed", reason)


def read_state(folder: Path) -> JobState:
    """Return the state of a job; a damaged file counts as a failed job, with the reason."""
    values = read_json(folder / STATE) or {}
    # a file without a state counts as damaged, although the class has a default
    try:
        return JobState.parse({"state": ""} | values)
    except SettingsError:
        return JobState(state="failed", error=DAMAGED_STATE)


def write_state(folder: Path, state: JobState) -> None:
    """Replace the state of a job. Raises JobError if it cannot be written."""
    with writable(folder):
        write_json(folder / STATE, asdict(state))


def update(folder: Path, change: Callable[[JobState], JobState]) -> JobState:
    """Change the state under the job's lock, and return it. Raises JobError if it cannot be written."""
    with lock_folder(folder):
        before = read_state(folder)
        after = change(before)
        if after != before:
            write_state(folder, after)
        return after


@dataclass(frozen=True, kw_only=True)
class JobRecord(LooseForm):
    """The constant facts of a job in ``job.json``; times are seconds since 1970."""

    WHAT: ClassVar = "it"
    """How an error message refers to the file."""
    label: str
    created: float
    command: Listed[str]
    """Argument list of the process."""
    arguments: Listed[str]
    """Arguments that were added to the default command."""
    fingerprint: str
    """Hash of the study and the arguments, equal for jobs that do the same work."""
    asks: str = "auto"
    """Requested device, as in a study."""
    timed: bool = False
    """True if the job measures speed."""
    run: str = ""
    """Name of the run that the job computes or reads."""
    cwd: str = ""
    """Folder in which the process starts; empty for the default folder."""


@dataclass(frozen=True, kw_only=True)
class Job(JobRecord, JobState):
    """One job: its record and its state."""

    id: str
    folder: Path
    position: int | None = None
    """Position in the queue from 1; None unless queued."""

    @property
    def creates_no_run(self) -> bool:
        """Return True if the job runs a command other than `run`, such as an export or a sweep."""
        return is_other_command(self.arguments)

    @property
    def active(self) -> bool:
        """Return True if the job waits or runs."""
        return not self.finished

    @property
    def elapsed(self) -> float | None:
        """Return the seconds since the job left the queue; None while it waits."""
        return self.elapsed_at(time.time())


def fingerprint(study: Study, arguments: Sequence[str], cwd: str = "") -> str:
    """Return the SHA-256 of the study, without its display name, the arguments and the folder of a job.

    Two jobs with the same fingerprint do the same work.
    """
    return hashlib.sha256(json.dumps([study.digest, list(arguments), cwd]).encode()).hexdigest()


def measures_speed(study: Study, until: str = "all") -> bool:
    """Return True if a run of a study up to `until` measures speed."""
    return study.evaluation.speed != "none" and until in ("perplexity", "all")


def _parse_device(study: Study, arguments: Sequence[str]) -> str:
    """Return the device that a job requests, by its command, the command's options, or the study."""
    if arguments and arguments[0] in SERIES:
        return NO_DEVICE
    if not is_speed_command(arguments):
        return CPU if is_other_command(arguments) else study.device
    # each argument by the argument before it, so that both `--device=cpu` and `--device cpu` are recognized
    options = dict(pairwise(part for word in arguments for part in word.split("=", 1)))
    return options.get("--device") or (CPU if options.get("--preset") == "cpu" else study.device)


def create(home: Path, study: Study, label: str, arguments: Sequence[str], build: CommandBuilder, cwd: str = "") -> Job:
    """Write the folder of a new job below `home`, which appears only when it is complete.

    An empty `label` stands for the study's name; for `build` see CommandBuilder. Raises JobError if the folder cannot
    be written.
    """
    created, nonce, digest = time.time(), secrets.token_hex(8), fingerprint(study, arguments, cwd)
    folder = home / (time.strftime("%Y%m%d-%H%M%S", time.gmtime(created)) + f"-{nonce[:8]}")
    until = next((value for option, value in pairwise(arguments) if option == "--until"), "all")
    record = {
        "id": folder.name,
        "created": created,
        "label": sentence(label or study.name or f"{Path(study.model).name} {study.metric} {study.retention:g}"),
        "command": build(folder, arguments),
        "arguments": list(arguments),
        "fingerprint": digest,
        "asks": _parse_device(study, arguments),
        # stored here so that readers need not open the study of every job
        "run": run_name(study),
        "timed": is_speed_command(arguments) or (not is_other_command(arguments) and measures_speed(study, until)),
        "cwd": cwd,
    }
    draft = home / f".new-{nonce}"
    try:
        with writable(home):
            make_folder(draft)
            write_text(draft / STUDY, study.to_json())
            write_json(draft / JOB, record)
            write_state(draft, JobState())
            draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return read_job(folder)


def read_job(folder: Path) -> Job:
    """Return one job without its position in the queue. Raises JobError if its record is missing or damaged."""
    try:
        record = JobRecord.parse(read_json(folder / JOB) or {})
    except SettingsError as error:
        reason = f"its {JOB} is missing or damaged ({error})"
        raise JobError(f"job {folder.name} cannot be read, {reason}: submit its study again") from error
    return Job(id=folder.name, folder=folder, **vars(record), **vars(read_state(folder)))
