"""The queue of jobs: submit, list, follow, cancel, resume.

One heavy job runs at a time, or one on each GPU: see gprune.jobs.device_slots. Jobs beyond that wait in order
of submission, and the supervisor of each job starts the next one when it ends, so the queue advances without
the app. `reconcile`
does the same and clears up after whatever was killed: the app calls it when it starts and whenever it looks.
"""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gprune.jobs import device_slots, local, reconciliation
from gprune.jobs import folder as files
from gprune.jobs.job import Job, create, fingerprint
from gprune.jobs.listing import get, jobs, log_tail, progress, study_of
from gprune.jobs.state import JobState, update
from gprune.study import Study
from gprune.system.errors import JobError

__all__ = [
    "Job",
    "cancel",
    "get",
    "jobs",
    "log_tail",
    "progress",
    "reconcile",
    "resume",
    "study_of",
    "submit",
]

GRACE_SECONDS = 5.0
# more than this is a mistake, and each one takes a turn of the machine
MOST_OPEN = 100


def submit(
    cache: Path,
    study: Study,
    label: str = "",
    arguments: Sequence[str] = (),
    build: local.CommandBuilder = local.worker_command,
) -> Job:
    """Puts a study into the queue of a cache and starts it if there is room.

    For `label` and `build` see `job.create`. Gives the new job, or the one that already waits or runs for the
    same study: a double click is harmless. Raises JobError where the cache cannot be written, the queue is
    full, another process holds it for too long, or fewer GPUs are named than it computes on.
    """
    home = files.root(cache)
    device_slots.require_valid()
    device_slots.require_enough(study.device, arguments)
    digest = fingerprint(study, arguments)
    files.make(home)
    with files.locked(home):
        reconciliation.settle(home)
        known = jobs(cache)
        open_jobs = [job for job in known if job.active and job.state != "cancelling"]
        for job in open_jobs:
            if job.fingerprint == digest:
                return job
        if len(open_jobs) >= MOST_OPEN:
            raise JobError(f"{len(open_jobs)} jobs wait or run already: cancel some, or wait for them to end")
        last = max((job.number for job in known), default=0)
        created = create(home, study, label, arguments, build, last + 1)
        reconciliation.advance(home)
    return get(cache, created.id)


def cancel(cache: Path, job_id: str, grace: float = GRACE_SECONDS) -> Job:
    """Asks a job to stop, and returns at once.

    A waiting job is cancelled there and then. A running one stops at its next progress report; if it has not
    after `grace` seconds it gets SIGTERM, and as long again later SIGKILL, from its supervisor or, should
    that be gone, from the next `reconcile`. An interrupted job is cancelled as well: nobody is to go on with
    it. One that has ended otherwise stays as it is. Raises JobError where
    there is no such job, or its folder cannot be written.
    """
    folder = files.locate(cache, job_id)

    def ask(state: JobState) -> JobState:
        if state.state in ("queued", "interrupted"):
            return state.ended_as("cancelled")
        if state.state == "running":
            return replace(state, state="cancelling", cancel_requested=time.time(), grace=grace)
        return state

    if update(folder, ask).state == "cancelling":
        # without the flag, on a full disk, the signals still stop the run
        with contextlib.suppress(OSError):
            (folder / files.CANCEL).touch(mode=0o600)
    reconcile(cache)
    return get(cache, job_id)


def resume(cache: Path, job_id: str, build: local.CommandBuilder = local.worker_command) -> Job:
    """Submits the study of a job again, where it was; stages that had finished are taken from the cache.

    Raises JobError where there is no such job, its study cannot be read, or the cache cannot be written.
    """
    job = get(cache, job_id)
    return submit(cache, study_of(cache, job_id), job.label, job.arguments, build)


def reconcile(cache: Path) -> None:
    """Brings the queue up to date: jobs whose process is gone end, waiting ones start where there is room.

    Raises JobError where the cache cannot be written, or the number of slots is not valid.
    """
    local.reap()
    home = files.root(cache)
    if not files.all_folders(home):
        return
    with files.locked(home):
        reconciliation.settle(home)
        reconciliation.advance(home)
