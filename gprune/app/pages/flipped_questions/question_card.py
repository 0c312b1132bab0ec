"""The card of one question: its words, its options, and how likely every model finds each."""

from typing import Any

import streamlit as st

from gprune.app.pages.flipped_questions import charts, panels
from gprune.app.pages.flipped_questions.given import TaskAnswers
from gprune.app.ui import packed, tables
from gprune.app.ui.card import Card
from gprune.app.ui.text import said
from gprune.pipeline import stages


def draw(drawn: Card, found: TaskAnswers, method: str, number: int, rule: str) -> None:
    """Draws a question.

    `number` counts from 0.

    Raises:
        StoreError: answers or questions are damaged.
    """
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
        height=tables.height(min(len(listed), charts.MOST_OPTIONS)),
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
    # as text in a frame of its own: no mark-up of a question is read as such
    st.code(asked.asked(number)[0] or " ", language=None, wrap_lines=True)
