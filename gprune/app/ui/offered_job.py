"""What a job would make, the command that makes it too, and how far the job is: one form for every page."""

import shlex
from pathlib import Path

import streamlit as st

from gprune.app.ui import buttons, frame, job_runs, work
from gprune.app.ui.text import plain, said
from gprune.app.ui.titles import called
from gprune.evaluation.tasks import STANDARD_TASKS, known
from gprune.jobs import Job, queue
from gprune.pipeline.runs.opened import Run
from gprune.system.errors import GpruneError


def draw(run: Run, arguments: tuple[str, ...], title: str, *, words: str, key: str) -> None:
    """Draws the state of the job that its arguments name, its command, and the button that starts it."""
    active = standing(run, arguments)
    st.code(shlex.join(["python", "-m", "gprune", *arguments]), language="bash", wrap_lines=True)
    if not active:
        start(run, arguments, title, words=words, key=key)


def standing(run: Run, arguments: tuple[str, ...]) -> bool:
    """Draws the state of the job that its arguments name, and says whether it is at work or waits."""
    job = next((job for job in frame.situation().jobs if job.arguments == arguments), None)
    if job is not None and job.active:
        st.caption(f":material/hourglass_top: {_state(run, job)}")
        return True
    if job is not None and job.state == "failed":
        st.error(said(job.error), icon=":material/error:")
    return False


def start(run: Run, arguments: tuple[str, ...], title: str, *, words: str, key: str) -> None:
    """Draws the button that starts the job that its arguments name."""
    if not buttons.pressed(words, key=key, icon=":material/play_arrow:"):
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


def tasks_left_out(run: Run) -> None:
    """Says of every task that could not be measured why."""
    for task, reason in run.missing_tasks.items():
        st.warning(f"{plain(called(task))} was left out: {said(reason)}", icon=":material/warning:")


def tasks(run: Run, key: str) -> None:
    """Says that there is no accuracy, and offers what needs no data."""
    if not run.complete and job_runs.is_live(run):
        st.info("This run is at work: its accuracies stand here at its end, if asked for.", icon=":material/info:")
        return
    if not run.missing_tasks:
        st.info("This run has been measured on no task.", icon=":material/quiz:")
    built_in = [name for name in known() if name not in STANDARD_TASKS]
    st.caption(
        f"The built-in questions ({plain(', '.join(built_in))}) need no data. The seven tasks of the paper "
        "and your own questions are chosen on the page Runs & export, under Measure an existing run."
    )
    study = run.study.with_settings({"evaluation.tasks": built_in})
    work.start_button("Measure on the built-in questions", key, run.root, study)
