"""Answers: what are the documents of a task, and are they those of the split that it is measured on?

Every row is checked before a model is asked anything. Where the answers stand in a file of their own, they
are put into the rows first.

People take the wrong file of a download: the training rows, or the test rows, whose answers are not public.
The sizes are those of the published data sets.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from gprune.data.demo import questions
from gprune.data.texts import rows
from gprune.data.texts.identity import stamp
from gprune.evaluation.tasks import own
from gprune.evaluation.tasks.columns import ColumnError, Row
from gprune.evaluation.tasks.standard import STANDARD_TASKS, StandardTask
from gprune.system.errors import CorpusError

Kind = Literal["standard", "demo", "own"]

_KEPT = 64


@dataclass(frozen=True, slots=True)
class TaskSource:
    """A task that was found."""

    task: str
    """the task as asked for"""
    kind: Kind
    """where it comes from"""
    file: Path | None = None
    """file of its documents; None for the demo's, and for a hub dataset that is not on this machine"""
    labels: Path | None = None
    """file of its answers, one a line, where its authors publish them apart"""


def documents(source: TaskSource, cache: Path | None = None) -> list[Row]:
    """Reads and checks every document of a task, with the columns that it reads, in the order of the file.

    Raises CorpusError, with task, file, row and column,
    where the file cannot be read, is empty, or a row is not what the task needs.
    """
    if source.kind == "demo":
        asked = questions.questions(source.task)
        return [{**asdict(question), "choices": list(question.choices)} for question in asked]
    if source.file is None:
        raise CorpusError(f"the task {source.task!r} is not on this machine: download it first")
    return list(_checked(source, source.file))


def doubt(source: TaskSource) -> str:
    """Why a file is probably not the split that its task is measured on: its number of rows is another's.

    One sentence that names the task and the split; empty where nothing speaks against it. Raises CorpusError
    as `documents`.
    """
    if source.kind != "standard" or source.file is None:
        return ""
    reason = doubt_by_rows(source.task, _examined(source).count)
    return reason and f"{str(source.file)!r} may be another split: {reason}"


def fingerprint(source: TaskSource) -> str:
    """SHA-256 of what decides a task's documents: the rows as read, for the demo the version of its texts.

    A hub dataset that is not on this machine is known by its name only: resolve it with ``download`` first.
    Raises CorpusError as `documents`.
    """
    if source.kind == "demo":
        return _digest({"demo": source.task, "version": questions.version(source.task)})
    if source.file is None:
        entry = STANDARD_TASKS[source.task]
        return _digest({"repository": entry.repository, "configuration": entry.configuration})
    return _examined(source).digest


@dataclass(frozen=True, slots=True)
class _Examined:
    """What is kept of a file that was read."""

    digest: str
    count: int


def _examined(source: TaskSource) -> _Examined:
    stamps = tuple(stamp(file) for file in (source.file, source.labels) if file is not None)
    return _examine(source, stamps)


@lru_cache(maxsize=_KEPT)
def _examine(source: TaskSource, stamps: tuple[tuple[Path, int, int], ...]) -> _Examined:
    """Digest and number of a file's rows; sizes and times make changed files a new question."""
    found = documents(source)
    return _Examined(_digest(found), len(found))


def _digest(content: object) -> str:
    written = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(written.encode("utf-8", "surrogatepass")).hexdigest()


def _checked(source: TaskSource, file: Path) -> Iterator[Row]:
    task = source.task
    if rows.kind_of(file) == "text":
        raise CorpusError(f"the task {task!r} cannot be read from {str(file)!r}: give .jsonl or .parquet")
    unit, found = "line" if rows.kind_of(file) == "json" else "row", 0
    check = STANDARD_TASKS[source.task].check if source.kind == "standard" else own.check
    records = _labelled(source, file)
    for number, row in records:
        found += 1
        try:
            yield check(row)
        except ColumnError as error:
            where = f"the task {task!r}: {unit} {number} of {str(file)!r}"
            remedy = _remedy(source, row, found + sum(1 for _ in records))
            raise CorpusError(f"{where} {error}{remedy}") from error
    if not found:
        raise CorpusError(f"the task {task!r}: {str(file)!r} is empty, it must hold one question a line")


def _remedy(source: TaskSource, row: Row, count: int) -> str:
    """What may have gone wrong with a file whose rows are not what the task needs; may be empty."""
    if source.kind == "own":
        meant = [name for name, entry in STANDARD_TASKS.items() if _fits(entry, row)]
        return f". These are rows of {meant[0]}: give them as that task, in a task folder" if meant else ""
    if reason := doubt_by_rows(source.task, count):
        return f"; {reason}"
    column = STANDARD_TASKS[source.task].answer
    if column and column not in row and source.labels is None and source.file is not None:
        return f"; its answers may stand in a file of labels: put it beside as {source.file.stem}-labels.lst"
    return ""


def _fits(entry: StandardTask, row: Row) -> bool:
    try:
        entry.check(row)
    except ColumnError:
        return False
    return True


def _labelled(source: TaskSource, file: Path) -> Iterator[tuple[int, Row]]:
    """The rows of a file, each with its line of the file of labels where it has no answer itself."""
    if source.labels is None:
        yield from rows.records(file)
        return
    column = STANDARD_TASKS[source.task].answer
    labels = [line.strip() for line in rows.read_text(source.labels).splitlines() if line.strip()]
    found = list(rows.records(file))
    if len(found) != len(labels):
        raise CorpusError(
            f"the task {source.task!r}: {str(file)!r} has {len(found):,} rows and {source.labels.name!r} "
            f"beside it {len(labels):,} labels: take both from one download"
        )
    for (number, row), label in zip(found, labels, strict=True):
        yield number, {column: label} | row


SIZES: Mapping[str, Mapping[str, int]] = {
    "boolq": {"train": 9427, "validation": 3270, "test": 3245},
    "piqa": {"train": 16113, "validation": 1838, "test": 3084},
    "hellaswag": {"train": 39905, "validation": 10042, "test": 10003},
    "winogrande": {
        "train_xs": 160,
        "train_s": 640,
        "train_m": 2558,
        "train_l": 10234,
        "train_xl": 40398,
        "validation": 1267,
        "test": 1767,
    },
    "arc_easy": {"train": 2251, "validation": 570, "test": 2376},
    "arc_challenge": {"train": 1119, "validation": 299, "test": 1172},
    "openbookqa": {"train": 4957, "validation": 500, "test": 500},
}
"""rows of every split, by task"""
_ALIKE = ("arc_easy", "arc_challenge")
"""tasks whose files have the same columns"""


def doubt_by_rows(task: str, rows: int) -> str:
    """Why a file of so many rows is probably not the split that a task is measured on.

    One sentence that names the split which the rows fit; empty where they fit the right one, or none, and for
    any but the seven tasks.
    """
    if task not in SIZES:
        return ""
    split = STANDARD_TASKS[task].split
    wanted = SIZES[task][split]
    others = _ALIKE if task in _ALIKE else (task,)
    # its own splits first
    named = sorted(((name, each) for name in others for each in SIZES[name]), key=lambda one: one[0] != task)
    fits = next((one for one in named if SIZES[one[0]][one[1]] == rows), None)
    if fits is None or rows == wanted:
        return ""
    other = fits[1] if fits[0] == task else f"{fits[1]} of {fits[0]}"
    return (
        f"its {rows:,} rows are as many as the split {other} has: {task} is measured on the split {split} "
        f"({wanted:,} rows)"
    )
