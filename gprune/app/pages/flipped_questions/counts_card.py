"""The card of counts: how often every method loses and gains an answer against the dense model."""

from operator import attrgetter

import pandas as pd
import streamlit as st

from gprune.analysis import changed_answers
from gprune.analysis.changed_answers import ACC, ACC_NORM, Counts
from gprune.app.pages.flipped_questions.task_answers import DENSE, TaskAnswers
from gprune.app.ui import tables
from gprune.app.ui.card import Card
from gprune.app.ui.chart_style import label
from gprune.app.ui.text import plain
from gprune.records.answers import MOST_OPTIONS, MOST_QUESTIONS

HOW = (
    "Right → wrong: the dense model chooses the right option and the method does not; wrong → right the "
    "other way round. Questions that both get right, or both wrong, tell nothing apart. p is the probability "
    "of changes at least as uneven if both ways were as likely: McNemar’s exact test, two-sided. Each row is "
    "a test of its own: of twenty rows one falls below 0.05 by chance."
)

MOST_NAMED = 3
"""answers that differ from their accuracy are named so far, the others counted"""


def draw(drawn: Card, found: list[TaskAnswers], chosen: TaskAnswers, method: str, rule: str) -> None:
    """Draws the table, one row a task and method; StoreError where answers are damaged."""
    first = cut(chosen)
    of = f", of its first {first[0]:,} questions" if first else ""
    counted = between(chosen, method, rule)
    finding = changed_answers.answers_title(counted, label(method), "the dense model")
    drawn.title(f"{plain(finding)} ({plain(chosen.name)}{of})")
    table = table_of(found, rule)
    p = st.column_config.NumberColumn(format="%.3f", help="exact McNemar test on the answers that change")
    wide = st.column_config.Column(width=190)
    tables.show(table, column_config={"p": p, "method": wide}, alt="changed answers of every task and method")
    for sentence in bounds(found):
        st.caption(plain(sentence))
    if passes := other_passes(found):
        st.info(plain(passes), icon=":material/difference:")
    normed = "" if rule == ACC else " A task without a normalised figure stands with its plain one."
    drawn.tools(
        lambda: table,
        switch=False,
        caption="One row a task and method, against the dense model on the same questions; p below 0.05 is "
        f"more than chance.{normed}",
        how=HOW,
    )


_remembered = st.cache_data(max_entries=16, show_spinner=False, hash_funcs={TaskAnswers: attrgetter("identity")})


@_remembered
def table_of(found: list[TaskAnswers], rule: str) -> pd.DataFrame:
    """The counts as numbers."""
    lines = []
    for one in found:
        for method in one.others:
            known = between(one, method, rule)
            lines.append(
                {
                    "task": one.name,
                    "method": label(method),
                    "figure": rule if rule in one.rules else ACC,
                    "right → wrong": known.lost,
                    "wrong → right": known.gained,
                    "both right": known.both,
                    "both wrong": known.neither,
                    "questions": known.questions,
                    "asked": one.answers(method).documents,
                    "p": known.chance,
                }
            )
    return pd.DataFrame(lines)


def cut(found: TaskAnswers) -> tuple[int, int] | None:
    """How many questions of a task are counted, and how many were asked; None where that is all of them."""
    answers = found.answers(found.methods[0])
    kept = len(answers.counts)
    return (kept, answers.documents) if kept < answers.documents else None


def bounds(found: list[TaskAnswers]) -> list[str]:
    """One sentence a task of which the counts and p leave questions out."""
    return [
        f"{one.name}: {known[0]:,} of {known[1]:,} questions shown, because of a task the first "
        f"{MOST_QUESTIONS:,} questions or {MOST_OPTIONS:,} options are kept; its accuracy is of all."
        for one in found
        if (known := cut(one)) is not None
    ]


@_remembered
def other_passes(found: list[TaskAnswers]) -> str:
    """Which answers are not those that the accuracies rest on, in one sentence; empty where all are."""
    known = [
        f"{one.name}, {label(method)}: {differs}"
        for one in found
        for method in one.methods
        if (differs := one.other_pass(method))
    ]
    if not known:
        return ""
    more = f"; and {len(known) - MOST_NAMED} more" if len(known) > MOST_NAMED else ""
    return (
        "Some answers come from another pass than the accuracy, perhaps on another device or with another "
        f"library: {'; '.join(known[:MOST_NAMED])}{more}."
    )


def between(found: TaskAnswers, method: str, rule: str) -> Counts:
    """How a method answers a task against the dense model."""
    return changed_answers.counts(found.choices(DENSE, rule), found.choices(method, rule))


LABELS = {ACC: "Plain (acc)", ACC_NORM: "For its length (acc_norm)"}
"""what to call the figures"""
