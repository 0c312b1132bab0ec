"""The card of one question: its words, its options, and how likely every model finds each."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from gprune import stages
from gprune.analysis import flipped
from gprune.analysis.flipped import UNITS
from gprune.views.flipped_questions import charts, pictures
from gprune.views.flipped_questions.given import DENSE, Given
from gprune.views.frame import packed, tables
from gprune.views.frame.card import Card
from gprune.views.frame.chart_style import label
from gprune.views.frame.text import plain, said


def draw(drawn: Card, found: Given, method: str, number: int, rule: str) -> None:
    """Draws a question.

    Args:
        drawn: the card.
        found: the task.
        method: the method that the page shows.
        number: of the question, from 0.
        rule: the figure that counts.

    Raises:
        StoreError: answers or questions are damaged.
    """
    known = {name: found.answers(name) for name in found.methods}
    table = flipped.of_question(known, rule, number)
    chosen = {name: int(found.choices(name, rule).option[number]) for name in found.methods}
    drawn.title(f"Question {number + 1:,}: {_finding(found, method, number, rule)}")
    options = _words(found, number)
    listed = pd.DataFrame(
        {
            "option": table.option,
            "right": ["✓" if right else "" for right in table.right],
            "text": options or "–",
            "chosen by": [
                ", ".join(label(name) for name, place in chosen.items() if place == row)
                for row in range(len(table))
            ],
        }
    )
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
    drawn.chart(
        pictures.answers(found.run, task=found.task, question=number, rule=rule),
        "Right is likelier; each model chooses its rightmost mark, and the shaded line is the right option.",
        table=lambda: listed.assign(**{label(name): table[name] for name in found.methods}),
        how=f"The log-likelihood of each option after the question, in {UNITS[rule]}, as the accuracy has "
        "measured it. Of equal ones the first is chosen. "
        f"{charts.MOST_OPTIONS} options at most are drawn; the table has all.",
    )


def _finding(found: Given, method: str, number: int, rule: str) -> str:
    base, other = (found.choices(name, rule) for name in (DENSE, method))
    words = {True: "right", False: "wrong"}
    both = f"the dense model is {words[bool(base.hit[number])]}"
    return f"{both}, {plain(label(method))} {words[bool(other.hit[number])]}"


def _words(found: Given, number: int) -> list[str]:
    """Shows the question as text and gives the words of its options; says why where they are not there."""
    asked = found.questions
    if asked is None or number >= len(asked.counts):
        title = stages.questions(found.run.graph, found.task).title
        reason = packed.reason(found.run, title) or f"Needs “{title}”, which this run does not have."
        st.info(said(reason), icon=":material/inventory_2:")
        return []
    question, options = asked.asked(number)
    # as text in a frame of its own: no mark-up of a question is read as such
    st.code(question or " ", language=None, wrap_lines=True)
    return [option.strip() or option for option in options]
