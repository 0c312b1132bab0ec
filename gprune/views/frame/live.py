"""The one polling fragment: what is being computed now, on every page.

It exists only while a job is active, draws the progress, and reruns the page when a stage has been
finished, so that charts appear by themselves.
"""

from __future__ import annotations

import time
from pathlib import Path

import streamlit as st

from gprune.errors import GpruneError
from gprune.jobs import Job, JobProgress, queue
from gprune.study import Study
from gprune.views.frame import titles, work
from gprune.views.frame.text import duration, plain, said

POLL_SECONDS = 2.0
SOONEST, LATEST, SHARE = 4.0, 20.0, 0.1
"""stages can end faster than a page is drawn, and drawing takes its time from the run: a page rests for a
tenth of the time that the run has taken, so that the first charts come soon and the later ones cost little"""


@st.fragment(run_every=POLL_SECONDS)
def watch(root: str, states: str, signature: str, drawn: float) -> None:
    """Draws the running jobs and reruns the page when something has changed.

    Args:
        root: the cache folder.
        states: the states that the page was drawn in; another one is drawn at once.
        signature: the whole situation that it was drawn in.
        drawn: when that was, on the clock of `time.monotonic`.
    """
    situation = work.look(root)
    rested = time.monotonic() - drawn >= rest(situation.active)
    if situation.states != states or (rested and situation.signature != signature):
        st.rerun()
    for job in situation.active[:3]:
        _card(situation, job)


def rest(active: list[Job]) -> float:
    """Seconds between two drawings of a page while jobs are at work."""
    started = [job.started for job in active if job.started is not None]
    elapsed = time.time() - min(started) if started else 0.0
    return min(max(SHARE * elapsed, SOONEST), LATEST)


def _card(situation: work.Situation, job: Job) -> None:
    with st.container(border=True, key=f"live_{job.id}"):
        sentence, fraction = describe(situation, job)
        st.markdown(sentence)
        st.progress(fraction)


def describe(situation: work.Situation, job: Job) -> tuple[str, float]:
    """One sentence about a job, and its finished share in [0, 1]."""
    name = f"**{plain(job.label)}**"
    if job.state == "queued":
        return f":material/hourglass_empty: {name} waits in the queue, place {job.position or 1}", 0.0
    try:
        study = queue.study_of(Path(situation.root), job.id)
        progress = queue.progress(Path(situation.root), job.id)
    except GpruneError as error:
        return f"{name}: {said(error)}", 0.0
    verb = "is being stopped" if job.state == "cancelling" else "is being computed on this machine"
    if work.exports(job):
        return f":material/hourglass_top: {name} {verb}: {_now(study, progress)}", min(1.0, progress.fraction)
    run = work.under_way(situation, job)
    if run is None or not run.outlook:
        return f":material/hourglass_top: {name} {verb}: {_now(study, progress)}", 0.0
    found = titles.outlook(run, progress)
    step = min(found.done + 1, found.steps)
    sentence = (
        f":material/hourglass_top: {name} {verb}: step {step} of {found.steps}, {_now(study, progress)}"
    )
    if found.left is not None and found.left >= 1:
        sentence += f", about {duration(found.left)} left in all"
    return sentence, found.share


def _now(study: Study, progress: JobProgress) -> str:
    words = [plain(titles.title(study, progress.stage)) if progress.stage else "starting"]
    if progress.total > 1:
        words[0] += f" {progress.done}/{progress.total}"
    words.append(f"{duration(progress.elapsed)} so far")
    return ", ".join(words)
