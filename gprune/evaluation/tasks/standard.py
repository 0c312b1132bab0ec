"""Answers: what are the seven zero-shot tasks of section 4, and which columns does each need?

Prompts and scoring are lm-eval's own definitions, which come with its package; the documents come from the
hub or from local files, in the form of the hub's rows or of the files that the tasks' authors publish
(docs/tasks.md). ARC and OpenBookQA are measured on the split test, the others on validation, whose answers
are public.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gprune.evaluation.tasks.columns import Columns, Row

Check = Callable[[Row], Row]


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
    read: Callable[[Columns], Row]
    """returns the columns that the definition reads, and keeps what is wrong with them"""
    answer: str = ""
    """the column that a separate file of labels fills; empty where the task is never published with one"""

    def check(self, row: Row) -> Row:
        """The columns of a row that the definition reads.

        Raises ColumnError, with the names of all, where columns are missing or hold something else.
        """
        columns = Columns(row)
        found = self.read(columns)
        columns.require()
        return found


def _boolq(read: Columns) -> Row:
    question, passage = read.text("question"), read.text("passage")
    # in its authors' own files the answer is called so, and the title stands apart: SuperGLUE's passages,
    # which lm-eval's definition is about, begin with it
    if "label" not in read and "answer" in read:
        label = read.truth("answer")
        passage = f"{read.text('title')} -- {passage}" if "title" in read else passage
    else:
        label = read.truth("label")
    return {"passage": passage, "question": question, "label": label}


def _piqa(read: Columns) -> Row:
    found: Row = {column: read.text(column) for column in ("goal", "sol1", "sol2")}
    return {**found, "label": read.index("label", 2)}


def _hellaswag(read: Columns) -> Row:
    found: Row = {column: read.text(column) for column in ("activity_label", "ctx_a", "ctx_b")}
    endings = read.texts("endings")
    return {**found, "endings": endings, "label": str(read.index("label", len(endings)))}


def _winogrande(read: Columns) -> Row:
    found = {column: read.text(column) for column in ("sentence", "option1", "option2")}
    if found["sentence"] and "_" not in found["sentence"]:
        read.odd("has no gap, written _, in the column 'sentence'")
    return {**found, "answer": read.one_of("answer", ["1", "2"])}


def _lettered(question: str) -> Callable[[Columns], Row]:
    """Reads ARC and OpenBookQA, whose stem stands in a column of the hub, or in the object `question`."""

    def read(columns: Columns) -> Row:
        nested: Any = columns.value("question")
        inner = Columns(nested) if isinstance(nested, dict) else columns
        stem = inner.text("stem" if inner is not columns else question)
        choices = inner.lettered("choices")
        if inner is not columns and (complaint := inner.complaint()):
            columns.odd(f"has 'question' that {complaint}")
        # a few keys of OpenBookQA have a space before the letter
        answer = columns.one_of("answerKey", choices["label"], spaced=True)
        return {question: stem, "choices": choices, "answerKey": answer}

    return read


_ENTRIES = (
    StandardTask("boolq", "BoolQ", "validation", "aps/super_glue", "boolq", "super_glue/boolq/default.yaml", _boolq),
    StandardTask("piqa", "PIQA", "validation", "baber/piqa", "", "piqa/piqa.yaml", _piqa, "label"),
    StandardTask(
        "hellaswag",
        "HellaSwag",
        "validation",
        "Rowan/hellaswag",
        "",
        "hellaswag/hellaswag.yaml",
        _hellaswag,
        "label",
    ),
    StandardTask(
        "winogrande",
        "WinoGrande",
        "validation",
        "allenai/winogrande",
        "winogrande_xl",
        "winogrande/default.yaml",
        _winogrande,
        "answer",
    ),
    StandardTask(
        "arc_easy",
        "ARC-e",
        "test",
        "allenai/ai2_arc",
        "ARC-Easy",
        "arc/arc_easy.yaml",
        _lettered("question"),
    ),
    StandardTask(
        "arc_challenge",
        "ARC-c",
        "test",
        "allenai/ai2_arc",
        "ARC-Challenge",
        "arc/arc_challenge.yaml",
        _lettered("question"),
    ),
    StandardTask(
        "openbookqa",
        "OBQA",
        "test",
        "allenai/openbookqa",
        "main",
        "openbookqa/openbookqa.yaml",
        _lettered("question_stem"),
    ),
)
STANDARD_TASKS: Mapping[str, StandardTask] = {entry.name: entry for entry in _ENTRIES}
"""the paper's seven tasks by name, in the order of its tables"""
