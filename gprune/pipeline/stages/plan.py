"""The course of a study: which results it wants, in the order in which people want to see them."""

from typing import Any

from gprune.pipeline.stages.calibration import positions, recursive, size, statistics
from gprune.pipeline.stages.evaluation import overlap, perplexity, recovered_perplexity, speed
from gprune.pipeline.stages.graph import Graph, Stage, once
from gprune.pipeline.stages.inputs import ROLES
from gprune.pipeline.stages.pruned_models import checkpoint, masks
from gprune.pipeline.stages.rasa import adapted, agreements, modules
from gprune.pipeline.stages.scoring import drift, partition
from gprune.pipeline.stages.stage_order import Has, order
from gprune.pipeline.stages.zero_shot import accuracy, answers, questions
from gprune.study import Study
from gprune.study.methods import METHODS, RECOMMENDED
from gprune.study.settings import require

UNTIL = ("positions", "answers", "drift", "adapted", "agreement", "masks", "perplexity", "all")
"""what a run may stop after: positions are the strongest ones on every text, answers those behind accuracies;
agreement needs no masks, perplexity writes no model folder, all does"""

WRITTEN = ("gprune", RECOMMENDED)
"""the methods whose pruned models a whole run writes as folders"""


def wanted(graph: Graph, until: str = "all") -> list[Stage[Any]]:
    """What a study wants, in the order of the paper; what that needs is left out."""
    study = graph.study
    if until == "positions":
        return _strongest(graph)
    if until == "answers":
        return _answered(graph)
    found: list[Stage[Any]] = [drift(graph)]
    pruning = until in ("masks", "perplexity", "all")
    if until != "drift" and ("gprune" in study.methods or not pruning):
        found += [partition(graph), modules(graph), adapted(graph)]
    if pruning:
        cutting = [METHODS[name] for name in study.methods if METHODS[name].decision != "none"]
        found += [size(graph), *(masks(graph, method.masks) for method in cutting)]
    if until in ("perplexity", "all"):
        found += measured(graph) + after_recovery(graph)
    if until == "all":
        written = [name for name in WRITTEN if name in study.methods]
        forms = (False, True)[: 1 + recovers(study)]
        found += [checkpoint(graph, name, recovery=trained) for name in written for trained in forms]
    if until in ("agreement", "all"):
        found += agreements(graph).values()
    return found


def _strongest(graph: Graph) -> list[Stage[Any]]:
    """The strongest positions on every text, with the statistics whose pass makes them where both lack.

    Raises SettingsError where the study keeps none.
    """
    count, texts = graph.study.calibration.positions, (role for role in ROLES if getattr(graph.study, role))
    rule = "at least 1 for a run until positions: the study keeps none"
    require(count > 0, "calibration.positions", count, rule)
    released = recursive(graph.study, graph.study.metric)
    found = ((statistics(graph, role, released=released), positions(graph, role)) for role in texts)
    return [stage for pair in found for stage in pair]


def _answered(graph: Graph) -> list[Stage[Any]]:
    """The answers of every method to every task, with the accuracies that make them where both lack."""
    names, tasks = graph.study.methods, measurable(graph)
    found = [of(graph, name, task) for name in names for task in tasks for of in (accuracy, answers)]
    return [*found, *(questions(graph, task) for task in tasks)]


def measurable(graph: Graph) -> list[str]:
    """The tasks of a study that have data here."""
    return [task for task in graph.study.evaluation.tasks if task in graph.inputs.tasks]


def measured(graph: Graph) -> list[Stage[Any]]:
    """Every measurement of a study: overlaps, perplexities, accuracies of the tasks that have data, speed."""
    study, evaluation = graph.study, graph.study.evaluation
    found: list[Stage[Any]] = [overlap(graph, text) for text in evaluation.texts]
    found += [perplexity(graph, name, text) for name in study.methods for text in evaluation.texts]
    found += [accuracy(graph, name, task) for name in study.methods for task in measurable(graph)]
    return found + ([speed(graph)] if evaluation.speed != "none" else [])


def recovers(study: Study) -> bool:
    """Whether the methods of a study are trained on after they were pruned."""
    return study.recovery.kind != "none"


def after_recovery(graph: Graph) -> list[Stage[Any]]:
    """The perplexities of every pruned model after its recovery; none where nothing is recovered."""
    study = graph.study
    cutting = [name for name in study.methods if METHODS[name].decision != "none"]
    texts = study.evaluation.texts if recovers(study) else ()
    return [recovered_perplexity(graph, name, text) for name in cutting for text in texts]


def course(graph: Graph, until: str, has: Has, damaged: Has = lambda _: False) -> tuple[Stage[Any], ...]:
    """Every stage that a run as far as `until`, one of UNTIL, goes through, in its order; see `order`."""
    return order(wanted(graph, until), has, damaged)


def every(graph: Graph) -> tuple[Stage[Any], ...]:
    """Every stage of a whole run, wherever it may stop."""
    return order([*wanted(graph, "adapted"), *wanted(graph)], lambda _: False)


@once
def named(graph: Graph) -> dict[str, Stage[Any]]:
    """The stages of a whole run by name, with those that others can serve for."""
    found = {stage.name: stage for stage in every(graph)}
    return {stage.name: stage for stage in graph.made()} | found
