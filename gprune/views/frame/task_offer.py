"""What a run that has been measured on no task is offered, and why tasks were left out."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from gprune.evaluation.tasks import STANDARD_TASKS, known
from gprune.views.frame import press, work
from gprune.views.frame.loaders import Run
from gprune.views.frame.text import plain, said


def called(task: str) -> str:
    """What to call a task: its name, or that of its file."""
    return task if task in known() else Path(task).name


def left_out(run: Run) -> None:
    """Says of every task that could not be measured why."""
    for task, reason in run.missing_tasks.items():
        st.warning(f"{plain(called(task))} was left out: {said(reason)}", icon=":material/warning:")


def draw(run: Run, key: str) -> None:
    """Says that there is no accuracy, and offers what needs no data.

    Args:
        run: the run.
        key: of the button.
    """
    if not run.complete and work.is_live(run):
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
    if press.pressed("Measure on the built-in questions", key=key, icon=":material/play_arrow:"):
        if work.start(run.root, run.study.with_settings({"evaluation.tasks": built_in})) is not None:
            st.rerun()
