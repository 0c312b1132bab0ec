"""Flipped questions: what does the dense model answer that a pruned one does not, and the other way round?"""

import streamlit as st

from gprune.analysis.changed_answers import ACC
from gprune.app.pages.flipped_questions import counts_card, given, list_card, panels, question_card
from gprune.app.pages.flipped_questions.counts_card import LABELS
from gprune.app.pages.flipped_questions.given import TaskAnswers
from gprune.app.ui import frame, job_runs, sticky_button, task_offer, url_state, work
from gprune.app.ui.card import card, card_of
from gprune.app.ui.chart_style import label
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import MissingResultError, Run

AGAIN = ("--until", "answers")


def show() -> None:
    """Draws the page."""
    frame.page_title(
        "Flipped questions",
        "Which questions does the dense model answer and a pruned one not, and the other way round?",
    )
    run = frame.require_run()
    if run is None:
        return
    found = [one for one in given.of(run) if one.others]
    if not found:
        with card("fq_nothing", "Questions that flip", run):
            _nothing(run)
        return
    chosen, method, rule = _asked(found)
    with card("fq_counts", "Questions that flip, by task and method", run) as drawn:
        counts_card.draw(drawn, found, chosen, method, rule)
        if given.lacking(run) is not None:
            _again(run, "Some methods were measured before answers were kept.")
    number: int | None = None
    with card("fq_list", "The questions that flip", run) as drawn:
        number = list_card.draw(drawn, chosen, method, rule)
    if number is not None:
        with card_of(panels.answers, run) as drawn:
            question_card.draw(drawn, chosen, method, number, rule)


def _asked(found: list[TaskAnswers]) -> tuple[TaskAnswers, str, str]:
    """The task, the method and the figure that a reader wants to see."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        tasks = {str(place): one.name for place, one in enumerate(found)}
        chosen = found[int(url_state.selectbox("Task", tasks, "fq_task", "0", width=260))]
        methods = {name: label(name) for name in chosen.others}
        method = url_state.selectbox("Method", methods, "fq_method", panels.first_of(chosen), width=260)
        rules = {name: LABELS[name] for name in chosen.rules}
        rule = url_state.segmented("Figure", rules, "fq_rule", ACC)
    return chosen, method, rule


def _nothing(run: Run) -> None:
    """Says why no answer is there, and offers what makes them.

    Raises:
        MissingResultError: the run is at work, or was unpacked.
    """
    tasks, lacking = given.measurable(run), given.lacking(run)
    if given.of(run) and "dense" not in run.study.methods:
        st.info("Needs the dense model among the methods of the run.", icon=":material/hourglass_empty:")
    elif tasks and (lacking is None or run.packed or job_runs.is_live(run)):
        title = stages.answers(run.graph, run.study.methods[0], tasks[0]).title
        raise MissingResultError(title if lacking is None else lacking.title)
    elif lacking is not None:
        _again(run, "The accuracies of this run are from before answers were kept.")
    else:
        task_offer.left_out(run)
        task_offer.draw(run, "fq_tasks")


def _again(run: Run, why: str) -> None:
    """Offers to ask the models again."""
    st.info(
        f"{why} Asking again takes as long as measuring the accuracies did, and changes none of them.",
        icon=":material/history:",
    )
    if sticky_button.pressed("Ask the models again", key="fq_again", icon=":material/play_arrow:"):
        if work.start(run.root, run.study, AGAIN) is not None:
            st.rerun()
