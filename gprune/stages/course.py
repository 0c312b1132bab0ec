"""The course of a study: which results it wants, in the order in which people want to see them."""

from __future__ import annotations

from typing import Any

from gprune.methods import METHODS
from gprune.stages.adapting import adapted, agreements, modules
from gprune.stages.answering import accuracy, answers, questions
from gprune.stages.exploring import drift, partition
from gprune.stages.graph import Graph, Has, Stage, once, order
from gprune.stages.measuring import overlap, perplexity, speed
from gprune.stages.pruning import checkpoint, masks
from gprune.stages.reading import size

UNTIL = ("drift", "adapted", "agreement", "masks", "perplexity", "all", "answers")
"""what a run may stop after: agreement needs no masks, perplexity writes no model folder, all does; answers
measures tasks again whose accuracy is there from before their answers were kept"""


def wanted(graph: Graph, until: str = "all") -> list[Stage[Any]]:
    """What a study wants, in the order of the paper; what that needs is left out."""
    study, until = graph.study, "all" if until == "answers" else until
    found: list[Stage[Any]] = [drift(graph)]
    pruning = until in ("masks", "perplexity", "all")
    if until != "drift" and ("gprune" in study.methods or not pruning):
        found += [partition(graph), modules(graph), adapted(graph)]
    if pruning:
        cutting = [METHODS[name] for name in study.methods if METHODS[name].decision != "none"]
        found += [size(graph), *(masks(graph, method.masks) for method in cutting)]
    if until in ("perplexity", "all"):
        found += measured(graph)
    if until == "all" and "gprune" in study.methods:
        found.append(checkpoint(graph))
    if until in ("agreement", "all"):
        found += agreements(graph).values()
    return found


def measured(graph: Graph) -> list[Stage[Any]]:
    """Every measurement of a study: overlaps, perplexities, speed, and of the tasks that have data all."""
    study, evaluation = graph.study, graph.study.evaluation
    found: list[Stage[Any]] = [overlap(graph, text) for text in evaluation.texts]
    found += [perplexity(graph, name, text) for name in study.methods for text in evaluation.texts]
    tasks = [task for task in evaluation.tasks if task in graph.inputs.tasks]
    for name in study.methods:
        # answers come right after the accuracy that leaves them, while the method's model is there
        found += [of(graph, name, task) for task in tasks for of in (accuracy, answers)]
    found += [questions(graph, task) for task in tasks]
    return found + ([speed(graph)] if evaluation.speed != "none" else [])


def course(graph: Graph, until: str, has: Has) -> tuple[Stage[Any], ...]:
    """Every stage that a run goes through, in its order.

    Args:
        graph: the study's graph.
        until: the last thing wanted, one of UNTIL.
        has: whether a result is there.
    """
    found = wanted(graph, until)
    return order(found if until == "answers" else _without_going_back(graph, found, has), has)


def _without_going_back(graph: Graph, found: list[Stage[Any]], has: Has) -> list[Stage[Any]]:
    """Leaves out answers that a model would have to be asked for again, and questions that nobody answers.

    Asking takes hours on a large model: a study whose accuracies are there must not do so for a new name.
    """
    lost = {
        stage
        for stage in found
        if stage.kind == "answers" and has(stage.needs["accuracy"]) and not has(stage)
    }
    tasks = {stage.id.item for stage in found if stage.kind == "answers" and stage not in lost}
    idle = {stage for stage in found if stage.kind == "questions" and stage.id.item not in tasks}
    return [stage for stage in found if stage not in lost | idle]


def every(graph: Graph) -> tuple[Stage[Any], ...]:
    """Every stage of a whole run, wherever it may stop."""
    return order([*wanted(graph, "adapted"), *wanted(graph)], lambda _: False)


@once
def named(graph: Graph) -> dict[str, Stage[Any]]:
    """The stages of a whole run by name, with those that others can serve for."""
    found = {stage.name: stage for stage in every(graph)}
    return {stage.name: stage for stage in graph.made()} | found
