"""The queue of jobs: submit, list, follow, cancel, resume.

One heavy job runs at a time; `GPRUNE_JOB_SLOTS` allows more. Jobs beyond that wait in order of submission,
and the supervisor of each job starts the next one when it ends, so the queue advances without the app.
Slurm's jobs lie in the same folder, and are none of this queue's: see gprune.jobs.slurm.
`reconcile` does the same and clears up after whatever was killed: the app calls it when it starts and
whenever it looks.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from gprune import processes
from gprune.errors import JobError, SettingsError
from gprune.files import make_folder
from gprune.jobs import folder as files
from gprune.jobs import local
from gprune.jobs.job import LOCAL, SLURM, Job, create, fingerprint, read_job
from gprune.jobs.slurm import client, submission, watching
from gprune.jobs.slurm.record import is_slurm
from gprune.jobs.slurm.settings import SlurmSettings
from gprune.jobs.state import LOST, JobState, read_state, silence, update
from gprune.jobs.timeline import JobProgress, measure, read_trace
from gprune.study import Study, from_file

SLOTS_VARIABLE = "GPRUNE_JOB_SLOTS"
GRACE_SECONDS = 5.0
# more than this is a mistake, and each one takes a turn of the machine
MOST_OPEN = 100
# a job taken from the queue whose supervisor has not shown up after this long is given up
CLAIM_SECONDS = 30.0


def submit(
    cache: Path,
    study: Study,
    label: str = "",
    arguments: Sequence[str] = (),
    build: local.CommandBuilder = local.worker_command,
) -> Job:
    """Puts a study into the queue and starts it if there is room.

    Args:
        cache: the cache folder; jobs live below it.
        study: what to run.
        label: what to call the job; the study's name by default.
        arguments: further arguments of the command line.
        build: makes the argument list from the job's folder and the arguments.

    Returns:
        The new job, or the one that already waits or runs for the same study: a double click is harmless.

    Raises:
        JobError: the cache cannot be written, the queue is full, or another process holds it for too long.
    """
    home = files.root(cache)
    slots()
    digest = fingerprint(study, arguments)
    try:
        make_folder(home)
    except OSError as error:
        raise files.unwritable(home, error) from error
    with files.locked(home):
        _settle(home)
        known = jobs(cache)
        open_jobs = [job for job in known if job.active and job.state != "cancelling"]
        for job in open_jobs:
            if job.fingerprint == digest:
                return job
        open_jobs = [job for job in open_jobs if job.engine == LOCAL]
        if len(open_jobs) >= MOST_OPEN:
            raise JobError(f"{len(open_jobs)} jobs wait or run already: cancel some, or wait for them to end")
        last = max((job.number for job in known), default=0)
        created = create(home, study, label, arguments, build, last + 1)
        _advance(home)
    return get(cache, created.id)


def submit_slurm(
    cache: Path, errands: Sequence[submission.Errand], settings: SlurmSettings, *, exclusive: bool = False
) -> list[Job]:
    """Puts studies into Slurm, one array for all of them.

    Args:
        cache: the cache folder, on a file system that the nodes share.
        errands: what to run.
        settings: what the cluster wants.
        exclusive: whether no other job may share the node, as for a timed measurement.

    Returns:
        The job of each errand, where one that has not ended does the same that one.

    Raises:
        JobError: the cache cannot be written, there is no Slurm client, or Slurm refuses the jobs.
    """
    home = files.root(cache)
    try:
        make_folder(home)
    except OSError as error:
        raise files.unwritable(home, error) from error
    with files.locked(home, client.SUBMIT_SECONDS):
        ids = submission.submit(home, errands, settings, jobs(cache), exclusive=exclusive)
    return [get(cache, job_id) for job_id in ids]


def jobs(cache: Path) -> list[Job]:
    """All jobs of a cache, newest first; folders that hold no readable job are passed over."""
    found = []
    for folder in files.all_folders(files.root(cache)):
        with contextlib.suppress(JobError):
            found.append(read_job(folder))
    # by their number: a clock that is set back changes no order
    found.sort(key=lambda job: (job.number, job.created, job.id), reverse=True)
    waiting = [job.id for job in reversed(found) if job.state == "queued" and job.engine == LOCAL]
    place = {job_id: position for position, job_id in enumerate(waiting, start=1)}
    return [replace(job, position=place.get(job.id)) for job in found]


def get(cache: Path, job_id: str) -> Job:
    """One job.

    Raises:
        JobError: there is no such job, or its record is damaged.
    """
    job = read_job(files.locate(cache, job_id))
    if job.state != "queued":
        return job
    return next((other for other in jobs(cache) if other.id == job_id), job)


def study_of(cache: Path, job_id: str) -> Study:
    """The study of a job.

    Raises:
        JobError: there is no such job, or its study cannot be read.
    """
    path = files.locate(cache, job_id) / files.STUDY
    try:
        return from_file(path)
    except SettingsError as error:
        raise JobError(f"the study of job {job_id} is not valid any more, submit it anew: {error}") from error


def cancel(cache: Path, job_id: str, grace: float = GRACE_SECONDS) -> Job:
    """Asks a job to stop, and returns at once.

    A waiting job is cancelled there and then. A running one stops at its next progress report; if it has not
    after `grace` seconds it gets SIGTERM, and as long again later SIGKILL, from its supervisor or, should
    that be gone, from the next `reconcile`. A job that has ended stays as it is. Slurm is
    told to stop its own.

    Raises:
        JobError: there is no such job, its folder cannot be written, or Slurm was not told.
    """
    folder = files.locate(cache, job_id)
    returns = read_job(folder).returns

    def ask(state: JobState) -> JobState:
        if state.state == "queued" or (state.state == "interrupted" and returns):
            return state.ended_as("cancelled")
        if state.state == "running":
            return replace(state, state="cancelling", cancel_requested=time.time(), grace=grace)
        return state

    state, slurm = update(folder, ask).state, is_slurm(folder)
    if state == "cancelling" or (slurm and state == "cancelled"):
        # without the flag, on a full disk, the signals still stop the run
        with contextlib.suppress(OSError):
            (folder / files.CANCEL).touch(mode=0o600)
        if slurm:
            submission.stop(folder)
    reconcile(cache)
    return get(cache, job_id)


def resume(cache: Path, job_id: str, build: local.CommandBuilder = local.worker_command) -> Job:
    """Submits the study of a job again, where it was; stages that had finished are taken from the cache.

    Raises:
        JobError: there is no such job, its study cannot be read, the cache cannot be written, or Slurm
            refuses it.
    """
    job = get(cache, job_id)
    if job.engine == SLURM:
        errand = submission.Errand(study_of(cache, job_id), job.label, job.arguments)
        return submit_slurm(cache, [errand], submission.settings_of(job.folder))[0]
    return submit(cache, study_of(cache, job_id), job.label, job.arguments, build)


def progress(cache: Path, job_id: str) -> JobProgress:
    """Latest event, time of each stage and time left of a job.

    Raises:
        JobError: there is no such job.
    """
    folder = files.locate(cache, job_id)
    return measure(read_trace(folder / files.EVENTS), read_state(folder), time.time())


def log_tail(cache: Path, job_id: str, lines: int = 200) -> list[str]:
    """The last lines of what the run printed, as plain text; show them as text, never as markup.

    Raises:
        JobError: there is no such job.
    """
    return files.last_lines(files.locate(cache, job_id) / files.LOG, lines)


def reconcile(cache: Path) -> None:
    """Brings the queue up to date: jobs whose process is gone end, waiting ones start where there is room.

    Raises:
        JobError: the cache cannot be written, or the number of slots is not valid.
    """
    local.reap()
    home = files.root(cache)
    if not files.all_folders(home):
        return
    with files.locked(home):
        _settle(home)
        _advance(home)
    watching.soon(home)


def ask_slurm(cache: Path) -> None:
    """Asks Slurm for its jobs and waits for the answer; without such jobs nothing is asked.

    Raises:
        JobError: a job's folder cannot be written.
    """
    home = files.root(cache)
    if watching.waiting(home):
        watching.look(home)


def slots() -> int:
    """How many jobs may run at a time.

    Raises:
        JobError: the variable does not hold a whole number of at least 1.
    """
    text = os.environ.get(SLOTS_VARIABLE, "1")
    if not text.isdecimal() or int(text) < 1:
        raise JobError(f"{SLOTS_VARIABLE} must be a whole number of at least 1, or not set (got {text!r})")
    return int(text)


def at_work(cache: Path) -> list[Job]:
    """Jobs that wait for their turn, compute, or still leave the machine; nothing is changed.

    A job that is called running but whose processes are gone is not among them, nor is a job of Slurm's that
    runs on another machine, or waits: Slurm finds it a place.
    """
    found, now = [], time.time()
    for folder in files.all_folders(files.root(cache)):
        state = read_state(folder)
        if state.finished and now - (state.ended or 0.0) > 2 * local.EXIT_SECONDS:
            continue
        if is_slurm(folder) and (state.pid is None or local.elsewhere(state)):
            continue
        waits = state.state == "queued" or (not state.finished and _starting(state, now))
        if waits or local.worker_alive(state) or (not state.finished and local.supervisor_alive(state)):
            with contextlib.suppress(JobError):
                found.append(read_job(folder))
    return found


def _settle(home: Path) -> None:
    """Ends the jobs whose process is gone, and stops those that nobody watches; the queue's lock is held."""
    now = time.time()
    for folder in files.all_folders(home):
        state = read_state(folder)
        if is_slurm(folder) or state.state == "queued" or local.supervisor_alive(state):
            continue
        if local.worker_alive(state):
            due = local.due_signal(state, now)
            if due is not None and state.pid is not None:
                local.send(state.pid, state.process_started, due)
        elif not state.finished and not _starting(state, now):
            update(folder, partial(_gone, reason=silence(state.host) if local.elsewhere(state) else LOST))


def _gone(state: JobState, reason: str) -> JobState:
    return state.without_result(reason)


def _starting(state: JobState, now: float) -> bool:
    """Whether a job was taken from the queue so recently that its supervisor may still be loading."""
    if state.pid is not None or state.started is None:
        return False
    if state.claimed is not None and not local.elsewhere(state):
        return 0 <= processes.uptime() - state.claimed < CLAIM_SECONDS
    return abs(now - state.started) < CLAIM_SECONDS


def _advance(home: Path) -> None:
    """Starts waiting jobs, oldest first, while there is room; the queue's lock is held.

    A run that has reported its end keeps its place until its process has left and freed its memory.
    """
    found = [job for job in jobs(home.parent) if job.engine == LOCAL]
    busy = sum(
        job.state in ("running", "cancelling") or local.worker_alive(read_state(job.folder)) for job in found
    )
    waiting = [job for job in reversed(found) if job.state == "queued"]
    for job in waiting[: max(0, slots() - busy)]:
        _start(job.folder)


def _start(folder: Path) -> None:
    """Takes a job from the queue; the state is written first, so that a full disk starts nothing twice."""
    claimed = update(folder, _claim)
    if claimed.state != "running":
        return
    try:
        local.start_supervisor(folder)
    except OSError as error:
        plain = f"no process can be started ({error.strerror or error}): free some memory and start it again"
        reason = files.full(folder, error) or plain
        update(folder, lambda state: state.ended_as("failed", reason))


def _claim(state: JobState) -> JobState:
    if state.state != "queued":
        return state
    now = time.time()
    return replace(state, state="running", started=now, claimed=processes.uptime(), **local.here())
