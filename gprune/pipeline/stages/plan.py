"""The plan of a study: the results that it asks for, in the order of the paper."""

from typing import Any

from gprune.pipeline.stages import evaluation as measure
from gprune.pipeline.stages.calibration import positions, size
from gprune.pipeline.stages.graph import Graph, Stage, once, order
from gprune.pipeline.stages.pruned_models import checkpoint, masks
from gprune.pipeline.stages.rasa import adapted_scores, agreements, modules
from gprune.pipeline.stages.scoring import drift, partition
from gprune.study import Study
from gprune.study.methods import METHODS, RECOMMENDED

UNTIL = ("drift", "adapted", "agreement", "masks", "perplexity", "all")
"""what a run may stop after: agreement needs no masks, perplexity writes no model folder, all does"""

WRITTEN = ("gprune", RECOMMENDED)
"""the methods whose pruned models a whole run writes as folders"""


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
