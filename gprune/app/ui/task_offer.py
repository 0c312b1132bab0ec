"""What a run that has been measured on no task is offered, and why tasks were left out."""

import streamlit as st

from gprune.app.ui import job_runs, sticky_button, work
from gprune.app.ui.text import plain, said
from gprune.app.ui.titles import called
from gprune.evaluation.tasks import STANDARD_TASKS, known
from gprune.pipeline.runs.opened import Run


def left_out(run: Run) -> None:
    """Says of every task that could not be measured why."""
    for task, reason in run.missing_tasks.items():
        st.warning(f"{plain(called(task))} was left out: {said(reason)}", icon=":material/warning:")


def draw(run: Run, key: str) -> None:
    """Says that there is no accuracy, and offers what needs no data."""
    if not run.complete and job_runs.is_live(run):
        st.info(
            "This run is at work: its accuracies stand here at its end, if asked for.", icon=":material/info:"
        )
        return
    if not run.missing_tasks:
        st.info("This run has been measured on no task.", icon=":material/quiz:")
    built_in = [name for name in known() if name not in STANDARD_TASKS]
    st.caption(
        f"The built-in questions ({plain(', '.join(built_in))}) need no data. The seven tasks of the paper "
        "and your own questions are chosen on the page Launch & jobs, under Measure an existing run."
    )
    if sticky_button.pressed("Measure on the built-in questions", key=key, icon=":material/play_arrow:"):
        if work.start(run.root, run.study.with_settings({"evaluation.tasks": built_in})) is not None:
            st.rerun()
