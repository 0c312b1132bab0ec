"""Answers: by what protocols were the figures of a table measured, and which of them need a mark?

Figures of quality only: perplexities and accuracies. What is read from decisions or a clock has no stamp.
"""

from collections.abc import Iterable

from gprune.evaluation.protocol import Marks, Stamp, lines
from gprune.experiments.reproduction import means
from gprune.experiments.reproduction.lookup import Answer

_MOST = 4
"""protocols that are named below a table; its CSV names that of every figure"""


def columns(answers: Iterable[Answer]) -> dict[str, list[Stamp | None]]:
    """The protocols behind every column of single texts and tasks."""
    found: dict[str, list[Stamp | None]] = {}
    for answer in answers:
        for column, stamp in _stamped(answer).items():
            found.setdefault(column, []).append(stamp)
    return found


def _stamped(answer: Answer) -> dict[str, Stamp]:
    """The protocol of every figure of quality of a row, by its column."""
    found = {f"ppl:{value.subject}": value.stamp for value in answer.values if value.stamp is not None}
    tasks = {f"{means.MEAN}:{one.task}": stamp for one, stamp in answer.tasks if stamp is not None}
    return found | tasks


def mark(marks: Marks, answer: Answer, column: str, tasks: Iterable[str]) -> str:
    """The mark of a figure in a column; of a mean accuracy those of the tasks that it is over."""
    stamped, of_all = _stamped(answer), column.split(" (")[0] == means.MEAN
    names = [f"{means.MEAN}:{task}" for task in tasks] if of_all else [column]
    return "".join(dict.fromkeys(marks.of(name, stamped.get(name)) for name in names))


def marked(marks: Marks, answer: Answer, found: Iterable[str], tasks: Iterable[str]) -> dict[str, str]:
    """The marks of those columns of a row that have one."""
    own = {column: mark(marks, answer, column, tuple(tasks)) for column in found}
    return {column: sign for column, sign in own.items() if sign}


def notes(marks: Marks) -> list[str]:
    """By what protocols the figures of a table were measured, and what their marks stand for."""
    told: list[str] = []
    for of_tasks in (False, True):
        own = (stamp for name, stamp in marks.usual.items() if name.startswith(means.MEAN) is of_tasks)
        told += lines(own)[:_MOST]
    return told + marks.footnotes
