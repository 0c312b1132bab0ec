"""Tasks and speed that other runs measured of the same models.

A run that differs only in what is measured has the same models. Its tasks and speed are results under keys that follow
from them, so the graphs of the other runs are extended by these. Nothing is copied.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

from gprune.pipeline.stages import Graph, accuracy, speed
from gprune.pipeline.stages.graph import once
from gprune.study import EvaluationSettings

_MEASURES = ("tasks", "few_shot", "limit", "task_folder", "speed", "batch")
"""settings of the evaluation that say what is measured later, or change no result"""


class Source(NamedTuple):
    """A run by its record."""

    name: str
    record: dict[str, Any]
    graph: Graph
    has_own_name: bool
    """True if a person has named it; such a run is listed for itself"""
    done: bool


@dataclass(frozen=True, slots=True)
class Attached:
    """The measurements that other runs made of a run's models."""

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
        groups[_same_models(source.graph) if source.graph.known else source.name].append(source)
    results = {source.name: _attached(source, group) for group in groups.values() for source in group}
    for group in groups.values():
        for index, source in enumerate(group):
            earlier = [other.name for other in reversed(group[index + 1 :]) if other.done]
            if source.done and not source.has_own_name:
                shown_by = next((name for name in earlier if _shows(results[name].graph, source.graph)), "")
                results[source.name] = replace(results[source.name], shown_by=shown_by)
    return [results[source.name] for source in sources]


@once
def _same_models(graph: Graph) -> str:
    """Return a text that is the same for runs that differ only in what is measured."""
    defaults = EvaluationSettings()
    unset: dict[str, Any] = {name: getattr(defaults, name) for name in _MEASURES}
    study = replace(graph.study, evaluation=replace(graph.study.evaluation, **unset))
    return repr((study, replace(graph.inputs, tasks={}, scoring="", machine="")))


def _attached(source: Source, group: Sequence[Source]) -> Attached:
    other_runs = [other for other in group if other is not source]
    if not other_runs:
        return Attached(source.graph)
    graph, names = source.graph, []
    for other in other_runs:
        extended = _with_speed(_with_tasks(graph, other), other)
        names += [other.name] if extended is not graph else []
        graph = extended
    # of several reasons the run's own counts
    runs = (*other_runs, source)
    reasons = {task: reason for run in runs for task, reason in (run.record.get("missing_tasks") or {}).items()}
    missing = {
        task: reason for task, reason in reasons.items() if not any(_has_measured_task(run, task) for run in runs)
    }
    return Attached(graph, tuple(names), missing)


def _with_tasks(graph: Graph, other: Source) -> Graph:
    """Extend a graph by the tasks that another run measured with the same limit and harness."""
    settings, other_settings, inputs = graph.study.evaluation, other.graph.study.evaluation, other.graph.inputs
    tasks = graph.inputs.tasks
    new = {task: key for task, key in inputs.tasks.items() if task not in tasks and _has_measured_task(other, task)}
    protocol = other_settings.limit, other_settings.few_shot, inputs.scoring
    if not new or (tasks and protocol != (settings.limit, settings.few_shot, graph.inputs.scoring)):
        return graph
    evaluation = replace(
        settings,
        tasks=tuple(dict.fromkeys((*settings.tasks, *new))),
        limit=other_settings.limit,
        few_shot=other_settings.few_shot,
        task_folder=settings.task_folder or other_settings.task_folder,
    )
    return _extended(graph, evaluation, tuple((tasks | new).items()), inputs.scoring, graph.inputs.machine)


def _has_measured_task(run: Source, task: str) -> bool:
    if task not in run.graph.inputs.tasks:
        return False
    return any(accuracy(run.graph, name, task).name in run.record["stages"] for name in run.graph.study.methods)


def _with_speed(graph: Graph, other: Source) -> Graph:
    """Extend a graph by the speed that another run measured."""
    settings, preset = graph.study.evaluation, other.graph.study.evaluation.speed
    if settings.speed != "none" or preset == "none" or speed(other.graph).name not in other.record["stages"]:
        return graph
    inputs = graph.inputs
    evaluation, tasks = replace(settings, speed=preset), tuple(inputs.tasks.items())
    return _extended(graph, evaluation, tasks, inputs.scoring, other.graph.inputs.machine)


# pages ask at every rerun, and a graph takes a while to build
@lru_cache(maxsize=256)
def _extended(
    graph: Graph, evaluation: EvaluationSettings, tasks: tuple[tuple[str, str], ...], scoring: str, machine: str
) -> Graph:
    inputs = replace(graph.inputs, tasks=dict(tasks), scoring=scoring, machine=machine)
    return Graph(replace(graph.study, evaluation=evaluation), inputs, graph.letters, graph.failures)


def _shows(graph: Graph, other: Graph) -> bool:
    """Return True if a graph has every accuracy and the speed of another one."""
    timed = other.study.evaluation.speed == "none" or (
        graph.study.evaluation.speed != "none" and speed(graph).key == speed(other).key
    )
    method = other.study.methods[0]
    return timed and all(
        task in graph.inputs.tasks and accuracy(graph, method, task).key == accuracy(other, method, task).key
        for task in other.inputs.tasks
    )
