"""The card of flipped questions: a list of them, of which one is opened."""

from functools import partial

import numpy as np
import pandas as pd
import streamlit as st

from gprune.analysis import changed_answers
from gprune.analysis.changed_answers import EITHER, GAINED, LOST, UNITS
from gprune.app.pages.flipped_questions.given import DENSE, TaskAnswers
from gprune.app.ui import tables, url_state
from gprune.app.ui.card import Card
from gprune.app.ui.chart_style import label
from gprune.app.ui.text import plain
from gprune.records import Array, Questions

QUESTION = "fq_question"
"""key of the question that is open"""
MOST_ROWS = 200
_WORDS = 90
"""characters of a question in the list"""
_ROWS_SEEN = 8
KINDS = {EITHER: "All that flip", LOST: "Right → wrong", GAINED: "Wrong → right"}
_TABLE = "fq_rows"


def draw(drawn: Card, found: TaskAnswers, method: str, rule: str) -> int | None:
    """Draws the list and gives the number of the question that is open; None where nothing flips.

    Raises:
        StoreError: answers or questions are damaged.
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
        key=_TABLE,
        on_select=partial(_take, [int(number) for number in shown]),
        selection_mode="single-row",
        height=tables.height(min(len(table), _ROWS_SEEN)),
        alt="questions that flip",
        column_config={
            "moved": st.column_config.NumberColumn(
                format="%+.3f", help=f"of the right option against the best wrong one, {unit}", width=80
            ),
            "question": st.column_config.TextColumn(width="large"),
            "no.": st.column_config.NumberColumn(width=52),
        },
    )
    some = (
        f" {MOST_ROWS} of {len(numbers):,} shown: the others moved less." if len(numbers) > MOST_ROWS else ""
    )
    drawn.tools(
        lambda: table_of(found, method, rule, numbers),
        switch=False,
        caption=f"Moved: how far the right option went against the best wrong one, {unit}; choose a row to "
        f"open it.{some}",
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
            st.button(
                words,
                key=f"fq_{words.lower()}",
                icon=f":material/{icon}:",
                disabled=not 0 <= to < len(known),
                on_click=url_state.put,
                args=(QUESTION, known[int(np.clip(to, 0, len(known) - 1))] + 1),
            )
        listed = f"{place + 1} of {len(known)} in the list" if place >= 0 else "not in this list"
        st.caption(f"Question {number + 1:,}, {listed}", width="stretch")
    return number


def _take(numbers: list[int]) -> None:
    rows = st.session_state[_TABLE]["selection"]["rows"]
    if rows and rows[0] < len(numbers):
        url_state.put(QUESTION, numbers[rows[0]] + 1)


def _counted(number: int, kind: str) -> str:
    words = {EITHER: "flip", LOST: "go from right to wrong", GAINED: "go from wrong to right"}[kind]
    if number == 1:
        words = words.replace("flip", "flips").replace("go ", "goes ")
    return f"{number:,} question{'' if number == 1 else 's'} {words}"
