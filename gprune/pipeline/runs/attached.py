"""Tasks and speed that other runs measured of the same models.

Tasks, speed and the answers behind accuracies are results whose keys follow from masks and repairs. A run whose
models are all models of another run, by those keys, has that run's measurements too: its graph is extended by them.
Nothing is copied.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

from gprune.pipeline import runs
from gprune.pipeline.stages import Graph, accuracy, pruned, speed
from gprune.pipeline.stages.graph import every_need, once
from gprune.study import EvaluationSettings, Study

_MEASURES = ("tasks", "few_shot", "limit", "task_folder", "speed", "batch")
"""settings of the evaluation that say what is measured later, or change no result"""


class Source(NamedTuple):
    """A run by its record."""

    name: str
    record: dict[str, Any]
    graph: Graph
    named: bool
    """whether a person has named it; such a run is listed for itself"""


@dataclass(frozen=True, slots=True)
class Attached:
    """What a run has beside its own measurements."""

    graph: Graph
    """its stages, with those that others have measured of its models"""
    sources: tuple[str, ...] = ()
    """the runs that have measured them, the latest first"""
    missing_tasks: Mapping[str, str] | None = None
    """why they could not measure tasks, by task"""
    shown_by: str = ""
    """the earlier run on whose pages everything stands that this one has measured; empty if there is none"""


def attached(sources: Sequence[Source]) -> list[Attached]:
    """Return what each run of a cache has besides its own measurements; `sources` are the latest first."""
    groups = defaultdict(list)
    for source in sources:
        groups[_shared_inputs(source.graph)].append(source)
    results = {source.name: Attached(source.graph) for source in sources}
    for group in groups.values():
        if len(group) > 1 and any(map(_measures, group)):
            results |= {source.name: _attached(source, group) for source in group}
            results |= {
                source.name: replace(results[source.name], shown_by=_shown_by(source, group, results))
                for source in group
            }
    return [results[source.name] for source in sources]


def _shared_inputs(graph: Graph) -> object:
    # runs of the same masks share at least this, and it declares no stage
    study, inputs = graph.study, graph.inputs
    texts = tuple(sorted((role, inputs.calibration[role]) for role in ("primary", "auxiliary")))
    return inputs.model, inputs.precision, texts, study.metric, study.retention, study.seed


def _measures(source: Source) -> bool:
    evaluation = source.graph.study.evaluation
    return bool(evaluation.tasks) or evaluation.speed != "none"


@once
def _models(graph: Graph) -> dict[str, tuple[str, ...]]:
    """Return the keys of the masks and repair of every pruned model of a study, by method."""
    keys = {name: tuple(need.key for need in every_need(pruned(graph, name))) for name in graph.study.methods}
    return keys if any(keys.values()) and graph.known else {}


def _attached(source: Source, group: Iterable[Source]) -> Attached:
    models, graph = _models(source.graph), source.graph
    others = [other for other in group if other is not source and models and _measures(other)]
    others = [other for other in others if models.items() <= _models(other.graph).items()]
    names = []
    for other in others:
        extended = _with_speed(_with_tasks(graph, other), other)
        names += [other.name] if extended is not graph else []
        graph = extended
    sources = (*others, source)
    # of several reasons the run's own counts
    reasons = {task: why for run in sources for task, why in (run.record.get("missing_tasks") or {}).items()}
    missing = {
        task: why
        for task, why in reasons.items()
        if not any(task in run.graph.inputs.tasks and _was_measured(run, task) for run in sources)
    }
    return Attached(graph, tuple(names), missing)


def _with_tasks(graph: Graph, other: Source) -> Graph:
    """Extend a graph by the tasks that another run measured with the same limit and harness."""
    own, theirs, inputs = graph.study.evaluation, other.graph.study.evaluation, other.graph.inputs
    tasks = graph.inputs.tasks
    new = {task: key for task, key in inputs.tasks.items() if task not in tasks and task in theirs.tasks}
    new = {task: key for task, key in new.items() if _was_measured(other, task)}
    protocol = theirs.limit, theirs.few_shot, inputs.scoring
    if not new or (tasks and protocol != (own.limit, own.few_shot, graph.inputs.scoring)):
        return graph
    evaluation = replace(
        own,
        tasks=tuple(dict.fromkeys((*own.tasks, *new))),
        limit=theirs.limit,
        few_shot=theirs.few_shot,
        task_folder=own.task_folder or theirs.task_folder,
    )
    return _extended(graph, evaluation, tuple((tasks | new).items()), inputs.scoring, graph.inputs.machine)


def _was_measured(source: Source, task: str) -> bool:
    """Return True if a run has measured a task on any of its models."""
    return any(
        accuracy(source.graph, name, task).name in source.record["stages"] for name in source.graph.study.methods
    )


def _with_speed(graph: Graph, other: Source) -> Graph:
    """Extend a graph by the speed that another run measured of the same models in the same order."""
    own, theirs = graph.study.evaluation, other.graph.study.evaluation
    if own.speed != "none" or theirs.speed == "none" or speed(other.graph).name not in other.record["stages"]:
        return graph
    evaluation, tasks = replace(own, speed=theirs.speed), tuple(graph.inputs.tasks.items())
    extended = _extended(graph, evaluation, tasks, graph.inputs.scoring, other.graph.inputs.machine)
    return extended if speed(extended).key == speed(other.graph).key else graph


# pages ask at every rerun, and a graph takes a while to build
@lru_cache(maxsize=256)
def _extended(
    graph: Graph,
    evaluation: EvaluationSettings,
    tasks: tuple[tuple[str, str], ...],
    scoring: str,
    machine: str,
) -> Graph:
    inputs = replace(graph.inputs, tasks=dict(tasks), scoring=scoring, machine=machine)
    return Graph(replace(graph.study, evaluation=evaluation), inputs, graph.letters)


def _shown_by(source: Source, group: Iterable[Source], results: Mapping[str, Attached]) -> str:
    """Return the earliest run that differs only in what is measured, and whose pages show all of that."""
    if source.named or runs.standing(source.record) != "done":
        return ""
    alike = [other for other in group if _without_measures(other.graph) == _without_measures(source.graph)]
    for other in reversed(alike[alike.index(source) + 1 :]):
        if runs.standing(other.record) == "done" and _shows(results[other.name].graph, source.graph):
            return other.name
    return ""


@once
def _without_measures(graph: Graph) -> Study:
    """Return a study without the settings of what is measured later."""
    study, defaults = graph.study, EvaluationSettings()
    unset: dict[str, Any] = {name: getattr(defaults, name) for name in _MEASURES}
    return replace(study, evaluation=replace(study.evaluation, **unset))


def _shows(shown: Graph, other: Graph) -> bool:
    """Return True if a graph has every accuracy and the speed of another one."""
    timed = other.study.evaluation.speed == "none" or (
        shown.study.evaluation.speed != "none" and speed(shown).key == speed(other).key
    )
    return timed and all(
        task in shown.inputs.tasks and accuracy(shown, name, task).key == accuracy(other, name, task).key
        for task in other.inputs.tasks
        for name in shown.study.methods
    )
