"""Jobs of the pages: the active jobs, the start of a job, and the form that offers a job."""

import os
import shlex
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamlit as st

from gprune.app.server import require_trust
from gprune.app.ui import components, run_status
from gprune.app.ui.chart_style import label
from gprune.app.ui.text import escape, escape_error, short, short_text
from gprune.jobs import Job, queue
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run, Unreadable, all_runs
from gprune.store import require_folder
from gprune.study import Study
from gprune.study.demo import demo_study
from gprune.system.errors import GpruneError, StoreError
from gprune.system.units import seconds_since_1970

AUTOSTART_VARIABLE = "GPRUNE_AUTOSTART"
SITUATION = "frame_situation"
"""session key: runs and jobs as they were when the page began to draw"""
SHOWN, FOLLOWED, ORIGINS = "frame_shown_run", "jobs_followed", "jobs_origins"
"""session keys: the run that is shown, the active jobs when the page was last drawn, and the run that each job
was started from"""


@dataclass(frozen=True, slots=True)
class Situation:
    """Runs and jobs at one moment."""

    root: str
    runs: list[Run]
    unreadable: list[Unreadable]
    jobs: list[Job]
    problem: str
    """why the cache, or its jobs, cannot be used; empty if they can"""

    @property
    def active(self) -> list[Job]:
        """Jobs that wait or run."""
        return [job for job in self.jobs if job.active]

    def run_named(self, name: str) -> Run | None:
        """Return a run by name, or None if there is none."""
        return next((run for run in self.runs if run.name == name), None)

    @property
    def states(self) -> str:
        """Text that changes with the state of a job or run, and when a run gets its rank drift, its first chart."""
        jobs = [(job.id, job.state) for job in self.jobs]
        runs = [(run.name, run.state, stages.main_drift(run.graph).name in run.stages) for run in self.runs]
        return repr((jobs, runs, len(self.unreadable)))

    def stage_counts(self, name: str | None) -> str:
        """Return a text that changes with every finished stage of a run, or of any run if `name` is None."""
        return repr([len(run.stages) for run in self.runs if name in (None, run.name)])


def read_situation(root: str) -> Situation:
    """Read runs and jobs; jobs whose process is gone are ended first."""
    try:
        require_folder(Path(root))
    except StoreError as error:
        return Situation(root, [], [], [], str(error))
    runs, unreadable = all_runs(root)
    try:
        jobs = queue.jobs(Path(root))
        if any(job.active for job in jobs):
            queue.reconcile(Path(root))
            jobs = queue.jobs(Path(root))
        return Situation(root, runs, unreadable, jobs, "")
    except GpruneError as error:
        return Situation(root, runs, unreadable, [], str(error))


def submit(root: str, study: Study, label: str = "", arguments: tuple[str, ...] = ()) -> Job:
    """Put a study into the queue; every job of the app is submitted here.

    Raises GpruneError if the queue refuses it, or it needs remote code that this server does not allow.
    """
    require_trust(study.trust_remote_code)
    return queue.submit(Path(root), study, label=label, arguments=arguments)


def resume(root: str, job_id: str) -> Job:
    """Submit the study of a job again. Raises the errors of `submit`, and GpruneError if the study cannot be read."""
    require_trust(queue.study_of(Path(root), job_id).trust_remote_code)
    return queue.resume(Path(root), job_id)


def start(root: str, study: Study, arguments: tuple[str, ...] = (), origin: str = "") -> Job | None:
    """Submit a study and return its job; draw the error and return None if it cannot start.

    A second click returns the job of the first. `origin` is the name of the run to compare its result with, by
    default the one that is shown.
    """
    with components.show_errors():
        run_status.require_inputs(root, study)
        return begin_job(root, study, job_label(study), arguments, origin)
    return None


def start_button(words: str, key: str, root: str, study: Study, container: Any = None, **look: Any) -> None:
    """Draw the button that submits a study, in a container if given; see `start`. `look` are options of `st.button`."""
    with container or nullcontext():
        clicked = components.button(words, key=key, icon=":material/play_arrow:", **look)
    if clicked and start(root, study) is not None:
        st.rerun()


def begin_job(root: str, study: Study, title: str, arguments: tuple[str, ...], origin: str = "") -> Job | None:
    """Submit a job, or return an active one with the same work; draw the error and return None if it is refused."""
    with components.show_errors():
        job = submit(root, study, title, arguments)
        state = st.session_state
        state[FOLLOWED] = state.get(FOLLOWED, set()) | {job.id}
        state[ORIGINS] = state.get(ORIGINS, {}) | {job.id: origin or state.get(SHOWN, "")}
        # the job waits for its device, so its start time is not known here
        st.toast(f"Submitted: {escape(job.label)}")
        return job
    return None


def job_label(study: Study) -> str:
    """Return the label of a job: name or model, metric and retention, a seed that is not 0, then both texts."""
    name = study.name or f"{short(study.model)} {label(study.metric)} {100 * study.retention:.3g}%"
    seed = f", seed {study.seed}" if study.seed else ""
    return f"{name}{seed}, {short_text(study, study.primary)} | {short_text(study, study.auxiliary)}"


def preferred_run(runs: list[Run]) -> Run | None:
    """Return the default run: the newest finished one, else a running one, else the newest."""
    running = (run for run in runs if run.state == "running")
    done = (run for run in runs if run.complete)
    return next(done, None) or next(running, None) or next(iter(runs), None)


def autostart(situation: Situation) -> bool:
    """Start the demo if nothing was ever run and GPRUNE_AUTOSTART is not 0; return True if it did."""
    is_on = os.environ.get(AUTOSTART_VARIABLE, "1") != "0"
    if not is_on or situation.runs or situation.jobs or situation.problem:
        return False
    with components.show_errors():
        submit(situation.root, demo_study())
        return True
    return False


def run_of_active_job(situation: Situation, job: Job) -> Run | None:
    """Return the run of a job, or None until the job has written its record.

    If another process computes the same run, the record of that process is used.
    """
    run = situation.run_named(run_status.run_of_job(situation.root, job.id))
    if run is None or job.started is None:
        return None
    began = seconds_since_1970(run.record.get("started"))
    # a record's start is in whole seconds; a start in the future means that the clock was set back since
    is_of_job = job.started - 1.0 <= began <= time.time() + 1.0
    return run if is_of_job or run.state == "running" else None


def draw_job_form(run: Run, arguments: tuple[str, ...], title: str, *, words: str, key: str) -> None:
    """Draw the state of the job with these arguments, its command, and the button that starts it."""
    active = draw_job_state(run, arguments)
    st.code(shlex.join(["python", "-m", "gprune", *arguments]), language="bash", wrap_lines=True)
    if not active:
        draw_job_start(run, arguments, title, words=words, key=key)


def draw_job_state(run: Run, arguments: tuple[str, ...]) -> bool:
    """Draw the state of the job with these arguments; return True if it runs or waits."""
    job = next((job for job in st.session_state[SITUATION].jobs if job.arguments == arguments), None)
    if job is not None and job.active:
        st.caption(f":material/hourglass_top: {_describe_state(run, job)}")
        return True
    if job is not None and job.state == "failed":
        st.error(escape_error(job.error), icon=":material/error:")
    return False


def draw_job_start(run: Run, arguments: tuple[str, ...], title: str, *, words: str, key: str) -> None:
    """Draw the button that starts the job with these arguments."""
    if not components.button(words, key=key, icon=":material/play_arrow:"):
        return
    if begin_job(run.root, run.study, f"{title}: {job_label(run.study)}", arguments) is not None:
        st.rerun()


def _describe_state(run: Run, job: Job) -> str:
    if job.state == "queued":
        return f"Queued at position {job.position or 1}."
    try:
        progress = queue.progress(Path(run.root), job.id)
    except GpruneError as error:
        return escape_error(error)
    return f"Running: {escape(progress.message or 'starting')} ({progress.done}/{progress.total or 1})."


def warn_left_out_tasks(run: Run) -> None:
    """Show the reason for each task that could not be measured."""
    for task, reason in run.missing_tasks.items():
        st.warning(
            f"{escape(run_status.task_label(task))} was left out: {escape_error(reason)}", icon=":material/warning:"
        )


def offer_tasks(run: Run, key: str) -> None:
    """Show that no task is measured, and offer the built-in questions, which need no data."""
    if not run.complete and run_status.is_live(run):
        st.info(
            "This run is still running. Its accuracies appear here when it ends, if it measures any.",
            icon=":material/info:",
        )
        return
    if not run.missing_tasks:
        st.info("This run has no task results.", icon=":material/quiz:")
    from gprune.evaluation.tasks import STANDARD_TASKS, listed_tasks

    built_in = [name for name in listed_tasks() if name not in STANDARD_TASKS]
    st.caption(
        f"The built-in questions ({escape(', '.join(built_in))}) need no data. Choose the seven tasks of the paper or "
        "your own questions on the Runs & export page, under Measure an existing run."
    )
    study = run.study.with_settings({"evaluation.tasks": built_in})
    start_button("Measure on the built-in questions", key, run.root, study)
