"""Launch & jobs: start runs, watch them, cancel and resume them."""

import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from gprune.app.pages.jobs import filled, launch, panels
from gprune.app.pages.jobs import managed as manage
from gprune.app.ui import (
    buttons,
    faults,
    frame,
    job_runs,
    live,
    places,
    rest_of_page,
    run_choice,
    tables,
    titles,
    url_state,
    work,
)
from gprune.app.ui.card import card, card_of
from gprune.app.ui.text import plain, said
from gprune.jobs import Job, queue
from gprune.pipeline import stages
from gprune.system.units import duration

WANTED = "jobs_wanted"
"""job that the next drawing shows, in the session"""
JOB, TAB = "jobs_job", "jobs_tab"
_FIRST, _SHOWN = "jobs_first_tab", "jobs_shown_job"
"""the tab that opens by itself, and the job that was shown last, in the session"""
MOST_ROWS = 200
LOG_LINES = 200
_TIMES_PIXELS = 300
_PIXELS = {"state": 90, "on": 90, "stage": 140, "elapsed": 66, "time left": 76, "submitted": 126}
"""widths of the columns of jobs"""
_NAME_PIXELS, _LETTER_PIXELS, _TWO_LINES = 210, 7.5, 66
"""least width of a job's name, width of a letter, and height of a row in which words break into lines"""


def show() -> None:
    """Draws the page."""
    frame.page_title("Launch & jobs", "Start, watch, stop and resume runs. No GPU is needed for small models.")
    situation = frame.situation()
    if filled.take():
        url_state.put(TAB, "start")
    if WANTED in st.session_state:
        url_state.put(TAB, "jobs")
    first = _first_tab(bool(situation.active))
    tabs = url_state.tabs({"start": "Start", "jobs": "Jobs", "runs": "Runs"}, TAB, first)
    with tabs["start"]:
        launch.new_study(situation.root)
        if not rest_of_page.waits():
            launch.evaluate_run(situation.root)
    if tabs["jobs"].open:
        with tabs["jobs"]:
            _follow(situation)
    if tabs["runs"].open:
        # what runs take is counted over the whole cache
        with tabs["runs"]:
            manage.show(situation)


def _first_tab(active: bool) -> str:
    """The tab that opens by itself, and stays until the page is left.

    It is not put into the address: one that a page has changed by itself takes a Back of its own.
    """
    # the widgets of a page that was left are forgotten
    if f"{TAB}_tabs" not in st.session_state:
        st.session_state[_FIRST] = "jobs" if active else "start"
    return str(st.session_state[_FIRST])


def _follow(situation: work.Situation) -> None:
    if not situation.jobs:
        st.info("No job was started yet. A job appears here as soon as a run is started.", icon=":material/info:")
        return
    chosen = _choose(situation.jobs)
    _controls(situation.root, chosen)
    if situation.active:
        polled = st.fragment(_polled, run_every=live.poll(live.followers()))
        polled(situation.root, situation.marks(None), time.monotonic(), chosen.id)
    else:
        _detail(situation, chosen)
    _learning(situation, chosen)
    _recovery(situation, chosen)


def _choose(found: list[Job]) -> Job:
    by_id = {job.id: job for job in found}
    wanted = st.session_state.pop(WANTED, None)
    if wanted in by_id:
        url_state.put(JOB, wanted)
    names = {key: f"{job.label} · {key}" for key, job in by_id.items()}
    # what is shown stays when another job is started, and is in the address once it was chosen
    shown = st.session_state.get(_SHOWN)
    chosen = url_state.selectbox("Job", names, JOB, shown if shown in by_id else found[0].id)
    st.session_state[_SHOWN] = chosen
    return by_id[chosen]


def _controls(root: str, job: Job) -> None:
    """Cancel with a second click, resume, and the way to the run."""
    with st.container(horizontal=True):
        if (job.active and job.state != "cancelling") or job.state == "interrupted":
            with st.popover("Cancel", icon=":material/stop_circle:"):
                st.caption("Finished stages are kept; the run can be continued later.")
                buttons.act(
                    "Yes, stop this job", f"jobs_cancel_{job.id}", "", faults.attempt, "jobs",
                    queue.cancel, Path(root), job.id,
                )  # fmt: skip
        if job.state in ("cancelled", "interrupted", "failed"):
            buttons.act(
                "Resume", f"jobs_resume_{job.id}", "play_arrow", faults.attempt, "jobs", _resume, root,
                job.id,
            )  # fmt: skip
        _edit(root, job)
        made, current = frame.situation().run_named(job_runs.made_by(root, job.id)), frame.current_run()
        # what was measured later stands on the pages of the run that it measures
        name = (made.shown_by or made.name) if made is not None else ""
        if name and (current is None or current.name != name):
            buttons.act("Show its run on every page", f"jobs_open_{job.id}", "visibility", run_choice.choose_run, name)


def _edit(root: str, job: Job) -> None:
    """The way back into the form for what has failed: the same settings may only fail again."""
    study = job_runs.study_of(root, job.id)
    if job.state != "failed" or study is None or job.exports:
        return
    if buttons.pressed(places.EDIT, key=f"jobs_edit_{job.id}", icon=":material/edit:"):
        places.to_launch(study, f"The settings of “{job.label}” are")


def _resume(root: str, job_id: str) -> None:
    st.session_state[WANTED] = work.resume(root, job_id).id


def _polled(root: str, marks: work.Marks, drawn: float, job_id: str) -> None:
    """Table and detail while something is at work; the page is drawn anew when a state or stage changes."""
    sessions, seen = live.followers(), live.shared_look(root)
    if live.due(seen, None, marks, time.monotonic() - drawn, sessions, 0.0):
        st.rerun()
    situation = seen.situation
    job = next((job for job in situation.jobs if job.id == job_id), None)
    if job is not None:
        _detail(situation, job)


def _detail(situation: work.Situation, job: Job) -> None:
    faults.show_error("jobs")
    with card("jobs_table", "All jobs"):
        _table(situation)
    with card("jobs_detail", plain(job.label)):
        if job.state == "failed":
            st.error(said(job.error), icon=":material/error:")
        elif job.active:
            sentence, fraction = live.describe(situation, job)
            st.markdown(sentence)
            st.progress(fraction)
        left, right = st.columns([2, 3])
        with left:
            st.caption("Time of each stage")
            _times(_timeline(situation.root, job), job.active)
        with right:
            st.caption(f"Last {LOG_LINES} lines of its log, the newest first")
            lines = queue.log_tail(Path(situation.root), job.id, LOG_LINES)[::-1]
            st.code("\n".join(lines) or "nothing written yet", language=None, height=300, wrap_lines=True)
        st.caption("What runs")
        st.code(" ".join(job.command), language=None, wrap_lines=True)


def _times(table: pd.DataFrame, active: bool) -> None:
    """Seconds of each stage; a sentence where there was none."""
    if table.empty:
        st.info("No stage has begun yet." if active else "It ended before any stage had begun.")
        return
    wide = st.column_config.Column(width="medium")
    # no taller than its rows: an empty grid looks like stages that are missing
    height = min(_TIMES_PIXELS, tables.height(len(table)))
    tables.show(table, height=height, column_config={"stage": wide}, alt="seconds of each stage")


def _table(situation: work.Situation) -> None:
    rows = [_row(situation, job) for job in situation.jobs[:MOST_ROWS]]
    table, columns, look = table_of_jobs(rows)
    tables.show(table, column_config=columns, alt="all jobs", **look)


def table_of_jobs(rows: list[dict[str, Any]]) -> tuple[pd.DataFrame, dict[str, Any], dict[str, Any]]:
    """The table of at least one job, its columns, and how high a row is.

    Columns that say nothing of any job leave their width to the jobs' names, and a name that is longer still
    takes several lines.
    """
    table = pd.DataFrame(rows)
    table["progress"] *= 100.0
    idle = [name for name in ("stage", "time left") if not table[name].any()]
    wide = _NAME_PIXELS + sum(_PIXELS[name] for name in idle)
    bar = st.column_config.ProgressColumn(min_value=0.0, max_value=100.0, format="%.0f %%", width=90)
    columns: dict[str, Any] = {
        name: st.column_config.Column(width=width) for name, width in ({"job": wide} | _PIXELS).items()
    }
    longest = int(table["job"].str.len().max())
    look = {"row_height": _TWO_LINES} if longest * _LETTER_PIXELS > wide else {}
    return table.drop(columns=idle), columns | {"progress": bar}, look


def _row(situation: work.Situation, job: Job) -> dict[str, Any]:
    progress, study = queue.progress(Path(situation.root), job.id), job_runs.study_of(situation.root, job.id)
    run = work.under_way(situation, job)
    share, left = 1.0 if job.state == "done" else 0.0, None
    if job.state != "done" and job.exports:
        share, left = progress.fraction, progress.eta
    elif run is not None and run.outlook and job.state != "done":
        found = titles.outlook(run, progress)
        share, left = found.share, found.left
    return {
        "job": job.label,
        "state": f"queued, place {job.position}" if job.position is not None else job.state,
        "on": job.device or "this machine",
        "stage": titles.title(study, progress.stage) if job.active and progress.stage and study else "",
        "progress": share,
        "elapsed": duration(progress.elapsed),
        "time left": duration(left) if job.active and (left or 0) >= 1 else "",
        "submitted": datetime.fromtimestamp(job.created).strftime("%Y-%m-%d %H:%M"),
    }


def _timeline(root: str, job: Job) -> pd.DataFrame:
    times, study = queue.progress(Path(root), job.id).stages, job_runs.study_of(root, job.id)
    return pd.DataFrame(
        {
            "stage": [titles.title(study, item.stage) if study else item.stage for item in times],
            "seconds": [round(item.seconds, 1) for item in times],
            "state": [item.state for item in times],
        }
    )


def _learning(situation: work.Situation, job: Job) -> None:
    """How sparsity learning went, once the run has come that far."""
    run = situation.run_named(job_runs.made_by(situation.root, job.id))
    if run is None or not run.has(stages.learning) or job.exports:
        return
    with card_of(panels.learning, run) as drawn:
        if not len(run.load(stages.learning).steps):
            st.caption("Sparsity learning was switched off in this run (no epochs).")
            return
        left, right = st.columns(2)
        with left:
            drawn.show(panels.learning(run))
        with right:
            drawn.beside(panels.learned_retention(run), "jobs_retention")


def _recovery(situation: work.Situation, job: Job) -> None:
    """How the recovery of the methods went, once the run has come that far."""
    run = situation.run_named(job_runs.made_by(situation.root, job.id))
    if run is None or job.exports or not stages.recovers(run.study) or not run.study.recovery.steps:
        return
    with card_of(panels.recovery, run) as drawn:
        drawn.show(panels.recovery(run))
