"""The queue of jobs: submit, list, follow, cancel, resume.

One heavy job runs at a time, or one on each GPU: see gprune.jobs.device_slots. Jobs beyond that wait in order
of submission, and the supervisor of each job starts the next one when it ends, so the queue advances without
the app. Slurm's jobs lie in the same folder, and are none of this queue's: see gprune.jobs.slurm. `reconcile`
does the same and clears up after whatever was killed: the app calls it when it starts and whenever it looks.
"""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gprune.jobs import device_slots, local, reconciliation
from gprune.jobs import folder as files
from gprune.jobs.job import LOCAL, SLURM, Job, create, fingerprint
from gprune.jobs.listing import get, jobs, log_tail, progress, study_of
from gprune.jobs.slurm import client, submission, watching
from gprune.jobs.slurm.record import is_slurm
from gprune.jobs.slurm.settings import SlurmSettings
from gprune.jobs.state import JobState, update
from gprune.study import Study
from gprune.system.errors import JobError

__all__ = [
    "Job",
    "ask_slurm",
    "cancel",
    "get",
    "jobs",
    "log_tail",
    "progress",
    "reconcile",
    "resume",
    "study_of",
    "submit",
    "submit_slurm",
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
    digest = fingerprint(study, arguments)
    files.make(home)
    with files.locked(home):
        reconciliation.settle(home)
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
        reconciliation.advance(home)
    return get(cache, created.id)


def submit_slurm(
    cache: Path, studies: Sequence[submission.StudyJob], settings: SlurmSettings, *, exclusive: bool = False
) -> list[Job]:
    """Puts studies into Slurm, one array for all of them; the cache is on a file system that nodes share.

    If `exclusive`, no other job may share the node, as for a timed measurement. Gives the job of each entry,
    where one that has not ended does the same that one. Raises JobError where the cache cannot be written,
    there is no Slurm client, or Slurm refuses the jobs.
    """
    home = files.root(cache)
    files.make(home)
    with files.locked(home, client.SUBMIT_SECONDS):
        ids = submission.submit(home, studies, settings, jobs(cache), exclusive=exclusive)
    return [get(cache, job_id) for job_id in ids]


def cancel(cache: Path, job_id: str, grace: float = GRACE_SECONDS) -> Job:
    """Asks a job to stop, and returns at once.

    A waiting job is cancelled there and then. A running one stops at its next progress report; if it has not
    after `grace` seconds it gets SIGTERM, and as long again later SIGKILL, from its supervisor or, should
    that be gone, from the next `reconcile`. An interrupted job is cancelled as well: nobody is to go on with
    it. One that has ended otherwise stays as it is. Slurm is told to stop its own. Raises JobError where
    there is no such job, its folder cannot be written, or Slurm was not told.
    """
    folder = files.locate(cache, job_id)

    def ask(state: JobState) -> JobState:
        if state.state in ("queued", "interrupted"):
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

    Raises JobError where there is no such job, its study cannot be read, the cache cannot be written, or
    Slurm refuses it.
    """
    job = get(cache, job_id)
    if job.engine == SLURM:
        entry = submission.StudyJob(study_of(cache, job_id), job.label, job.arguments)
        return submit_slurm(cache, [entry], submission.settings_of(job.folder))[0]
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
    watching.soon(home)


def ask_slurm(cache: Path) -> None:
    """Asks Slurm for its jobs and waits for the answer; without such jobs nothing is asked.

    Raises JobError where a job's folder cannot be written.
    """
    home = files.root(cache)
    if watching.waiting(home):
        watching.look(home)
