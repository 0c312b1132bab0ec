"""The seven zero-shot tasks of section 4 and the columns that each reads from local rows.

Prompts and scoring are lm-eval's own definitions. ARC and OpenBookQA are measured on the split test, the others
on validation, whose answers are public.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gprune.evaluation.tasks.rows import Columns, Row, gapped, index, lettered, member, text, texts


@dataclass(frozen=True, slots=True)
class StandardTask:
    """One of the paper's tasks."""

    name: str
    """its name in lm-eval"""
    split: str
    """the split that is measured"""
    folder: str
    """folder of lm-eval's definition, below its folder of tasks"""
    columns: Columns
    """checks of the columns that the definition reads"""


def _yes_or_no(value: Any, _: Row) -> int:
    return int(value) if isinstance(value, bool) else index(value, 2)


def _one_of_two(value: Any, _: Row) -> int:
    return index(value, 2)


def _ending(value: Any, row: Row) -> str:
    return str(index(value, len(row["endings"])))


def _filler(value: Any, _: Row) -> str:
    return member(value, ["1", "2"])


def _letter(value: Any, row: Row) -> str:
    return member(value, row["choices"]["label"])


def _lettered(question: str) -> Columns:
    return {question: text, "choices": lettered, "answerKey": _letter}


_BOOLQ = {"passage": text, "question": text, "label": _yes_or_no}
_PIQA = {"goal": text, "sol1": text, "sol2": text, "label": _one_of_two}
_HELLASWAG = {"activity_label": text, "ctx_a": text, "ctx_b": text, "endings": texts, "label": _ending}
_WINOGRANDE = {"sentence": gapped, "option1": text, "option2": text, "answer": _filler}
_TASKS = (
    StandardTask("boolq", "validation", "super_glue/boolq", _BOOLQ),
    StandardTask("piqa", "validation", "piqa", _PIQA),
    StandardTask("hellaswag", "validation", "hellaswag", _HELLASWAG),
    StandardTask("winogrande", "validation", "winogrande", _WINOGRANDE),
    StandardTask("arc_easy", "test", "arc", _lettered("question")),
    StandardTask("arc_challenge", "test", "arc", _lettered("question")),
    StandardTask("openbookqa", "test", "openbookqa", _lettered("question_stem")),
)
STANDARD_TASKS: Mapping[str, StandardTask] = {task.name: task for task in _TASKS}
"""the paper's seven tasks by name, in the order of its tables"""


def columns_of(task: str) -> Columns | None:
    """Return the checks of one of the seven tasks, None for any other."""
    return STANDARD_TASKS[task].columns if task in STANDARD_TASKS else None
