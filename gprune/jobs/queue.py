"""List, submit, cancel and resume jobs, run one job per device at a time, and manage their processes on this machine.

Every job is a process with its own session from its submission on, so that it continues when the tab, the app or the
terminal is closed. The process itself waits for its device, see `gprune.jobs.worker`. ``GPRUNE_JOB_DEVICES`` names
GPUs, each for one job at a time. A study with device cpu waits for the CPU only. Without this variable the machine runs
one job at a time, or the number in ``GPRUNE_JOB_SLOTS``.
"""

import contextlib
import fcntl
import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from gprune.jobs import folder as files
from gprune.jobs import processes
from gprune.jobs.folder import ERROR, LOST, REMEDY, Job, JobState, create, fingerprint, read_job, read_state, update
from gprune.jobs.reporting import JobProgress, measure_progress, read_trace
from gprune.study import Study, from_file
from gprune.system import installation, machine
from gprune.system.errors import JobError, SettingsError
from gprune.system.files import WITHOUT_LOCKS, is_locked, make_folder
from gprune.system.safe_parsing import quote

SLOTS_VARIABLE = "GPRUNE_JOB_SLOTS"
DEVICES_VARIABLE = "GPRUNE_JOB_DEVICES"
OPEN_CHOICE = ("auto", "cuda")
"""Values of a study's device for which the queue chooses the GPU."""
_GPU = re.compile(r"cuda:(0|[1-9][0-9]?)", re.ASCII)
_VISIBLE = "CUDA_VISIBLE_DEVICES"
"""Environment variable with the GPUs that a process can use."""
GRACE_SECONDS = 30.0
"""Seconds after which a process that was asked to stop is killed."""
START_SECONDS = 30.0
"""Seconds after which a queued job without a process counts as lost."""
_children: list[subprocess.Popen[bytes]] = []
"""Processes that this process has started and not yet collected."""


def slots() -> int:
    """Return the number of jobs that run at a time if no devices are named. Raises JobError for an invalid value."""
    text = os.environ.get(SLOTS_VARIABLE, "1")
    if not text.isdecimal() or int(text) < 1:
        raise JobError(f"{SLOTS_VARIABLE} must be a whole number of at least 1, or not set (got {text!r})")
    return int(text)


def devices() -> tuple[str, ...]:
    """Return the named GPUs; empty if slots are used. Raises JobError for an invalid value."""
    text = os.environ.get(DEVICES_VARIABLE, "")
    names = tuple(text.split())
    if len(set(names)) < len(names) or not all(_GPU.fullmatch(name) for name in names):
        raise JobError(
            f"{DEVICES_VARIABLE} must name GPUs, each once, as 'cuda:0 cuda:1', or not be set: a study asks "
            f"for the CPU itself, by its device (got {quote(text)})"
        )
    return names


def require_valid_devices() -> None:
    """Raise JobError if a setting is invalid or names a GPU that this machine does not have."""
    slots()
    count = len(machine.cards()) if devices() else 0
    absent = next((name for name in devices() if _device_number(name) >= count), None)
    if absent is not None:
        raise JobError(f"{DEVICES_VARIABLE} names {absent}, and this machine shows {count} GPUs: name others, or none")


def max_jobs() -> int:
    """Return the maximum number of jobs that run at a time."""
    return len(devices()) or slots()


def device_candidates(asks: str, timed: bool) -> tuple[tuple[str, ...], int]:
    """Return the devices or slots that a job may use, and the number of them that it needs.

    `asks` is the requested device, and `timed` is True for a speed measurement. Such a job uses the first GPU, so that
    all speeds are of one device, or else all slots.
    """
    if asks == files.NO_DEVICE:
        return (), 0
    names = devices()
    if not names:
        names = tuple(f"slot{number}" for number in range(slots()))
        return names, len(names) if timed else 1
    if asks not in OPEN_CHOICE:
        return (asks,), 1
    return (names[:1] if timed else names), 1


def visible_device(device: str) -> dict[str, str]:
    """Return the environment variable that makes only one of the GPUs of this process visible to a job.

    Empty if `device` is not a GPU. Raises JobError if this process does not see the GPU.
    """
    if not _GPU.fullmatch(device):
        return {}
    value = os.environ.get(_VISIBLE)
    if value is None:
        return {_VISIBLE: str(_device_number(device))}
    names = value.split(",")
    if _device_number(device) >= len(names):
        raise JobError(f"there is no {device} among {_VISIBLE}={value}")
    return {_VISIBLE: names[_device_number(device)].strip()}


def _device_number(device: str) -> int:
    return int(device.partition(":")[2])


def jobs(cache: Path) -> list[Job]:
    """Return all readable jobs of a cache, newest first."""
    readable_jobs = []
    for folder in files.all_folders(files.root(cache)):
        with contextlib.suppress(JobError):
            readable_jobs.append(read_job(folder))
    readable_jobs.sort(key=lambda job: (job.created, job.id), reverse=True)
    queued_ids = [job.id for job in reversed(readable_jobs) if job.state == "queued"]
    positions = {job_id: position for position, job_id in enumerate(queued_ids, start=1)}
    return [replace(job, position=positions.get(job.id)) for job in readable_jobs]


def get(cache: Path, job_id: str) -> Job:
    """Return one job. Raises JobError if it does not exist or its record is damaged."""
    job = read_job(files.locate(cache, job_id))
    if job.state != "queued":
        return job
    # the position in the queue depends on the other jobs
    return next((other for other in jobs(cache) if other.id == job_id), job)


def study_of(cache: Path, job_id: str) -> Study:
    """Return the study of a job. Raises JobError if it cannot be read."""
    path = files.locate(cache, job_id) / files.STUDY
    try:
        return from_file(path)
    except SettingsError as error:
        raise JobError(f"the study of job {job_id} is not valid any more, submit it again: {error}") from error


def progress(cache: Path, job_id: str) -> JobProgress:
    """Return the progress of a job: its latest event, the time since its start and the time of each stage."""
    folder = files.locate(cache, job_id)
    return measure_progress(read_trace(folder / files.EVENTS), read_state(folder), time.time())


def log_tail(cache: Path, job_id: str, lines: int = 200) -> list[str]:
    """Return the last lines of a job's log as plain text."""
    return files.last_lines(files.locate(cache, job_id) / files.LOG, lines)


def at_work(cache: Path) -> list[Job]:
    """Return the queued and running jobs, without those whose process is gone."""
    active = [job for job in jobs(cache) if job.active]
    return [job for job in active if job.pid is None or has_process(job.folder, job)]


def submit(
    cache: Path,
    study: Study,
    label: str = "",
    arguments: Sequence[str] = (),
    build: files.CommandBuilder = files.worker_command,
    cwd: str = "",
) -> Job:
    """Start a job, which waits until its device is free.

    Returns the new job, or an active job that does the same work, so that a double click starts only one job. For
    `label` and `build` see `folder.create`; `cwd` is the folder in which the process starts. Raises JobError if the
    cache cannot be written or the device settings are invalid.
    """
    home = files.root(cache)
    require_valid_devices()
    with files.writable(home):
        make_folder(home)
    reconcile(cache)
    with files.lock_folder(home):
        active = [job for job in jobs(cache) if job.active and job.state != "cancelling"]
        digest = fingerprint(study, arguments, cwd)
        duplicate = next((job for job in active if job.fingerprint == digest), None)
        if duplicate is not None:
            return duplicate
        job = create(home, study, label, arguments, build, cwd)
        _start_job(job)
    return get(cache, job.id)


def _start_job(job: Job) -> None:
    """Start the process of a queued job; if this fails, mark the job as failed."""
    try:
        pid = start_worker(job.folder, job.cwd)
    except OSError as error:
        reason = f"no process can be started ({error.strerror or error}): free some memory and start it again"
        update(job.folder, lambda state: state.ended_as("failed", reason))
        return
    if pid is not None:
        # the process may have recorded itself already
        update(job.folder, lambda state: state if state.pid is not None else state.with_process(pid))


def cancel(cache: Path, job_id: str) -> Job:
    """Ask a job to stop, and return at once; completed stages are kept.

    A queued job is cancelled at once. A running job on this host gets SIGTERM; on another host it reads the request
    from its state. An ended job is not changed. Raises JobError if the job does not exist or cannot be written.
    """
    folder = files.locate(cache, job_id)

    def request_end(state: JobState) -> JobState:
        """Return the state with the request to stop; a queued job ends at once."""
        if state.state == "queued":
            return state.ended_as("cancelled")
        if state.state == "running":
            return replace(state, state="cancelling", cancel_requested=time.time())
        return state

    before, after = read_state(folder), update(folder, request_end)
    if not before.finished:
        _signal_job(after, signal.SIGTERM)
    reconcile(cache)
    return get(cache, job_id)


def resume(cache: Path, job_id: str, build: files.CommandBuilder = files.worker_command) -> Job:
    """Submit the study of a job again; finished stages are read from the cache.

    Raises JobError if there is no such job, its study cannot be read, or the cache cannot be written.
    """
    job = get(cache, job_id)
    return submit(cache, study_of(cache, job_id), job.label, job.arguments, build, job.cwd)


def reconcile(cache: Path) -> None:
    """Mark jobs whose process is gone as ended, and kill those that do not stop in time.

    Raises JobError if a state cannot be written.
    """
    # collect ended child processes, so that none remains a zombie
    _children[:] = [process for process in _children if process.poll() is None]
    current_time = time.time()
    for folder in files.all_folders(files.root(cache)):
        state = read_state(folder)
        if state.finished:
            continue
        if has_process(folder, state):
            if state.state == "cancelling" and current_time - (state.cancel_requested or current_time) > GRACE_SECONDS:
                _signal_job(state, signal.SIGKILL)
        # a job without a process may have been submitted a moment ago
        elif state.pid is not None or current_time - folder.stat().st_mtime > START_SECONDS:
            update(folder, partial(JobState.after_death, reason=_explain_end(folder)))


def _signal_job(state: JobState, number: signal.Signals) -> None:
    # a process on another host cannot be signalled
    if state.pid is not None and state.host == processes.host():
        signal_process(state.pid, state.process_started, number)


def _explain_end(folder: Path) -> str:
    """Return the reason why a process ended without a report: the error at the end of its log, or that it was lost."""
    line = next(iter(files.last_lines(folder / files.LOG, 1)), "")
    if line.startswith(ERROR):
        return line.removeprefix(ERROR)
    return f"{LOST}{f'; its log ends with: {line}' if line else ''}; {REMEDY}"


def environment() -> dict[str, str]:
    """Return the environment of a job's process: that of this process, the number of threads, and a log in UTF-8."""
    values = {**os.environ, machine.THREADS_VARIABLE: machine.threads()}
    if installation.CHILD_FOLDER is not None:
        # the path of a checkout, for jobs that start in another folder
        paths = (str(installation.CHILD_FOLDER), os.environ.get("PYTHONPATH", ""))
        values["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return values | {"PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8"}


def start_worker(folder: Path, cwd: str = "") -> int | None:
    """Start the process of a job in the folder `cwd` and return its number. Raises OSError if that fails."""
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


def has_process(folder: Path, state: JobState) -> bool:
    """Return True if the process of a job is running.

    On this host, this follows from the number and start time of the process, on another host from its lock.
    """
    if state.host in ("", processes.host()):
        return processes.is_alive(state.pid, state.process_started)
    return is_locked(folder / files.ALIVE)


def try_lock(path: Path) -> int | None:
    """Return a descriptor that holds a file's lock until the process ends, or None if another process holds it.

    A program that replaces this process inherits the descriptor. Raises JobError if the disk has no locks.
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


def signal_process(pid: int, started: float | None, number: signal.Signals) -> None:
    """Send a signal to a process, and to its process group if it leads one; do nothing if the process is gone.

    `started` is the start time of the process (see `processes.process_start`), `number` that of the signal.
    """
    if not processes.is_alive(pid, started):
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.getpgid(pid) == pid:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)
