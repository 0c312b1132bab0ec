"""What is measured later belongs to the run: tasks and speed that other runs measured of the same models.

Tasks, speed and the answers behind accuracies are results under keys that follow from the masks and what they
are repaired with. A run whose every model is one of another run, by those keys, has that one's measurements
as well: its graph asks for them, and finds them as it finds its own. Nothing is copied, and what the
measurement of another model would be has another key.
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
    """A run as its record tells it."""

    name: str
    record: dict[str, Any]
    graph: Graph
    named: bool
    """whether a person has named it, so that it stays one of its own"""


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
    """What each run of a cache has beside its own measurements; `sources` stand the latest first."""
    alike = defaultdict(list)
    for source in sources:
        alike[_model(source.graph)].append(source)
    found = {source.name: Attached(source.graph) for source in sources}
    for group in alike.values():
        if len(group) > 1 and any(map(_measures, group)):
            found |= {one.name: _attached(one, group) for one in group}
            found |= {one.name: replace(found[one.name], shown_by=_home(one, group, found)) for one in group}
    return [found[source.name] for source in sources]


def _model(graph: Graph) -> object:
    """What runs of the same masks share at least: told without declaring a stage."""
    study, inputs = graph.study, graph.inputs
    texts = tuple(sorted((role, inputs.calibration[role]) for role in ("primary", "auxiliary")))
    return inputs.model, inputs.precision, texts, study.metric, study.retention, study.seed


def _measures(source: Source) -> bool:
    evaluation = source.graph.study.evaluation
    return bool(evaluation.tasks) or evaluation.speed != "none"


@once
def _models(graph: Graph) -> dict[str, tuple[str, ...]]:
    """The keys that every pruned model of a study follows from, by method: of its masks and its repair."""
    keys = {name: tuple(need.key for need in every_need(pruned(graph, name))) for name in graph.study.methods}
    return keys if any(keys.values()) and graph.known else {}


def _attached(own: Source, group: Iterable[Source]) -> Attached:
    models = _models(own.graph)
    same = [one for one in group if one is not own and models and models.items() <= _models(one.graph).items()]
    measuring, graph = [one for one in same if _measures(one)], own.graph
    sources = []
    for one in measuring:
        extended = _with_speed(_with_tasks(graph, one), one)
        sources += [one.name] if extended is not graph else []
        graph = extended
    missing = {
        task: why
        for task, why in _told("missing_tasks", measuring, own).items()
        if not any(task in one.graph.inputs.tasks and _was_asked(one, task) for one in (own, *measuring))
    }
    return Attached(graph, tuple(sources), missing)


def _told(what: str, others: Iterable[Source], own: Source) -> dict[str, str]:
    """What the records of runs say of tasks; of several its own counts."""
    return {task: why for one in (*others, own) for task, why in (one.record.get(what) or {}).items()}


def _with_tasks(graph: Graph, other: Source) -> Graph:
    """A graph with the tasks that another run has measured by the same limit and harness."""
    mine, theirs = graph.study.evaluation, other.graph.study.evaluation
    known = graph.inputs.tasks
    new = {task: key for task, key in other.graph.inputs.tasks.items() if task not in known}
    new = {task: key for task, key in new.items() if task in theirs.tasks and _was_asked(other, task)}
    asked = (theirs.limit, theirs.few_shot, other.graph.inputs.scoring)
    if not new or (known and asked != (mine.limit, mine.few_shot, graph.inputs.scoring)):
        return graph
    evaluation = replace(
        mine,
        tasks=tuple(dict.fromkeys((*mine.tasks, *new))),
        limit=theirs.limit,
        few_shot=theirs.few_shot,
        task_folder=mine.task_folder or theirs.task_folder,
    )
    return _extended(graph, evaluation, tuple((known | new).items()), asked[2], graph.inputs.machine)


def _was_asked(source: Source, task: str) -> bool:
    """Whether a run has measured a task on any of its models."""
    done = source.record["stages"]
    return any(accuracy(source.graph, name, task).name in done for name in source.graph.study.methods)


def _with_speed(graph: Graph, other: Source) -> Graph:
    """A graph with the speed that another run has measured of the same models in the same order."""
    mine, theirs, inputs = graph.study.evaluation, other.graph.study.evaluation, other.graph.inputs
    if mine.speed != "none" or theirs.speed == "none" or speed(other.graph).name not in other.record["stages"]:
        return graph
    tasks = tuple(graph.inputs.tasks.items())
    evaluation = replace(mine, speed=theirs.speed)
    found = _extended(graph, evaluation, tasks, graph.inputs.scoring, inputs.machine)
    return found if speed(found).key == speed(other.graph).key else graph


# a page asks for it at every drawing, and the handles of a graph take a while to make
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


def _home(own: Source, group: Iterable[Source], found: Mapping[str, Attached]) -> str:
    """The earliest run that differs in what is measured alone, and whose pages show all of that."""
    if own.named or runs.standing(own.record) != "done":
        return ""
    alike = [one for one in group if _apart(one.graph) == _apart(own.graph)]
    for one in reversed(alike[alike.index(own) + 1 :]):
        if runs.standing(one.record) == "done" and _shows(found[one.name].graph, own.graph):
            return one.name
    return ""


@once
def _apart(graph: Graph) -> Study:
    """A study without what is measured later."""
    study, plain = graph.study, EvaluationSettings()
    untouched: dict[str, Any] = {name: getattr(plain, name) for name in _MEASURES}
    return replace(study, evaluation=replace(study.evaluation, **untouched))


def _shows(shown: Graph, other: Graph) -> bool:
    """Whether a graph has every accuracy and the speed of another one."""
    timed = other.study.evaluation.speed == "none" or (
        shown.study.evaluation.speed != "none" and speed(shown).key == speed(other).key
    )
    return timed and all(
        task in shown.inputs.tasks and accuracy(shown, name, task).key == accuracy(other, name, task).key
        for task in other.inputs.tasks
        for name in shown.study.methods
    )
