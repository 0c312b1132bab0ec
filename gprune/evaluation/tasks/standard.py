"""Answers: what are the seven zero-shot tasks of section 4, and which columns does each need?

Prompts and scoring are lm-eval's own definitions, which come with its package; the documents come from the
hub or from local files. ARC and OpenBookQA are measured on the split test, the others on validation, whose
answers are public.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gprune.evaluation.tasks import columns
from gprune.evaluation.tasks.columns import Check, Row


@dataclass(frozen=True, slots=True)
class StandardTask:
    """One of the paper's tasks."""

    name: str
    """its name in lm-eval"""
    title: str
    """its name in the paper's tables"""
    split: str
    """the split that is measured"""
    repository: str
    """owner/name of its dataset on the hub"""
    configuration: str
    """configuration of the dataset; may be empty"""
    definition: str
    """lm-eval's definition, a path below its folder of tasks"""
    check: Check
    """returns the columns of a row that the definition reads, or raises ColumnError"""


def _boolq(row: Row) -> Row:
    return {
        "passage": columns.text(row, "passage"),
        "question": columns.text(row, "question"),
        "label": columns.index(row, "label", 2),
    }


def _piqa(row: Row) -> Row:
    found: Row = {column: columns.text(row, column) for column in ("goal", "sol1", "sol2")}
    return {**found, "label": columns.index(row, "label", 2)}


def _hellaswag(row: Row) -> Row:
    found: Row = {column: columns.text(row, column) for column in ("activity_label", "ctx_a", "ctx_b")}
    endings = columns.texts(row, "endings")
    return {**found, "endings": endings, "label": str(columns.index(row, "label", len(endings)))}


def _winogrande(row: Row) -> Row:
    found = {column: columns.text(row, column) for column in ("sentence", "option1", "option2")}
    if "_" not in found["sentence"]:
        raise columns.ColumnError("has no gap, written _, in the column 'sentence'")
    return {**found, "answer": columns.one_of(row, "answer", ["1", "2"])}


def _lettered(question: str) -> Check:
    def check(row: Row) -> Row:
        stem, choices = columns.text(row, question), columns.lettered(row, "choices")
        # A few keys of OpenBookQA have a space before the letter.
        key = {**row, "answerKey": columns.text(row, "answerKey").lstrip()}
        answer = columns.one_of(key, "answerKey", choices["label"])
        return {question: stem, "choices": choices, "answerKey": answer}

    return check


_ENTRIES = (
    ("boolq", "BoolQ", "validation", "aps/super_glue", "boolq", "super_glue/boolq/default.yaml", _boolq),
    ("piqa", "PIQA", "validation", "baber/piqa", "", "piqa/piqa.yaml", _piqa),
    ("hellaswag", "HellaSwag", "validation", "Rowan/hellaswag", "", "hellaswag/hellaswag.yaml", _hellaswag),
    (
        "winogrande",
        "WinoGrande",
        "validation",
        "allenai/winogrande",
        "winogrande_xl",
        "winogrande/default.yaml",
        _winogrande,
    ),
    ("arc_easy", "ARC-e", "test", "allenai/ai2_arc", "ARC-Easy", "arc/arc_easy.yaml", _lettered("question")),
    (
        "arc_challenge",
        "ARC-c",
        "test",
        "allenai/ai2_arc",
        "ARC-Challenge",
        "arc/arc_challenge.yaml",
        _lettered("question"),
    ),
    (
        "openbookqa",
        "OBQA",
        "test",
        "allenai/openbookqa",
        "main",
        "openbookqa/openbookqa.yaml",
        _lettered("question_stem"),
    ),
)
STANDARD_TASKS: Mapping[str, StandardTask] = {entry[0]: StandardTask(*entry) for entry in _ENTRIES}
"""the paper's seven tasks by name, in the order of its tables"""
