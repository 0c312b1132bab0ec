"""Answers: what was a model asked, option by option, and how likely did it find each?

Reads lm-eval's tasks after they were asked; bounded, see gprune.records.answers.
"""

from typing import Any

import numpy as np

from gprune.evaluation.tasks.columns import Row
from gprune.records import Answers, Questions
from gprune.records.answers import MOST_OPTIONS, MOST_QUESTIONS


def answers(name: str, built: Any) -> Answers:
    """What a model has answered to a task: the likelihood of every option of the questions that are kept."""
    asked = _kept(built)
    options = [one for each in asked for one in each]
    right = [_right(built, each[0].doc) for each in asked]
    lengths = [len(option) for each in asked for option in built.doc_to_choice(each[0].doc)]
    return Answers(
        task=name,
        documents=len({instance.doc_id for instance in built.instances}),
        likelihoods=np.array([one.resps[0][0] for one in options], dtype=np.float32),
        lengths=np.array(lengths, dtype=np.int32),
        counts=np.array([len(each) for each in asked], dtype=np.int32),
        right=np.array(right, dtype=np.int32),
    )


def questions(name: str, built: Any) -> Questions:
    """The questions of a task, with its requests, as a model reads them, and the options that it compares."""
    return Questions.of(name, [_read(each) for each in _kept(built)])


def _kept(built: Any) -> list[list[Any]]:
    """The requests of each question that is kept, option by option."""
    each: dict[int, list[Any]] = {}
    for instance in sorted(built.instances, key=lambda one: (one.doc_id, one.idx)):
        each.setdefault(instance.doc_id, []).append(instance)
    kept, room = list[list[Any]](), MOST_OPTIONS
    for requests in list(each.values())[:MOST_QUESTIONS]:
        room -= len(requests)
        if room < 0:
            break
        kept.append(requests)
    return kept


def _right(built: Any, document: Row) -> int:
    """Index of the right option, as lm-eval finds it."""
    gold = built.doc_to_text(document) if built.multiple_input else built.doc_to_target(document)
    return int(built.doc_to_choice(document).index(gold) if isinstance(gold, str) else gold)


def _read(requests: list[Any]) -> tuple[str, list[str]]:
    """What comes before the options, and the options; where each comes in its own words, these whole."""
    pairs = [request.args for request in requests]
    if len({before for before, _ in pairs}) > 1:
        return "", ["".join(pair) for pair in pairs]
    return pairs[0][0], [option for _, option in pairs]
