"""Which run a job makes, and whether a process is at work on a run."""

from pathlib import Path

from gprune.app.ui.memo import memoized
from gprune.jobs import queue
from gprune.pipeline.runs.opened import Run
from gprune.study import Study, run_name
from gprune.system.errors import GpruneError


@memoized(1024)
def study_of(root: str, job_id: str) -> Study | None:
    """The study of a job; None where it cannot be read any more."""
    try:
        return queue.study_of(Path(root), job_id)
    except GpruneError:
        return None


def made_by(root: str, job_id: str) -> str:
    """Name of the run that a job makes; empty where its study cannot be read any more."""
    study = study_of(root, job_id)
    return run_name(study) if study is not None else ""


def is_live(run: Run) -> bool:
    """Whether a process is at work on this run, or a job waits to be."""
    if run.state == "running":
        return True
    try:
        jobs = [job for job in queue.jobs(Path(run.root)) if job.active and not job.exports]
    except GpruneError:
        return False
    return any(made_by(run.root, job.id) == run.name for job in jobs)
