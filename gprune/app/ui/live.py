"""The running jobs in the sidebar, and the fragment that redraws a page when its run has changed.

The fragment exists only while a job is active. All sessions of a server share one snapshot of runs and jobs.
"""

import threading
import time
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten

import streamlit as st

from gprune.app.ui import address, run_status, work
from gprune.app.ui.text import escape, escape_error
from gprune.jobs import Job, JobProgress, queue
from gprune.system.errors import GpruneError
from gprune.system.units import duration

FRESH_SECONDS = 1.0
"""maximum age of a snapshot that other sessions use as well"""
POLL_SECONDS = 2.0
"""seconds between two looks at the jobs of a page"""
SOONEST, LATEST, SHARE = 4.0, 20.0, 0.1
"""minimum and maximum seconds between two drawings of a page; between these limits, the time is this share of the run's
elapsed time: first charts appear soon, and later drawings take little time from the run"""
ALL_RUNS = ("compare",)
"""places that show more than one run"""
_NAME_CHARACTERS = 40
"""maximum length of a job's label in the sidebar"""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Runs and jobs at one moment."""

    situation: work.Situation
    moment: float
    """when they were read, on the clock of `time.monotonic`"""


_SNAPSHOT_LOCK = threading.Lock()
_snapshots: dict[str, Snapshot] = {}


def shared_situation(root: str) -> work.Situation:
    """Return runs and jobs, as any session has read them less than FRESH_SECONDS ago."""
    with _SNAPSHOT_LOCK:
        snapshot, moment = _snapshots.get(root), time.monotonic()
        if snapshot is None or moment - snapshot.moment >= FRESH_SECONDS:
            # one server uses one cache; only tests use a second one
            _snapshots.clear()
            snapshot = _snapshots[root] = Snapshot(work.read_situation(root), time.monotonic())
        return snapshot.situation


def follow(situation: work.Situation, place: str, run_name: str) -> None:
    """Draw the first active job, and redraw the page when a job or the run has changed."""
    # None stands for all runs
    watched_run = None if place in ALL_RUNS else run_name
    polled = address.fragment(_watch, POLL_SECONDS)
    polled(situation.root, watched_run, situation.states, situation.stage_counts(watched_run), time.monotonic())


def _watch(root: str, watched_run: str | None, states: str, stages: str, drawn_at: float) -> None:
    """Draw the progress of the first active job; redraw the page if states or stages changed since it was drawn."""
    situation = shared_situation(root)
    is_due = time.monotonic() - drawn_at >= redraw_interval(situation.active)
    if situation.states != states or (is_due and situation.stage_counts(watched_run) != stages):
        st.rerun()
    if situation.active:
        job = situation.active[0]
        _, progress, share = _describe_progress(situation, job)
        name = escape(shorten(job.label, _NAME_CHARACTERS, placeholder=" …"))
        more = f" and {len(situation.active) - 1} more" if len(situation.active) > 1 else ""
        # always one line and one bar, so that nothing around them moves when a stage ends
        st.progress(share, text=f":material/hourglass_top: **{name}**{more}  \n{progress}")


def redraw_interval(active: list[Job]) -> float:
    """Return the seconds between two drawings of a page while jobs are active."""
    started = [job.started for job in active if job.started is not None]
    elapsed = time.time() - min(started) if started else 0.0
    return max(min(SHARE * elapsed, LATEST), SOONEST)


def describe(situation: work.Situation, job: Job) -> tuple[str, float]:
    """Return a sentence about an active job, and its finished share in [0, 1]."""
    predicate, _, share = _describe_progress(situation, job)
    return f":material/hourglass_top: **{escape(job.label)}** {predicate}", share


def _describe_progress(situation: work.Situation, job: Job) -> tuple[str, str, float]:
    """Return the predicate of a sentence on a job, its progress in a few words, and its finished share."""
    if job.state == "queued":
        position = f"is queued at position {job.position or 1}"
        return position, position, 0.0
    try:
        study, progress = queue.study_of(Path(situation.root), job.id), queue.progress(Path(situation.root), job.id)
    except GpruneError as error:
        return escape_error(error), escape_error(error), 0.0
    verb = "is being cancelled" if job.state == "cancelling" else f"is running on {job.device or 'this machine'}"
    stage = escape(run_status.stage_title(study, progress.stage)) if progress.stage else "starting"
    run = work.run_of_active_job(situation, job)
    if job.creates_no_run or run is None or not run.expected_seconds:
        share = min(1.0, progress.fraction) if job.creates_no_run else 0.0
        return f"{verb}: {_describe_stage(stage, progress)}", stage, share
    estimate = run_status.run_outlook(run, progress)
    step = f"step {min(estimate.done + 1, estimate.steps)} of {estimate.steps}"
    is_estimated = estimate.left is not None and estimate.left >= 1
    remaining = f", about {duration(estimate.left)} remaining" if is_estimated else ""
    predicate = f"{verb}: {step}, {_describe_stage(stage, progress)}{remaining}"
    return predicate, step + (remaining or f", {stage}"), estimate.share


def _describe_stage(stage: str, progress: JobProgress) -> str:
    count = f" {progress.done}/{progress.total}" if progress.total > 1 else ""
    waits = f", {escape(progress.waits)}" if progress.waits else ""
    return f"{stage}{count}{waits}, {duration(progress.elapsed)} so far"
