"""The figure of the page by name, from a run and what can be set beside its card."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from gprune.analysis import changed_answers
from gprune.analysis.changed_answers import ACC, EITHER, UNITS
from gprune.app.pages.flipped_questions import task_answers
from gprune.app.pages.flipped_questions.task_answers import DENSE, TaskAnswers
from gprune.app.ui import marks
from gprune.app.ui.chart_style import GREY, METHOD_COLORS, METHOD_SYMBOLS, label, style
from gprune.app.ui.panel import Panel, in_range, panel
from gprune.app.ui.text import plain
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import MissingResultError, Run
from gprune.study.settings import require_choice

MOST_OPTIONS = 12
"""options that are drawn; the table below has all"""
_ROW = 44
"""pixels of one option"""


def _asked(run: Run, values: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    """The question that is open: where none was chosen the one that moved furthest."""
    tasks = [one for one in task_answers.of(run) if one.others]
    place = int(values.get("fq_task") or 0)
    for found in tasks[place : place + 1] or tasks[:1]:
        method, rule = values.get("fq_method"), values.get("fq_rule")
        method = method if method in found.others else first_of(found)
        rule = rule if rule in found.rules else ACC
        both = [found.choices(name, rule) for name in (DENSE, method)]
        numbers = changed_answers.flips(both[0], both[1], values.get("fq_kind") or EITHER)
        if len(numbers):
            number = int(values.get("fq_question") or numbers[0] + 1) - 1
            yield {"task": found.task, "question": number, "rule": rule, "method": method}


@panel("answers", "fq_item", "One question", reads=_asked)
def answers(run: Run, *, task: str = "", question: int = 0, rule: str = ACC, method: str = "") -> Panel:
    """How likely every model of a run finds the options of one question of a task."""
    there = task_answers.of(run)
    if not there:
        tasks = task_answers.measurable(run)
        raise MissingResultError(
            stages.answers(run.graph, run.study.methods[0], tasks[0]).title if tasks else "answers to tasks"
        )
    require_choice("task", task or there[0].task, tuple(one.task for one in there))
    found = next(one for one in there if one.task == (task or there[0].task))
    require_choice("rule", rule, found.rules)
    require_choice("method", method or found.methods[0], found.methods)
    known = {name: found.answers(name) for name in found.methods}
    number = in_range("question", question, len(known[found.methods[0]].counts))
    table, listed = changed_answers.of_question(known, rule, number), options(found, number, rule)
    if known[found.methods[0]].scored:
        return Panel(
            likelihoods(table, rule, "score"),
            "1 where the generated answer matches the text that is right, else 0.",
            title=f"Question {number + 1:,}{_finding(found, method or first_of(found), number, rule)}",
            table=lambda: listed.assign(**{label(name): table[name] for name in found.methods}),
            how="lm-eval extracts the answer of each model from what it generates and compares it with the right text.",
        )
    return Panel(
        likelihoods(table, rule),
        "Right is likelier; each model chooses its rightmost mark, and the shaded line is the right option.",
        title=f"Question {number + 1:,}{_finding(found, method or first_of(found), number, rule)}",
        table=lambda: listed.assign(**{label(name): table[name] for name in found.methods}),
        how=f"The log-likelihood of each option after the question, in {UNITS[rule]}, as the accuracy has "
        "measured it. Of equal ones the first is chosen. "
        f"{MOST_OPTIONS} options at most are drawn; the table has all.",
    )


def first_of(found: TaskAnswers) -> str:
    """The method that is held against the dense model where none is named; empty where none can be."""
    return "gprune" if "gprune" in found.others else next(iter(found.others), "")


def options(found: TaskAnswers, number: int, rule: str) -> pd.DataFrame:
    """The options of a question, with what they say and who chooses them."""
    known = {name: found.answers(name) for name in found.methods}
    chosen = {name: int(found.choices(name, rule).option[number]) for name in found.methods}
    table = changed_answers.of_question(known, rule, number)
    asked = found.questions
    words = asked.asked(number)[1] if asked is not None and number < len(asked.counts) else []
    return pd.DataFrame(
        {
            "option": table.option,
            "right": ["✓" if right else "" for right in table.right],
            "text": [option.strip() or option for option in words] or "–",
            "chosen by": [
                ", ".join(label(name) for name, place in chosen.items() if place == row) for row in range(len(table))
            ],
        }
    )


def _finding(found: TaskAnswers, method: str, number: int, rule: str) -> str:
    """Whether the dense model and a method are right; empty where the dense model has not answered."""
    if not found.others:
        return ""
    base, other = (found.choices(name, rule).hit[number] for name in (DENSE, method))
    words = ("wrong", "right")
    return f": the dense model is {words[bool(base)]}, {plain(label(method))} {words[bool(other)]}"


def likelihoods(table: pd.DataFrame, rule: str, title: str = "") -> go.Figure:
    """A line an option, a mark a model; the right one is shaded. Rules are ACC and ACC_NORM."""
    drawn = _drawn(table)
    rows = [f"{name}{' ✓' if right else ''}" for name, right in zip(drawn.option, drawn.right, strict=True)]
    figure = go.Figure()
    for name in drawn.columns[2:]:
        color, symbol = METHOD_COLORS.get(name, GREY), METHOD_SYMBOLS.get(name, "circle")
        look = {"color": color, "symbol": symbol, "size": 12, "line": {"width": 2, "color": color}}
        x = [value if math.isfinite(value) else None for value in drawn[name]]
        hover = "option %{y}: %{x:.3f}<extra>" + label(name) + "</extra>"
        marks.points(figure, x, rows, look, hover, name=label(name))
    what = "log-likelihood" if rule == ACC else "log-likelihood for its length"
    style(figure, title or f"{what} ({UNITS[rule]})", "option", 120 + _ROW * len(rows))
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=rows[::-1])
    for place, right in enumerate(drawn.right):
        if right:
            middle = len(rows) - 1 - place
            figure.add_hrect(y0=middle - 0.5, y1=middle + 0.5, fillcolor=GREY, opacity=0.14, line_width=0)
    return figure


def _drawn(table: pd.DataFrame) -> pd.DataFrame:
    """The first options, and the right one wherever it stands."""
    if len(table) <= MOST_OPTIONS:
        return table
    return table[(np.arange(len(table)) < MOST_OPTIONS - 1) | table.right.to_numpy()]
