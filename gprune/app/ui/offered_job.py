"""What a job would make, the command that makes it too, and how far the job is: one form for every page."""

import shlex
from pathlib import Path

import streamlit as st

from gprune.app.ui import frame, sticky_button, work
from gprune.app.ui.text import plain, said
from gprune.jobs import Job, queue
from gprune.pipeline.runs.opened import Run
from gprune.system.errors import GpruneError


def draw(run: Run, arguments: tuple[str, ...], title: str, *, words: str, key: str) -> None:
    """Draws the state of the job, the command, and the button that starts it unless it is at work.

    `arguments` follow `python -m gprune`; the job is known by them.
    """
    job = next((job for job in frame.situation().jobs if job.arguments == arguments), None)
    active = job is not None and job.active
    if job is not None and active:
        st.caption(f":material/hourglass_top: {_state(run, job)}")
    elif job is not None and job.state == "failed":
        st.error(said(job.error), icon=":material/error:")
    st.code(shlex.join(["python", "-m", "gprune", *arguments]), language="bash", wrap_lines=True)
    if active or not sticky_button.pressed(words, key=key, icon=":material/play_arrow:"):
        return
    if work.begin(run.root, run.study, f"{title}: {work.job_label(run.study)}", arguments) is not None:
        st.rerun()


def _state(run: Run, job: Job) -> str:
    if job.state == "queued":
        return f"Waits in the queue, place {job.position or 1}."
    try:
        progress = queue.progress(Path(run.root), job.id)
    except GpruneError as error:
        return said(error)
    return f"At work: {plain(progress.message or 'starting')} ({progress.done}/{progress.total or 1})."
