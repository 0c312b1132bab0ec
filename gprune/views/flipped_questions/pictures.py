"""The figure of the page by name, from a run and what can be set beside its card."""

from __future__ import annotations

import plotly.graph_objects as go

from gprune import stages
from gprune.analysis import flipped
from gprune.analysis.flipped import ACC
from gprune.settings import require_choice
from gprune.views.flipped_questions import charts, given
from gprune.views.flipped_questions.given import Given
from gprune.views.frame.loaders import MissingResultError, Run
from gprune.views.frame.picture import in_range, picture


@picture("answers")
def answers(run: Run, *, task: str = "", question: int = 0, rule: str = ACC) -> go.Figure:
    """How likely every model of a run finds the options of one question of a task."""
    found = given.of(run)
    if not found:
        tasks = given.measurable(run)
        raise MissingResultError(
            stages.answers(run.graph, run.study.methods[0], tasks[0]).title if tasks else "answers to tasks"
        )
    require_choice("task", task or found[0].task, tuple(one.task for one in found))
    chosen = next(one for one in found if one.task == (task or found[0].task))
    require_choice("rule", rule, chosen.rules)
    return of_question(chosen, question, rule)


def of_question(found: Given, question: int, rule: str) -> go.Figure:
    """The figure of a question of a task that has answers."""
    known = {method: found.answers(method) for method in found.methods}
    number = in_range("question", question, len(known[found.methods[0]].counts))
    return charts.likelihoods(flipped.of_question(known, rule, number), rule)
