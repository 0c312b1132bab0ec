"""Launch & jobs: start runs, follow and cancel them, and manage the runs of the cache."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from gprune.analysis.formatting import format_count
from gprune.app.figures import jobs as panels
from gprune.app.pages import launch
from gprune.app.ui import address, components, frame, live, run_choice, run_status, tables, work
from gprune.app.ui.card import card, card_of
from gprune.app.ui.chart_style import label
from gprune.app.ui.run_choice import labels
from gprune.app.ui.text import escape, escape_error, short, short_text
from gprune.jobs import Job, queue
from gprune.pipeline import cache, stages
from gprune.pipeline.cache import RunUsage
from gprune.pipeline.runs import LONGEST_RUN_NAME, save_notes
from gprune.pipeline.runs.opened import Run, Unreadable, record
from gprune.records import Perplexity
from gprune.store import Store
from gprune.system.errors import GpruneError, StoreError
from gprune.system.units import amount, duration, seconds_since_1970

WANTED = "jobs_wanted"
"""session key: the job to show when the page is drawn next"""
JOB, TAB, CHOSEN = "jobs_job", "jobs_tab", "runs_chosen"
"""address keys of the job, the tab and the selected run"""
_DEFAULT_TAB, _SHOWN_JOB, _MESSAGE = "jobs_first_tab", "jobs_shown_job", "runs_told"
"""session keys; the message is (True for an error, text)"""
MOST_ROWS = 200
LOG_LINES = 200
_TIMES_PIXELS = 300
_JOB_PIXELS = {"state": 90, "device": 90, "stage": 140, "elapsed": 66, "time left": 76, "submitted": 126}
_NAME_PIXELS, _CHARACTER_PIXELS, _WRAPPED_ROW_PIXELS = 210, 7.5, 66
"""minimum width of the column of job names, width of a character, and height of a row that wraps long names"""
_RUN_PIXELS = {"run": 160, "state": 66, "started": 122, "model": 70, "texts": 180, "keep": 50, "γ": 84, "best PPL": 170}


def show() -> None:
    """Draw the page."""
    frame.page_title("Launch & jobs", "Start, watch, cancel and resume runs. No GPU is needed for small models.")
    situation = frame.situation()
    if launch.take_study():
        address.set_value(TAB, "start")
    if WANTED in st.session_state:
        address.set_value(TAB, "jobs")
    # the default tab is determined when the page is first drawn and is not written to the address: a change by the
    # page itself would need an extra Back
    if f"{TAB}_tabs" not in st.session_state:
        st.session_state[_DEFAULT_TAB] = "jobs" if situation.active else "start"
    tabs = address.tabs({"start": "Start", "jobs": "Jobs", "runs": "Runs"}, TAB, st.session_state[_DEFAULT_TAB])
    with tabs["start"]:
        # drawn even behind a closed tab, so that its fields keep their text
        launch.draw_form(situation.root, bool(tabs["start"].open))
        if not frame.is_rest_deferred():
            launch.draw_evaluation(situation.root)
    if tabs["jobs"].open:
        with tabs["jobs"]:
            _draw_jobs(situation)
    if tabs["runs"].open:
        # drawn only if open, because the sizes of the runs need a scan of the whole cache
        with tabs["runs"]:
            _draw_runs(situation)


def _draw_jobs(situation: work.Situation) -> None:
    if not situation.jobs:
        st.info("No jobs yet. Start a run to see its job here.", icon=":material/info:")
        return
    job = _choose_job(situation.jobs)
    _draw_controls(situation.root, job)
    # the sidebar redraws the page when a job ends
    interval = live.POLL_SECONDS if situation.active else None
    address.fragment(_draw_job, interval)(situation.root, job.id)
    run = situation.run_named(run_status.run_of_job(situation.root, job.id))
    if run is not None and not job.creates_no_run:
        _draw_learning(run)


def _choose_job(jobs: list[Job]) -> Job:
    by_id = {job.id: job for job in jobs}
    wanted_id = st.session_state.pop(WANTED, None)
    if wanted_id in by_id:
        address.set_value(JOB, wanted_id)
    names = {key: f"{job.label} · {key}" for key, job in by_id.items()}
    # the shown job stays when another one starts; only a chosen job is in the address
    shown_id = st.session_state.get(_SHOWN_JOB)
    chosen = address.selectbox("Job", names, JOB, shown_id if shown_id in by_id else jobs[0].id)
    st.session_state[_SHOWN_JOB] = chosen
    return by_id[chosen]


def _draw_controls(root: str, job: Job) -> None:
    """Draw the buttons that cancel a job (after a second click), resume it, and show its run."""
    folder, study = Path(root), run_status.study_of_job(root, job.id)
    with st.container(horizontal=True):
        if job.active and job.state != "cancelling":
            with st.popover("Cancel", icon=":material/stop_circle:"):
                st.caption("Finished stages are kept; the run can be resumed later.")
                key = f"jobs_cancel_{job.id}"
                components.action_button(
                    "Cancel job", key, "", components.attempt, "jobs", queue.cancel, folder, job.id
                )
        if job.state in ("cancelled", "interrupted", "failed"):
            key = f"jobs_resume_{job.id}"
            components.action_button("Resume", key, "play_arrow", components.attempt, "jobs", _resume, root, job.id)
        # a failed job may fail again with the same settings, so they can be edited first
        if job.state == "failed" and study is not None and not job.creates_no_run:
            if components.button(address.EDIT, key=f"jobs_edit_{job.id}", icon=":material/edit:"):
                address.to_launch(study, f"The settings of “{job.label}” are")
        run, current = frame.situation().run_named(run_status.run_of_job(root, job.id)), frame.current_run()
        if run is not None and (current is None or current.name != run.name):
            label, key = "Show its run on every page", f"jobs_open_{job.id}"
            components.action_button(label, key, "visibility", run_choice.choose_run, run.name)


def _resume(root: str, job_id: str) -> None:
    """Start a job that resumes this one, and show it when the page is drawn next."""
    st.session_state[WANTED] = work.resume(root, job_id).id


def _draw_job(root: str, job_id: str) -> None:
    """Draw the table of jobs and the details of one job; this fragment is redrawn while a job is active."""
    situation = live.shared_situation(root)
    job = next((job for job in situation.jobs if job.id == job_id), None)
    components.show_error("jobs")
    with card("jobs_table", "All jobs"):
        table, columns, look = table_of_jobs([_job_row(situation, job) for job in situation.jobs[:MOST_ROWS]])
        tables.show(table, column_config=columns, alt="all jobs", **look)
    if job is None:
        return
    with card("jobs_detail", escape(job.label)):
        if job.state == "failed":
            st.error(escape_error(job.error), icon=":material/error:")
        elif job.active:
            sentence, fraction = live.describe(situation, job)
            st.markdown(sentence)
            st.progress(fraction)
        left, right = st.columns([2, 3])
        with left:
            st.caption("Time of each stage")
            _draw_times(_stage_times(root, job), job.active)
        with right:
            st.caption(f"Last {LOG_LINES} log lines, newest first")
            lines = queue.log_tail(Path(root), job.id, LOG_LINES)[::-1]
            st.code("\n".join(lines) or "nothing written yet", language=None, height=300, wrap_lines=True)
        st.caption("Command")
        st.code(" ".join(job.command), language=None, wrap_lines=True)


def _draw_times(table: pd.DataFrame, active: bool) -> None:
    if table.empty:
        st.info("No stage has started yet." if active else "The job ended before its first stage.")
        return
    wide = st.column_config.Column(width="medium")
    # no taller than its rows: empty rows would look like missing stages
    height = min(_TIMES_PIXELS, tables.height(len(table)))
    tables.show(table, height=height, column_config={"stage": wide}, alt="seconds of each stage")


def _stage_times(root: str, job: Job) -> pd.DataFrame:
    progress, study = queue.progress(Path(root), job.id), run_status.study_of_job(root, job.id)
    rows = [
        {
            "stage": run_status.stage_title(study, stage.stage) if study else stage.stage,
            "seconds": round(stage.seconds, 1),
            "state": stage.state,
        }
        for stage in progress.stages
    ]
    return pd.DataFrame(rows, columns=["stage", "seconds", "state"])


def table_of_jobs(rows: list[dict[str, Any]]) -> tuple[pd.DataFrame, dict[str, Any], dict[str, Any]]:
    """Return the table of at least one job, the settings of its columns, and options with the height of its rows.

    Columns that are empty for all jobs are dropped, and the column of names gets their width. If a name is still too
    long, the rows are high enough to wrap it.
    """
    table = pd.DataFrame(rows)
    table["progress"] *= 100.0
    empty_columns = [name for name in ("stage", "time left") if not table[name].any()]
    name_width = _NAME_PIXELS + sum(_JOB_PIXELS[name] for name in empty_columns)
    columns = _column_widths({"job": name_width} | _JOB_PIXELS)
    columns["progress"] = st.column_config.ProgressColumn(min_value=0.0, max_value=100.0, format="%.0f %%", width=90)
    longest = int(table["job"].str.len().max())
    look = {"row_height": _WRAPPED_ROW_PIXELS} if longest * _CHARACTER_PIXELS > name_width else {}
    return table.drop(columns=empty_columns), columns, look


def _column_widths(pixels: Mapping[str, int]) -> dict[str, Any]:
    return {name: st.column_config.Column(width=width) for name, width in pixels.items()}


def _job_row(situation: work.Situation, job: Job) -> dict[str, Any]:
    progress, study = queue.progress(Path(situation.root), job.id), run_status.study_of_job(situation.root, job.id)
    run = work.run_of_active_job(situation, job)
    share, left = 1.0 if job.state == "done" else 0.0, None
    if job.state != "done" and job.creates_no_run:
        share = progress.fraction
    elif run is not None and run.expected_seconds and job.state != "done":
        estimate = run_status.run_outlook(run, progress)
        share, left = estimate.share, estimate.left
    return {
        "job": job.label,
        "state": f"queued, position {job.position}" if job.position is not None else job.state,
        "device": job.device or "this machine",
        "stage": run_status.stage_title(study, progress.stage) if job.active and progress.stage and study else "",
        "progress": share,
        "elapsed": duration(progress.elapsed),
        "time left": duration(left) if job.active and (left or 0) >= 1 else "",
        "submitted": _format_time(job.created),
    }


def _format_time(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return "–"


def _draw_learning(run: Run) -> None:
    """Draw the losses of sparsity learning and recovery if the run has these stages."""
    if run.has(stages.learning):
        with card_of(panels.learning, run) as content:
            if not len(run.load(stages.learning).steps):
                st.caption("Sparsity learning is off in this run (0 epochs).")
            else:
                content.show(panels.learning(run))
    if stages.recovers(run.study) and run.study.recovery.steps:
        with card_of(panels.recovery_losses, run) as content:
            content.show(panels.recovery_losses(run))


def _draw_runs(situation: work.Situation) -> None:
    """Draw the table of the runs, and the details and actions of the chosen run."""
    is_error, message = st.session_state.pop(_MESSAGE, (False, ""))
    if message:
        (st.error if is_error else st.success)(message, icon=":material/error:" if is_error else None)
    if not situation.runs and not situation.unreadable:
        if not situation.problem:
            st.info("No runs yet. Start one on the Start tab.", icon=":material/info:")
        return
    usage: dict[str, RunUsage] = {}
    with components.show_errors():
        usage = dict(cache.overview(Store(Path(situation.root))).runs)
    names = labels(situation.runs) | {run.name: f"{run.name} · cannot be read" for run in situation.unreadable}
    with card("runs_table", "Runs of this cache"):
        _draw_run_table(situation, names, usage)
    current = frame.current_run()
    default = current.name if current is not None else next(iter(names))
    name = address.selectbox(
        "Selected run", names, CHOSEN, default, help="Selecting a row of the table chooses its run here."
    )
    run = situation.run_named(name)
    with card("runs_chosen_card", escape(names[name])):
        if run is None:
            broken = next(run for run in situation.unreadable if run.name == name)
            st.error(f"{escape_error(broken.reason)}.", icon=":material/error:")
        else:
            _draw_name(run)
        _draw_actions(situation, name, run, names[name], usage.get(name))


def _draw_run_table(situation: work.Situation, names: Mapping[str, str], usage: Mapping[str, RunUsage]) -> None:
    runs, unreadable = situation.runs, situation.unreadable
    table = table_of_runs(runs, unreadable, names, usage)
    listed = [*(run.name for run in runs), *(run.name for run in unreadable)]

    def choose() -> None:
        rows = [row for row in st.session_state["runs_rows"]["selection"]["rows"] if row < len(listed)]
        if rows:
            address.set_value(CHOSEN, listed[rows[-1]])

    event = tables.show(
        table,
        column_config=_column_widths(_RUN_PIXELS),
        key="runs_rows",
        on_select=choose,
        selection_mode="multi-row",
        alt="the runs of this cache with state, model, texts, retention, thresholds, best perplexity and size",
    )
    comparable = {run.name for run in situation.runs}
    chosen = [listed[row] for row in event["selection"]["rows"] if listed[row] in comparable]
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(
            f"{format_count(len(listed), 'run')}. Size: all results. Unique: freed by deletion.", width="stretch"
        )
        if len(chosen) > 1 and components.button("Compare selected", key="runs_compare", icon=":material/leaderboard:"):
            address.compare_runs(chosen)


def table_of_runs(
    runs: list[Run], unreadable: list[Unreadable], names: Mapping[str, str], usage: Mapping[str, RunUsage]
) -> pd.DataFrame:
    """Return a table with one row per run; runs that cannot be read come last."""
    rows = [_run_row(run, names[run.name]) | _format_sizes(usage.get(run.name)) for run in runs]
    rows += [{"run": run.name, "state": "cannot be read"} | _format_sizes(usage.get(run.name)) for run in unreadable]
    table = pd.DataFrame(rows, columns=[*_RUN_PIXELS, "size", "unique", "list"]).fillna("")
    return table if table["list"].any() else table.drop(columns="list")


def _run_row(run: Run, name: str) -> dict[str, str]:
    study, rule = run.study, run.study.reliability
    return {
        "run": name,
        "state": run.state or "unknown",
        "started": _format_time(seconds_since_1970(run.record.get("started"))),
        "model": short(study.model),
        "texts": f"{short_text(study, study.primary)} | {short_text(study, study.auxiliary)}",
        "keep": f"{100 * study.retention:.3g}%",
        "γ": "none" if rule.selection == "none" else f"{rule.drift_quantile:.2f} / {rule.score_quantile:.2f}",
        "best PPL": _best_perplexity(run),
        "list": "hidden" if run.about.hidden else "",
    }


def _best_perplexity(run: Run) -> str:
    """Return the lowest perplexity of a pruned model, on a text that the run was not calibrated on if there is one."""
    study = run.study
    texts = sorted(study.evaluation.texts, key=lambda text: text in (study.primary, study.auxiliary))
    pruned = [name for name in study.methods if run.graph.methods[name].decision != "none"]
    for text in texts[:1]:
        values = {name: value for name in pruned if (value := _load_perplexity(run, name, text))}
        if values:
            best = min(values, key=values.__getitem__)
            return f"{values[best]:.4g} {label(best)}, {short_text(study, text)}"
    return ""


def _load_perplexity(run: Run, method: str, text: str) -> float | None:
    if not run.has(stages.perplexity, method, text):
        return None
    try:
        return _read_perplexity(run.root, run.key(stages.perplexity, method, text))
    except StoreError:
        # the pages of the run show the error
        return None


@st.cache_data(max_entries=4096, show_spinner=False)
def _read_perplexity(root: str, key: str) -> float:
    return float(record(root, "perplexity", key, Perplexity.__name__).perplexity)


def _format_sizes(usage: RunUsage | None) -> dict[str, str]:
    return {"size": amount(usage.total) if usage else "–", "unique": amount(usage.unshared) if usage else "–"}


def _draw_name(run: Run) -> None:
    """Draw the form that renames a run, and the complaint about its notes if they cannot be read."""
    if run.complaint:
        st.warning(f"{escape_error(run.complaint)}.", icon=":material/warning:")
    with st.form(f"runs_form_{run.name}", border=False):
        name = st.text_input(
            "Name", run.about.name, max_chars=LONGEST_RUN_NAME, key=f"runs_name_{run.name}",
            placeholder=run.study.name or "no name", help="The name of the run in lists. It does not change results.",
        )  # fmt: skip
        if st.form_submit_button("Save", icon=":material/save:"):
            _save_notes(run, name=" ".join(name.split()))


def _save_notes(run: Run, **changes: Any) -> None:
    try:
        save_notes(Store(Path(run.root)), run.name, replace(run.about, **changes))
    except GpruneError as error:
        st.session_state[_MESSAGE] = (True, escape_error(error))
    st.rerun()


def _draw_actions(situation: work.Situation, name: str, run: Run | None, title: str, usage: RunUsage | None) -> None:
    """Draw the buttons that show, clone, hide and delete a run."""
    with st.container(horizontal=True):
        if run is not None:
            current = frame.current_run()
            if current is None or current.name != name:
                components.action_button(
                    "Show it on every page", f"runs_show_{name}", "visibility", run_choice.choose_run, name
                )
            about = "Copies this run’s settings into the form on the Start tab."
            key = f"runs_clone_{name}"
            if components.button("Clone into the form", key, icon=":material/file_copy:", help=about):
                address.to_launch(run.study, f"The settings of “{title}” are")
            action = "Show it in lists again" if run.about.hidden else "Hide it from lists"
            if components.button(action, f"runs_hide_{name}", help="Its results and pages do not change."):
                _save_notes(run, hidden=not run.about.hidden)
        if components.button("Delete …", f"runs_delete_{name}", icon=":material/delete:"):
            _confirm_deletion(situation.root, name, title, usage)
    st.caption(f"Folder of its record: {escape(Path(situation.root) / 'runs' / name)}")


@st.dialog("Delete this run?")
def _confirm_deletion(root: str, name: str, title: str, usage: RunUsage | None) -> None:
    st.markdown(f"**{escape(title)}**")
    reason = cache.reason_to_keep(Store(Path(root)), name)
    if reason:
        st.warning(f"{escape_error(reason)}.", icon=":material/warning:")
        return
    if usage is not None:
        shared = usage.total - usage.unshared
        note = f" {amount(shared)} that other runs also need are kept." if shared else ""
        st.markdown(f"This frees **{amount(usage.unshared)}**.{note} This cannot be undone.")
    else:
        st.markdown("Results that no other run needs are deleted too. This cannot be undone.")
    with st.container(horizontal=True):
        if components.action_button(
            "Delete it", "runs_delete_yes", "delete", _delete_run, root, name, title, type="primary"
        ):
            st.rerun()
        if components.button("Keep it", "runs_delete_no"):
            st.rerun()


def _delete_run(root: str, name: str, title: str) -> None:
    """Delete a run; if it is the run that the pages show, switch to another."""
    try:
        freed = cache.remove_run(Store(Path(root)), name)
    except GpruneError as error:
        st.session_state[_MESSAGE] = (True, escape_error(error))
        return
    st.session_state[_MESSAGE] = (False, f"“{escape(title)}” was deleted, which freed {amount(freed)}.")
    address.set_value(CHOSEN, "")
    run_choice.forget_run(name, work.read_situation(root).runs)
