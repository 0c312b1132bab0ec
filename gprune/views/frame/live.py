"""The one polling fragment: what is being computed now, on every page.

It exists only while a job is active, draws the progress, and reruns the page when a stage has been
finished, so that charts appear by themselves.
"""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from gprune.errors import GpruneError
from gprune.jobs import Job, JobProgress, queue
from gprune.views.frame import stages, work
from gprune.views.frame.text import duration, plain

POLL_SECONDS = 2.0


@st.fragment(run_every=POLL_SECONDS)
def watch(root: str, signature: str) -> None:
    """Draws the running jobs and reruns the page when something has changed.

    Args:
        root: the cache folder.
        signature: the situation that the page was drawn in.
    """
    situation = work.look(root)
    if situation.signature != signature:
        st.rerun()
    for job in situation.active[:3]:
        _card(situation, job)


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
        return f"{name}: {plain(error)}", 0.0
    verb = "is being stopped" if job.state == "cancelling" else "is being computed on this machine"
    if work.exports(job):
        return f":material/hourglass_top: {name} {verb}: {_now(progress)}", min(1.0, progress.fraction)
    run = situation.run_named(work.made_by(situation.root, job.id))
    step, steps = stages.step(study, set(run.stages) if run else set())
    sentence = f":material/hourglass_top: {name} {verb}: step {step} of {steps}, {_now(progress)}"
    share = (step - 1 + (progress.fraction if progress.fraction < 1 else 0.0)) / steps
    return sentence, min(1.0, share)


def _now(progress: JobProgress) -> str:
    words = [plain(stages.title(progress.stage)) if progress.stage else "starting"]
    if progress.total > 1:
        words[0] += f" {progress.done}/{progress.total}"
    words.append(f"{duration(progress.elapsed)} so far")
    if progress.eta is not None and progress.eta >= 1:
        words.append(f"about {duration(progress.eta)} left in this step")
    return ", ".join(words)
