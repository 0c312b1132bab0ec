"""The stages that ask questions: zero-shot accuracy, and the answers that it rests on (section 4).

Answers are kept on the way when an accuracy is measured, as a result of their own that changes no other
key: an accuracy from before they were kept stays what it is, and models are asked again only where a person
wants it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gprune.pipeline.stages.graph import Graph, Stage, StageId, once
from gprune.pipeline.stages.pruned_models import pruned, pruned_model
from gprune.pipeline.stages.run_context import RunContext
from gprune.records import Accuracy, Answers, PrunedModel, Questions
from gprune.study.methods import METHODS
from gprune.system.errors import CorpusError, NumericsError, SettingsError, TaskError

if TYPE_CHECKING:
    from gprune.evaluation.accuracy import Answered

_REFUSED = CorpusError, SettingsError, NumericsError


@once
def accuracy(graph: Graph, method: str, task: str) -> Stage[Accuracy]:
    """Zero-shot accuracy of a method on a task of the study that has data here."""

    def make(work: RunContext, also: tuple[StageId, ...] = (), **parts: Any) -> Any:
        found = _answered(work, task, method, pruned_model(graph, method, **parts))
        made = {"answers": found.answers, "questions": found.questions}
        return (found.accuracy, *(made[one.kind] for one in also)) if also else found.accuracy

    return graph.stage(
        _identity(graph, "accuracy", task, method),
        f"accuracy of {METHODS[method].label}, {_called(graph, task)}",
        make,
        needs=pruned(graph, method),
        **_asked(graph, task),
        beside=(answers(graph, method, task), questions(graph, task)),
    )


@once
def answers(graph: Graph, method: str, task: str) -> Stage[Answers]:
    """The likelihood of every option of a task's questions, which a measured accuracy leaves on its way."""

    def make(work: RunContext, **parts: Any) -> Answers:
        return _answered(work, task, method, pruned_model(graph, method, **parts)).answers

    return graph.stage(
        _identity(graph, "answers", task, method),
        f"answers of {METHODS[method].label}, {_called(graph, task)}",
        make,
        needs=pruned(graph, method),
        **_asked(graph, task),
    )


@once
def questions(graph: Graph, task: str) -> Stage[Questions]:
    """The questions of a task of the study as models are asked them; no model is loaded for it."""

    def make(work: RunContext) -> Questions:
        from gprune.evaluation.accuracy import questions as read

        try:
            return read(task, work.study.evaluation, work.progress)
        except _REFUSED as error:
            raise TaskError(str(error)) from error

    return graph.stage(
        _identity(graph, "questions", task),
        f"questions of {_called(graph, task)}",
        make,
        reads={"task": graph.inputs.tasks[task]},
        settings=_asked(graph, task)["settings"],
    )


def _answered(work: RunContext, task: str, method: str, pruned: PrunedModel | None) -> Answered:
    from gprune.evaluation.accuracy import answered

    settings, model = work.study.evaluation, work.cut(method, pruned)
    try:
        return answered(model, work.tokenizer, (task,), settings, work.progress)[task]
    except _REFUSED as error:
        raise TaskError(str(error)) from error


def _asked(graph: Graph, task: str) -> dict[str, Any]:
    """What decides the questions of a task, and the model that is asked."""
    inputs, evaluation = graph.inputs, graph.study.evaluation
    examples = {} if evaluation.few_shot is None else {"few_shot": evaluation.few_shot}
    return {
        "reads": graph.model | {"task": inputs.tasks[task]} | graph.tokenizer,
        "settings": {"limit": evaluation.limit, "scoring": inputs.scoring} | examples,
    }


def _identity(graph: Graph, kind: str, task: str, method: str = "") -> StageId:
    return StageId(kind, method=method, item=graph.study.evaluation.tasks.index(task))


def _called(graph: Graph, task: str) -> str:
    return f"task {graph.study.evaluation.tasks.index(task) + 1}"
