"""Answers of a model and the questions behind them, read from lm-eval's tasks; bounded (gprune.records.answers)."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from gprune.records import Answers, Questions
from gprune.records.answers import MOST_OPTIONS, MOST_QUESTIONS

Tasks = dict[str, Any]


def read_answers(name: str, tasks: Tasks, scores: dict[str, list[float]]) -> Answers:
    """Return what a model answers to the questions of a task.

    Where all tasks are multiple choice by log-likelihood: the likelihood of every option. Else `scores`, of every
    question by task, where each question is right or wrong; no question where it is neither.
    """
    scored = not has_options(tasks)
    if scored:
        values = [score for task_scores in scores.values() for score in task_scores][:MOST_QUESTIONS]
        values = values if set(values) <= {0, 1} else []
        counts = lengths = [1] * len(values)
        right = [0] * len(values)
    else:
        questions = list(_stored_questions(tasks))
        values = [option.resps[0][0] for _, options in questions for option in options]
        counts = [len(options) for _, options in questions]
        lengths = [len(choice) for task, options in questions for choice in task.doc_to_choice(options[0].doc)]
        right = [_right_option(task, options[0].doc) or 0 for task, options in questions]
    return Answers(
        task=name,
        documents=sum(len(_documents(task)) for task in tasks.values()),
        likelihoods=np.array(values, dtype=np.float32),
        lengths=np.array(lengths, dtype=np.int32),
        counts=np.array(counts, dtype=np.int32),
        right=np.array(right, dtype=np.int32),
        scored=scored,
    )


def read_questions(name: str, tasks: Tasks) -> Questions:
    """Return the questions of a task as a model reads them, with their options, or the text that is right."""
    if has_options(tasks):
        return Questions.of(name, [_with_options(requests) for _, requests in _stored_questions(tasks)])
    groups = ((task, requests) for task in tasks.values() for requests in _documents(task))
    pairs = [(str(requests[0].args[0]), [_target(task, requests[0].doc)]) for task, requests in groups]
    return Questions.of(name, pairs[:MOST_QUESTIONS])


def has_options(tasks: Tasks) -> bool:
    """Return True if every question is answered by its likeliest option."""
    return all(
        task.OUTPUT_TYPE == "multiple_choice"
        and task.get_config("process_results") is None
        and not getattr(task, "multiple_target", 0)
        and len(requests) == len(task.doc_to_choice(requests[0].doc))
        and _right_option(task, requests[0].doc) is not None
        for task in tasks.values()
        for requests in _documents(task)
    )


def chance(tasks: Tasks) -> float:
    """Return the accuracy of guessing, the mean of 1 / options; NaN where there are none."""
    if not has_options(tasks):
        return float("nan")
    shares = [1 / len(requests) for task in tasks.values() for requests in _documents(task)]
    return sum(shares) / len(shares)


def _documents(task: Any) -> list[list[Any]]:
    """Return the requests of each document, in order."""
    documents: dict[int, list[Any]] = {}
    for request in sorted(task.instances, key=lambda request: (request.doc_id, request.idx)):
        documents.setdefault(request.doc_id, []).append(request)
    return list(documents.values())


def _stored_questions(tasks: Tasks) -> Iterator[tuple[Any, list[Any]]]:
    questions = options = 0
    for task in tasks.values():
        for requests in _documents(task):
            questions, options = questions + 1, options + len(requests)
            if questions > MOST_QUESTIONS or options > MOST_OPTIONS:
                return
            yield task, requests


def _right_option(task: Any, document: Any) -> int | None:
    """Return the index of the right option, None where lm-eval counts none as right."""
    choices = task.doc_to_choice(document)
    gold = task.doc_to_text(document) if task.multiple_input else task.doc_to_target(document)
    if isinstance(gold, str):
        return choices.index(gold) if gold in choices else None
    return int(gold) if isinstance(gold, int) and 0 <= gold < len(choices) else None


def _with_options(requests: list[Any]) -> tuple[str, list[str]]:
    """Return what comes before the options, and the options; where each has its own context, all of both."""
    pairs = [request.args for request in requests]
    if len({before for before, _ in pairs}) > 1:
        return "", ["".join(pair) for pair in pairs]
    return pairs[0][0], [option for _, option in pairs]


def _target(task: Any, document: Any) -> str:
    target = task.doc_to_target(document)
    return str(target[0] if isinstance(target, list) and target else target)
