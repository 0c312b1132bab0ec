"""Changed answers: what does the dense model answer that a pruned one does not, and the other way round?"""

from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from gprune.analysis import changed_answers
from gprune.analysis.changed_answers import ACC, EITHER, GAINED, LOST, UNITS
from gprune.analysis.formatting import counted
from gprune.app.pages.flipped_questions import counts_card, panels, task_answers
from gprune.app.pages.flipped_questions.counts_card import LABELS
from gprune.app.pages.flipped_questions.task_answers import DENSE, TaskAnswers
from gprune.app.ui import buttons, frame, job_runs, offered_job, packed, tables, url_state, work
from gprune.app.ui.card import Card, card, card_of
from gprune.app.ui.chart_style import label
from gprune.app.ui.text import plain, said
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import MissingResultError, Run
from gprune.records import Array, Questions

QUESTION = "fq_question"
"""key of the question that is open"""
MOST_ROWS = 200
_WORDS = 90
"""characters of a question in the list"""
_ROWS_SEEN = 8
KINDS = {EITHER: "All that change", LOST: "Right → wrong", GAINED: "Wrong → right"}


@frame.page(
    "Changed answers",
    "Which questions does the dense model answer and a pruned one not, and the other way round?",
)
def show(run: Run) -> None:
    """Draws the page."""
    found = [one for one in task_answers.of(run) if one.others]
    if not found:
        with card("fq_nothing", "Changed answers", run):
            _nothing(run)
        return
    chosen, method, rule = _asked(found)
    with card("fq_counts", "Changed answers, by task and method", run) as drawn:
        counts_card.draw(drawn, found, chosen, method, rule)
        if task_answers.lacking(run) is not None:
            _again(run, "Some methods were measured before answers were kept.")
    number: int | None = None
    with card("fq_list", "The questions whose answers change", run) as drawn:
        number = _list(drawn, chosen, method, rule)
    if number is not None:
        with card_of(panels.answers, run) as drawn:
            _one(drawn, chosen, method, number, rule)


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
    """Offers what makes the answers; MissingResultError while the run is at work, or was unpacked."""
    tasks, lacking = task_answers.measurable(run), task_answers.lacking(run)
    if task_answers.of(run) and "dense" not in run.study.methods:
        st.info("Needs the dense model among the methods of the run.", icon=":material/hourglass_empty:")
    elif tasks and (lacking is None or run.packed or job_runs.is_live(run)):
        title = stages.answers(run.graph, run.study.methods[0], tasks[0]).title
        raise MissingResultError(title if lacking is None else lacking.title)
    elif lacking is not None:
        _again(run, "The accuracies of this run are from before answers were kept.")
    else:
        offered_job.tasks_left_out(run)
        offered_job.tasks(run, "fq_tasks")


def _again(run: Run, why: str) -> None:
    """Offers to ask the models again."""
    st.info(
        f"{why} Asking again takes as long as measuring the accuracies did, and changes none of them.",
        icon=":material/history:",
    )
    work.start_button("Ask the models again", "fq_again", run.root, run.graph.study, ("--until", "answers"))


def _one(drawn: Card, found: TaskAnswers, method: str, number: int, rule: str) -> None:
    """Draws a question by its number, from 0; StoreError where answers or questions are damaged."""
    shown = panels.answers(found.run, task=found.task, question=number, rule=rule, method=method)
    drawn.title(shown.title)
    _question(found, number)
    listed = panels.options(found, number, rule)
    text = st.column_config.TextColumn
    widths: dict[str, Any] = {
        "option": text(width=56),
        "right": text(width=48),
        "text": text(width="large"),
        "chosen by": text(width="medium"),
    }
    tables.show(
        listed,
        column_config=widths,
        **tables.lines(listed, panels.MOST_OPTIONS),
        alt="the options of the question",
    )
    drawn.show(shown)


def _question(found: TaskAnswers, number: int) -> None:
    """Shows the question as text; says why where it is not there."""
    asked = found.questions
    if asked is None or number >= len(asked.counts):
        title = stages.questions(found.run.graph, found.task).title
        reason = packed.reason(found.run, title) or f"Needs “{title}”, which this run does not have."
        st.info(said(reason), icon=":material/inventory_2:")
        return
    words = asked.asked(number)[0]
    if not words.strip():
        st.caption("This question has no words before its options: the likelier one is the answer.")
        return
    # as text in a frame of its own: no mark-up of a question is read as such
    st.code(words, language=None, wrap_lines=True)


_HOW = (
    "An answer changes where the dense model and the method do not both have it right. Below zero the "
    "right option has lost against the best wrong one; a small number is a near tie."
)


def _list(drawn: Card, found: TaskAnswers, method: str, rule: str) -> int | None:
    """Draws the list and gives the number of the question that is open; None where nothing changes.

    Raises StoreError where answers or questions are damaged.
    """
    kind = url_state.segmented("Which", KINDS, "fq_kind", EITHER)
    base, other = (found.choices(name, rule) for name in (DENSE, method))
    numbers = changed_answers.flips(base, other, kind)
    if not len(numbers):
        st.info(f"{label(method)} has no such question on {plain(found.name)}.", icon=":material/check:")
        return None
    shown = numbers[:MOST_ROWS]
    drawn.title(f"{_counted(len(numbers), kind)}, the furthest moved first")
    table = table_of(found, method, rule, shown)
    unit = UNITS[rule]
    tables.show(
        table,
        key="fq_rows",
        on_row=lambda place: url_state.put(QUESTION, int(shown[place]) + 1),
        height=tables.height(min(len(table), _ROWS_SEEN)),
        alt="questions whose answers change",
        column_config={
            "moved": st.column_config.NumberColumn(
                format="%+.3f", help=f"of the right option against the best wrong one, {unit}", width=80
            ),
            "question": st.column_config.TextColumn(width="large"),
            "no.": st.column_config.NumberColumn(width=52),
        },
    )
    some = f" {MOST_ROWS} of {len(numbers):,} shown: the others moved less." if len(numbers) > MOST_ROWS else ""
    drawn.tools(
        lambda: table_of(found, method, rule, numbers),
        switch=False,
        caption=f"Moved: how far the right option went against the best wrong one, {unit}; select a row to "
        f"open it.{some}",
        how=_HOW,
    )
    return _open(shown, len(base.hit))


def table_of(found: TaskAnswers, method: str, rule: str, numbers: Array) -> pd.DataFrame:
    """One row a question, counted from 1."""
    base, other = (found.choices(name, rule) for name in (DENSE, method))
    right, asked = found.answers(DENSE).right, found.questions
    return pd.DataFrame(
        {
            "no.": numbers + 1,
            "question": [_beginning(asked, int(number)) for number in numbers],
            "right": [changed_answers.letter(int(place)) for place in right[numbers]],
            "dense chose": [changed_answers.letter(int(place)) for place in base.option[numbers]],
            f"{label(method)} chose": [changed_answers.letter(int(place)) for place in other.option[numbers]],
            "moved": changed_answers.moved(base, other)[numbers],
        }
    )


def _beginning(asked: Questions | None, number: int) -> str:
    """The end of a question, which stands before the options; of one without words its first option."""
    if asked is None or number >= len(asked.counts):
        return "–"
    question, options = asked.asked(number)
    words = " ".join((question or options[0]).split())
    return words if len(words) <= _WORDS else "…" + words[1 - _WORDS :]


def _open(shown: Array, questions: int) -> int:
    """The question that is open, with buttons to its neighbours in the list."""
    known = [int(number) for number in shown]
    number = url_state.whole(QUESTION, known[0] + 1, 1, questions) - 1
    place = known.index(number) if number in known else -1
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        for words, step, icon in (("Previous", -1, "arrow_back"), ("Next", 1, "arrow_forward")):
            to = place + step
            buttons.act(
                words, f"fq_{words.lower()}", icon, url_state.put, QUESTION,
                known[int(np.clip(to, 0, len(known) - 1))] + 1, disabled=not 0 <= to < len(known),
            )  # fmt: skip
        listed = f"{place + 1} of {len(known)} in the list" if place >= 0 else "not in this list"
        st.caption(f"Question {number + 1:,}, {listed}", width="stretch")
    return number


def _counted(number: int, kind: str) -> str:
    words = {EITHER: "change", LOST: "go from right to wrong", GAINED: "go from wrong to right"}[kind]
    if number == 1:
        words = words.replace("change", "changes").replace("go ", "goes ")
    return f"{counted(number, 'question')} {words}"
