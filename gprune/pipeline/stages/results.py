"""The results of a study: those that it asks for, in the order of the paper, and those that a store has."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from gprune.pipeline.stages import evaluation as measure
from gprune.pipeline.stages.calibration import positions, size
from gprune.pipeline.stages.graph import KINDS, Graph, Stage, once, order
from gprune.pipeline.stages.pruned_models import checkpoint, choice, masks
from gprune.pipeline.stages.pruning import chosen_repairs, repairs
from gprune.pipeline.stages.rasa import adapted_scores, agreements, modules
from gprune.pipeline.stages.scoring import drift, partition
from gprune.records import Choice, Repair
from gprune.records.repairs import AUTO
from gprune.store import Store
from gprune.study import Study
from gprune.study.methods import METHODS, RECOMMENDED
from gprune.system.errors import DamagedError

UNTIL = ("drift", "adapted", "agreement", "masks", "perplexity", "all")
"""what a run may stop after: agreement needs no masks, perplexity writes no model folder, all does"""

WRITTEN = ("gprune", RECOMMENDED)
"""the methods whose pruned models a whole run writes as folders"""
R = TypeVar("R")
P = ParamSpec("P")
Declaration = Callable[Concatenate[Graph, P], Stage[R]]
"""A function of gprune.pipeline.stages that declares a stage, as `drift` or `masks`."""


def goal_stages(graph: Graph, until: str = "all") -> list[Stage[Any]]:
    """Return the results that a study asks for, without their needs, in the order of the paper."""
    study = graph.study
    goals: list[Stage[Any]] = [drift(graph)]
    prunes, measures = until in ("masks", "perplexity", "all"), until in ("perplexity", "all")
    if until != "drift" and ("gprune" in study.methods or not prunes):
        goals += [partition(graph), modules(graph), adapted_scores(graph)]
    if prunes:
        goals += [size(graph), *(masks(graph, METHODS[name].masks) for name in _pruning_methods(study))]
    if measures:
        goals += _measurements(graph)
    if until == "all":
        exported = [name for name in WRITTEN if name in study.methods]
        forms = (False, True)[: 1 + recovers(study)]
        goals += [checkpoint(graph, name, recovery=trained) for name in exported for trained in forms]
    if until in ("agreement", "all"):
        goals += agreements(graph).values()
    return goals


def _pruning_methods(study: Study) -> list[str]:
    return [name for name in study.methods if METHODS[name].decision != "none"]


def measurable(graph: Graph) -> list[str]:
    """Return the tasks of a study that have data here."""
    return [task for task in graph.study.evaluation.tasks if task in graph.inputs.tasks]


def _measurements(graph: Graph) -> list[Stage[Any]]:
    study, texts = graph.study, graph.study.evaluation.texts
    measurements: list[Stage[Any]] = [measure.overlap(graph, text) for text in texts]
    measurements += [measure.perplexity(graph, name, text) for name in study.methods for text in texts]
    measurements += [measure.accuracy(graph, name, task) for name in study.methods for task in measurable(graph)]
    measurements += [measure.speed(graph)] if study.evaluation.speed != "none" else []
    trained = _pruning_methods(study) if recovers(study) else []
    return measurements + [measure.recovered_perplexity(graph, name, text) for name in trained for text in texts]


def recovers(study: Study) -> bool:
    """Return True if pruned models are trained further."""
    return study.recovery.kind != "none"


def execution_plan(graph: Graph, until: str = "all") -> tuple[Stage[Any], ...]:
    """Return every stage that a run as far as `until`, one of UNTIL, goes through, in its order; see `order`."""
    return _add_by_products(graph, order(goal_stages(graph, until)))


def all_stages(graph: Graph) -> tuple[Stage[Any], ...]:
    """Return every stage of a whole run, wherever it may stop."""
    return _add_by_products(graph, order([*goal_stages(graph, "adapted"), *goal_stages(graph)]))


def _add_by_products(graph: Graph, stages: tuple[Stage[Any], ...]) -> tuple[Stage[Any], ...]:
    """Add the stages whose records another stage computes as well, each after that stage."""
    ordered: dict[Stage[Any], None] = {}
    for stage in stages:
        products: tuple[Stage[Any], ...] = ()
        if stage.kind == "statistics" and graph.study.calibration.positions:
            products = (positions(graph, stage.id.texts[0]),)
        elif stage.kind == "accuracy":
            task = graph.study.evaluation.tasks[stage.id.item or 0]
            products = measure.answers(graph, stage.id.method, task), measure.questions(graph, task)
        ordered[stage] = None
        ordered |= dict.fromkeys(product for product in products if product not in stages)
    return tuple(ordered)


@once
def stages_by_name(graph: Graph) -> dict[str, Stage[Any]]:
    """Return the stages of a whole run by name, and every other stage that was declared."""
    in_order = {stage.name: stage for stage in all_stages(graph)}
    return {stage.name: stage for stage in graph.declared_stages()} | in_order


class Results:
    """The results of a study; one exists if its key does, whichever run computed it."""

    def __init__(self, store: Store, graph: Graph) -> None:
        """Bind a graph, with the digests of what it reads, to a store; nothing is read."""
        self.store, self.graph = store, graph

    def holds(self, stage: Stage[Any]) -> bool:
        """Return True if the result of this stage itself exists."""
        return bool(stage.key) and self.store.has(stage.kind, stage.key, KINDS[stage.kind].record)

    def record(self, stage: Stage[R]) -> R:
        """Return the record of a stage, with read-only arrays, or the path of a folder; all of it is checked.

        Raises StoreError if the result is absent or damaged.
        """
        kind, key = stage.kind, stage.key
        record = KINDS[kind].record
        record_read: Any = self.store.check(kind, key) if record is None else self.store.get(kind, key, record)
        return record_read

    def is_intact(self, stage: Stage[Any]) -> bool:
        """Return True if the result of this stage exists and is intact; all of it is read.

        Raises StoreError if it is there and cannot be read.
        """
        try:
            return self.holds(stage) and bool(self.store.check(stage.kind, stage.key, KINDS[stage.kind].record))
        except DamagedError:
            return False

    def plan(self, until: str) -> tuple[Stage[Any], ...]:
        """Return every stage that a run of the study as far as `until`, one of UNTIL, goes through."""
        return execution_plan(self.graph, until)

    def missing_keys(self, until: str) -> frozenset[str]:
        """Return the keys of the stages without a result of a run as far as `until`."""
        return frozenset(stage.key for stage in self.plan(until) if not self.holds(stage))

    def set_aside(self, stage: Stage[Any]) -> str:
        """Quarantine a damaged result, and return a notice of it.

        Raises StoreError if the cache cannot be written.
        """
        return self.store.set_aside(stage.kind, stage.key, KINDS[stage.kind].record)

    def has(self, declare: Declaration[P, Any], *args: P.args, **kwargs: P.kwargs) -> bool:
        """Return True if the result of a declaration exists: `results.has(drift)`."""
        return self.holds(declare(self.graph, *args, **kwargs))

    def get(self, declare: Declaration[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Return the record of a declared stage: `results.get(scores, "auxiliary")`.

        Raises StoreError if the result is absent or damaged.
        """
        return self.record(declare(self.graph, *args, **kwargs))

    def details(self, stage: Stage[Any]) -> dict[str, Any]:
        """Return the details of a result: seconds, passes, versions; empty if it is absent."""
        return self.store.manifest(stage.kind, stage.key, KINDS[stage.kind].record) or {}

    def model_folder(self, stage: Stage[Any]) -> Path:
        """Return the folder of a pruned model that a checkpoint's stage has written."""
        return self.store.folder(stage.kind, stage.key) / "model"


def find_choice(results: Results, method: str) -> Choice | None:
    """Return the choice for a method; None if there is none, or not yet.

    Raises StoreError if the record is damaged.
    """
    if AUTO not in repairs(results.graph, method):
        return None
    stage = choice(results.graph, METHODS[method].masks)
    return results.record(stage) if results.holds(stage) else None


def applied_repairs(results: Results, method: str) -> tuple[Repair, ...]:
    """Return the repairs of the weights that a method keeps; AUTO if they are yet to be chosen."""
    selection = find_choice(results, method)
    if selection is None:
        return repairs(results.graph, method)
    return chosen_repairs(results.graph, method, selection.repair.partition(":")[0])
