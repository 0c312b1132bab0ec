"""The answers of a run's models, and the figure of the tab *Changed answers*: one question with its options."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from gprune.analysis import changed_answers
from gprune.analysis.changed_answers import ACC, ACC_NORM, EITHER, UNITS, Choices
from gprune.app.ui import marks
from gprune.app.ui.chart_style import GREY, METHOD_COLORS, METHOD_SYMBOLS, label, style
from gprune.app.ui.panel import OF_BOTH, Panel, index_or_middle, panel
from gprune.app.ui.run_status import task_label
from gprune.app.ui.text import escape
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import MissingResultError, Run, record
from gprune.records import Accuracy, Answers, GeneratedAnswers, Questions
from gprune.study.settings import require_choice
from gprune.system.errors import StoreError

DENSE = "dense"
MOST_OPTIONS = 12
"""maximum number of options in the chart; the table has all"""
_ROW_PIXELS = 44


@dataclass(frozen=True, slots=True)
class TaskAnswers:
    """The answers to one task."""

    run: Run
    task: str
    """the task as the study names it"""
    methods: tuple[str, ...]
    """methods with answers; the dense model comes first if it has answers"""

    @property
    def name(self) -> str:
        """Short name of the task."""
        return task_label(self.task)

    @property
    def pruned(self) -> list[str]:
        """The methods to compare with the dense model; empty if the dense model has no answers."""
        return list(self.methods[1:]) if self.methods[0] == DENSE else []

    @property
    def rules(self) -> tuple[str, ...]:
        """The accuracy rules of the task: ACC, and ACC_NORM if it is measured."""
        try:
            return _rules(self.run.root, self.run.key(stages.accuracy, self.methods[0], self.task))
        except StoreError:
            return (ACC,)

    def answers(self, method: str) -> Answers:
        """Load the answers of a method."""
        return self.run.load(stages.answers, method, self.task)

    def choices(self, method: str, rule: str) -> Choices:
        """Return the options that a method chooses under a rule, or under ACC if the task lacks the rule."""
        rule = rule if rule in self.rules else ACC
        return _choices(self.run.root, self.run.key(stages.answers, method, self.task), rule)

    def generated(self, declare: Any) -> dict[str, GeneratedAnswers]:
        """Load the records of a declaration, generated or open answers, of each method that has answers."""
        records = {name: self.run.find(declare, name, self.task) for name in self.methods}
        return {name: record for name, record in records.items() if record is not None and len(record.numbers)}

    @property
    def questions(self) -> Questions | None:
        """The questions, or None if they are missing, as in an unpacked run."""
        return self.run.find(stages.questions, self.task)


@lru_cache(256)
def _rules(root: str, key: str) -> tuple[str, ...]:
    accuracy = record(root, "accuracy", key, Accuracy.__name__)
    return (ACC,) if math.isnan(accuracy.acc_norm) else (ACC, ACC_NORM)


@lru_cache(256)
def _choices(root: str, key: str, rule: str) -> Choices:
    return changed_answers.choices(record(root, "answers", key, Answers.__name__), rule)


def answered_tasks(run: Run) -> list[TaskAnswers]:
    """Return the tasks of a run that have answers to single questions."""
    tasks = []
    for task in measured_tasks(run):
        methods = [name for name in run.study.methods if run.has(stages.answers, name, task)]
        if methods and _has_questions(run, methods[0], task):
            tasks.append(TaskAnswers(run, task, tuple(sorted(methods, key=lambda name: name != DENSE))))
    return tasks


def _has_questions(run: Run, method: str, task: str) -> bool:
    try:
        return len(run.load(stages.answers, method, task).counts) > 0
    except StoreError:
        # the card of the task shows that its answers are damaged
        return True


def measured_tasks(run: Run) -> list[str]:
    """Return the tasks of a run whose data was available when the run started."""
    return [task for task in run.study.evaluation.tasks if task in run.graph.inputs.tasks]


def no_answers_error(run: Run) -> MissingResultError:
    """Return the error for a run without answers; it names the answers of the first method to the first task."""
    tasks = measured_tasks(run)
    title = stages.answers(run.graph, run.study.methods[0], tasks[0]).title if tasks else "answers to tasks"
    return MissingResultError(title)


def _options_of_open_question(run: Run, values: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    """Yield the panel's options for the open question, by default the first question whose answer changes."""
    tasks = [task for task in answered_tasks(run) if task.pruned]
    index = int(values.get("fq_task") or 0)
    for task in tasks[index : index + 1] or tasks[:1]:
        method, rule = values.get("fq_method"), values.get("fq_rule")
        method = method if method in task.pruned else default_method(task)
        rule = rule if rule in task.rules else ACC
        base, other = (task.choices(name, rule) for name in (DENSE, method))
        numbers = changed_answers.flips(base, other, values.get("fq_kind") or EITHER)
        if len(numbers):
            # the address counts questions from 1
            number = int(values.get("fq_question") or numbers[0] + 1) - 1
            yield {"task": task.task, "question": number, "rule": rule, "method": method}


@panel("answers", "fq_item", "One question", reads=_options_of_open_question, units=OF_BOTH)
def answers(run: Run, *, task: str = "", question: int = 0, rule: str = ACC, method: str = "") -> Panel:
    """Likelihood of each option of one question under every model."""
    tasks = {answered.task: answered for answered in answered_tasks(run)}
    if not tasks:
        raise no_answers_error(run)
    require_choice("task", task or next(iter(tasks)), tuple(tasks))
    answered = tasks[task or next(iter(tasks))]
    require_choice("rule", rule, answered.rules)
    require_choice("method", method or answered.methods[0], answered.methods)
    by_method = {name: answered.answers(name) for name in answered.methods}
    first = by_method[answered.methods[0]]
    number = index_or_middle("question", question, len(first.counts))
    table, options = changed_answers.question_table(by_method, rule, number), options_table(answered, number, rule)
    caption = (
        "Marks further right are more likely. Each model chooses its rightmost mark; the shaded row is the correct "
        "option."
    )
    how = (
        f"The log-likelihood of each option after the question, in {UNITS[rule]}, as the accuracy measures it. If "
        f"options tie, the first is chosen. The chart shows at most {MOST_OPTIONS} options, the table all."
    )
    if first.scored:
        caption = "1 if the generated answer matches the correct text, else 0."
        how = "lm-eval extracts each model's answer from its generated text and compares it with the correct text."
    return Panel(
        plot_likelihoods(table, rule, "score" if first.scored else ""),
        caption,
        title=f"Question {number + 1:,}{_finding(answered, method or default_method(answered), number, rule)}",
        table=lambda: options.assign(**{label(name): table[name] for name in answered.methods}),
        how=how,
    )


def default_method(answered: TaskAnswers) -> str:
    """Return the pruned method of the default comparison; empty if there is none."""
    return "gprune" if "gprune" in answered.pruned else next(iter(answered.pruned), "")


def options_table(answered: TaskAnswers, number: int, rule: str) -> pd.DataFrame:
    """Return the options of a question with their text and the models that choose them."""
    chosen = {name: int(answered.choices(name, rule).option[number]) for name in answered.methods}
    first = answered.methods[0]
    table = changed_answers.question_table({first: answered.answers(first)}, rule, number)
    questions = answered.questions
    texts = questions.question_at(number)[1] if questions is not None and number < len(questions.counts) else []
    return pd.DataFrame(
        {
            "option": table.option,
            "right": ["✓" if right else "" for right in table.right],
            "text": [text.strip() or text for text in texts] or "–",
            "chosen by": [
                ", ".join(label(name) for name, option in chosen.items() if option == row) for row in range(len(table))
            ],
        }
    )


def _finding(answered: TaskAnswers, method: str, number: int, rule: str) -> str:
    if not answered.pruned:
        return ""
    hits = (answered.choices(name, rule).hit[number] for name in (DENSE, method))
    dense, pruned = ("right" if is_right else "wrong" for is_right in hits)
    return f": the dense model is {dense}, {escape(label(method))} {pruned}"


def plot_likelihoods(table: pd.DataFrame, rule: str, title: str = "") -> go.Figure:
    """Plot a row for each option and a mark for each model; the right option is shaded.

    The columns of `table` are the option, whether it is right, and one per model. `title` replaces that of the axis.
    """
    shown = table
    if len(table) > MOST_OPTIONS:
        # the first options, and the right one wherever it is
        shown = table[(np.arange(len(table)) < MOST_OPTIONS - 1) | table.right.to_numpy()]
    rows = [f"{name}{' ✓' if right else ''}" for name, right in zip(shown.option, shown.right, strict=True)]
    figure = go.Figure()
    for name in shown.columns[2:]:
        color, symbol = METHOD_COLORS.get(name, GREY), METHOD_SYMBOLS.get(name, "circle")
        look = {"color": color, "symbol": symbol, "size": 12, "line": {"width": 2, "color": color}}
        x = [value if math.isfinite(value) else None for value in shown[name]]
        hover = "option %{y}: %{x:.3f}<extra>" + label(name) + "</extra>"
        marks.add_points(figure, x, rows, look, hover, name=label(name))
    measure = "log-likelihood" if rule == ACC else "length-normalised log-likelihood"
    style(figure, title or f"{measure} ({UNITS[rule]})", "option", 120 + _ROW_PIXELS * len(rows))
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=rows[::-1])
    for index, is_right in enumerate(shown.right):
        if is_right:
            middle = len(rows) - 1 - index
            figure.add_hrect(y0=middle - 0.5, y1=middle + 0.5, fillcolor=GREY, opacity=0.14, line_width=0)
    return figure
