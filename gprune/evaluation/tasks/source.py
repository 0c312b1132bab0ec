"""Answers: where are the documents of a task, are they on this machine, and are they what the task needs?

A task is one of the paper's seven, one of the demo's kinds of questions, or a file of one's own. The seven
are read from ``evaluation.task_folder`` where it is set (``boolq.jsonl``, ``boolq.parquet``,
``boolq/validation.jsonl`` or ``boolq/validation.parquet``, with the split of the task), else from the hub.
Every row is checked before a model is asked anything.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from gprune import untrusted
from gprune.corpora import hub, naming, rows
from gprune.demo import questions
from gprune.errors import CorpusError, GpruneError, SettingsError
from gprune.evaluation.tasks import own
from gprune.evaluation.tasks.columns import Check, ColumnError, Row
from gprune.evaluation.tasks.standard import STANDARD_TASKS, StandardTask
from gprune.study import EvaluationSettings

Kind = Literal["standard", "demo", "own"]

_SUFFIXES = (".jsonl", ".parquet")
_OWN_SUFFIXES = (".jsonl", ".ndjson", ".json", ".parquet")
_BRANCH = "main"
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


def known() -> tuple[str, ...]:
    """Names of all tasks that have one, the ones that need no data first."""
    return (*questions.NAMES, *STANDARD_TASKS)


def resolve(task: str, settings: EvaluationSettings, download: bool = False) -> TaskSource:
    """Finds a task.

    Args:
        task: a name in ``known()``, or the path of a file of one's own.
        settings: says in which folder the seven tasks are.
        download: whether a hub dataset that is not on this machine is fetched.

    Raises:
        SettingsError: there is no such task, or the folder does not exist.
        CorpusError: its file does not exist or cannot be downloaded; the message names what was looked for.
    """
    if task in questions.NAMES:
        return TaskSource(task, "demo")
    if task in STANDARD_TASKS:
        find = _in_folder if settings.task_folder else _on_hub
        return TaskSource(task, "standard", find(STANDARD_TASKS[task], settings, download))
    with untrusted.refused_as(SettingsError):
        file = untrusted.path(task, "a task")
    if file.suffix.lower() not in _OWN_SUFFIXES:
        near = naming.closest(task, known())
        meant = f": did you mean {near}?" if near else f"; known tasks: {', '.join(known())}."
        raise SettingsError(
            f"there is no task {task!r}{meant} A file of your own questions ends in .jsonl or .parquet"
        )
    if not file.is_file():
        raise CorpusError(f"the task {task!r} has no data: there is no file {str(file)!r}")
    return TaskSource(task, "own", file)


def available(tasks: tuple[str, ...], settings: EvaluationSettings) -> dict[str, str]:
    """Why tasks cannot be measured here, so that a caller can leave out just those.

    Args:
        tasks: the tasks asked for.
        settings: says in which folder the seven tasks are.

    Returns:
        For each task an empty string if its data is here or can be downloaded, else one sentence. Rows are
        not checked.
    """
    reasons: dict[str, str] = {}
    unreachable: str | None = None
    for task in tasks:
        try:
            source = resolve(task, settings)
        except GpruneError as error:
            reasons[task] = str(error)
            continue
        if source.kind == "standard" and source.file is None:
            if unreachable is None:
                # One probe tells for all of them: without a network it takes seconds.
                unreachable = _network_problem(STANDARD_TASKS[task])
            reasons[task] = unreachable and _no_data(STANDARD_TASKS[task], unreachable)
        else:
            reasons[task] = ""
    return reasons


def documents(source: TaskSource, cache: Path | None = None) -> list[Row]:
    """Reads and checks every document of a task.

    Args:
        source: a task whose data is on this machine.
        cache: folder that keeps the demo's texts from call to call.

    Returns:
        The rows with the columns that the task reads, in the order of the file.

    Raises:
        CorpusError: the file cannot be read, is empty, or a row is not what the task needs; the message names
            task, file, row and column.
    """
    if source.kind == "demo":
        asked = questions.questions(source.task, cache)
        return [{**asdict(question), "choices": list(question.choices)} for question in asked]
    if source.file is None:
        raise CorpusError(f"the task {source.task!r} is not on this machine: download it first")
    check = STANDARD_TASKS[source.task].check if source.kind == "standard" else own.check
    return list(_checked(source.task, source.file, check))


def fingerprint(source: TaskSource) -> str:
    """SHA-256 of what decides a task's documents: the rows as read, for the demo the version of its texts.

    A hub dataset that is not on this machine is known by its name only: resolve it with ``download`` first.

    Raises:
        CorpusError: the file cannot be read or a row is not what the task needs.
    """
    if source.kind == "demo":
        return _digest({"demo": source.task, "version": questions.version(source.task)})
    if source.file is None:
        entry = STANDARD_TASKS[source.task]
        return _digest({"repository": entry.repository, "configuration": entry.configuration})
    try:
        state = source.file.stat()
    except OSError as error:
        raise CorpusError(f"the file {str(source.file)!r} cannot be read: {error.strerror}") from error
    return _fingerprint(source, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=_KEPT)
def _fingerprint(source: TaskSource, size: int, modified: int) -> str:
    """Fingerprint of a file's rows; size and time make a changed file a new question."""
    return _digest(documents(source))


def _digest(content: object) -> str:
    written = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(written.encode("utf-8", "surrogatepass")).hexdigest()


def _checked(task: str, file: Path, check: Check) -> Iterator[Row]:
    if rows.kind_of(file) == "text":
        raise CorpusError(f"the task {task!r} cannot be read from {str(file)!r}: give .jsonl or .parquet")
    unit, found = "line" if rows.kind_of(file) == "json" else "row", 0
    for number, row in rows.records(file):
        found += 1
        try:
            yield check(row)
        except ColumnError as error:
            raise CorpusError(f"the task {task!r}: {unit} {number} of {str(file)!r} {error}") from error
    if not found:
        raise CorpusError(f"the task {task!r}: {str(file)!r} is empty, it must hold one question a line")


def _in_folder(entry: StandardTask, settings: EvaluationSettings, download: bool) -> Path:
    with untrusted.refused_as(SettingsError):
        folder = untrusted.path(settings.task_folder, "evaluation.task_folder")
    if not folder.is_dir():
        raise SettingsError(f"evaluation.task_folder must be a folder (got {settings.task_folder!r})")
    places = [
        folder / f"{stem}{end}" for stem in (entry.name, f"{entry.name}/{entry.split}") for end in _SUFFIXES
    ]
    for place in places:
        if place.is_file():
            return place
    names = ", ".join(place.relative_to(folder).as_posix() for place in places)
    raise CorpusError(
        f"the task {entry.name!r} has no data in {str(folder)!r}: put one of {names} there, or leave "
        "evaluation.task_folder empty to use the hub"
    )


def _on_hub(entry: StandardTask, settings: EvaluationSettings, download: bool) -> Path | None:
    options = f"#config={entry.configuration}" if entry.configuration else ""
    name = naming.parse(f"hub:{entry.repository}{options}")
    if not download:
        return hub.cached_split(entry.repository, _BRANCH, name, entry.split)
    try:
        return hub.fetch_split(entry.repository, _BRANCH, name, entry.split)
    except CorpusError as error:
        raise CorpusError(_no_data(entry, str(error))) from error


def _network_problem(entry: StandardTask) -> str:
    try:
        hub.require_network(entry.repository)
    except CorpusError as error:
        return str(error)
    return ""


def _no_data(entry: StandardTask, reason: str) -> str:
    # What comes after the first sentence are remedies for a text.
    reason = reason.partition(". ")[0]
    return (
        f"the task {entry.name!r} has no data: {reason}. Or set evaluation.task_folder to a folder with "
        f"{entry.name}.jsonl"
    )
