"""What jobs there are, and how each of them stands; nothing is changed."""

import contextlib
import time
from dataclasses import replace
from pathlib import Path

from gprune.jobs import folder as files
from gprune.jobs.job import Job, read_job
from gprune.jobs.state import read_state
from gprune.jobs.timeline import JobProgress, measure, read_trace
from gprune.study import Study, from_file, run_name
from gprune.system.errors import JobError, SettingsError


def jobs(cache: Path) -> list[Job]:
    """All jobs of a cache, newest first; folders that hold no readable job are passed over."""
    found = []
    for folder in files.all_folders(files.root(cache)):
        with contextlib.suppress(JobError):
            found.append(read_job(folder))
    # by their number: a clock that is set back changes no order
    found.sort(key=lambda job: (job.number, job.created, job.id), reverse=True)
    waiting = [job.id for job in reversed(found) if job.state == "queued"]
    place = {job_id: position for position, job_id in enumerate(waiting, start=1)}
    return [replace(job, position=place.get(job.id)) for job in found]


def get(cache: Path, job_id: str) -> Job:
    """One job; JobError where there is no such job, or its record is damaged."""
    job = read_job(files.locate(cache, job_id))
    if job.state != "queued":
        # only the queue of this machine has places to count
        return job
    return next((other for other in jobs(cache) if other.id == job_id), job)


def study_of(cache: Path, job_id: str) -> Study:
    """The study of a job; JobError where there is no such job, or its study cannot be read."""
    path = files.locate(cache, job_id) / files.STUDY
    try:
        return from_file(path)
    except SettingsError as error:
        raise JobError(f"the study of job {job_id} is not valid any more, submit it anew: {error}") from error


def progress(cache: Path, job_id: str) -> JobProgress:
    """Latest event, time of each stage and time left of a job; JobError where there is no such job."""
    folder = files.locate(cache, job_id)
    return measure(read_trace(folder / files.EVENTS), read_state(folder), time.time())


def log_tail(cache: Path, job_id: str, lines: int = 200) -> list[str]:
    """The last lines of what the run printed, as plain text; show them as text, never as markup.

    Raises JobError where there is no such job.
    """
    return files.last_lines(files.locate(cache, job_id) / files.LOG, lines)


def using(cache: Path, run: str, *, done: bool) -> Job | None:
    """The job that has a use for a run: it waits or is at work, or was interrupted and is to be gone on with.

    What was interrupted counts as long as no later job of
    the run was started and the run is not `done`, by other means. None where there is none.
    """
    own = [job for job in jobs(cache) if _run_of(cache, job) == run]
    active = next((job for job in own if job.active), None)
    if active is not None or done:
        return active
    makers = [job for job in own if not job.exports]
    return makers[0] if makers and makers[0].state == "interrupted" else None


def _run_of(cache: Path, job: Job) -> str:
    """Name of the run that a job makes, or takes; empty where it cannot be told any more."""
    try:
        return job.run or run_name(study_of(cache, job.id))
    except JobError:
        return ""
