"""Where the data of a task comes from: the demo, a file of own questions, a local file, or the hub.

A registered task of lm-eval, the paper's seven among them, is read from ``evaluation.task_folder`` where that is
set (``TASK.jsonl``, ``TASK/SPLIT.jsonl`` or ``.parquet``, in the form of the hub's rows), else from the hub.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from gprune.data.demo import questions
from gprune.evaluation.tasks import registry
from gprune.evaluation.tasks.rows import OWN_COLUMNS, SUFFIXES, Row, check_row, read_rows
from gprune.evaluation.tasks.standard import STANDARD_TASKS, columns_of
from gprune.study import EvaluationSettings
from gprune.system import safe_parsing
from gprune.system.errors import CorpusError, GpruneError, SettingsError

_OWN_SUFFIXES = (".jsonl", ".ndjson", ".json", ".parquet")
_SPLITS = ("test", "validation")


@dataclass(frozen=True, slots=True)
class TaskSource:
    """A task and where its data is."""

    task: str
    """the task as typed"""
    kind: Literal["demo", "own", "registered"]
    file: Path | None = None
    """local rows; None for the demo and for a dataset of the hub"""
    examples: Path | None = None
    """local rows that few-shot examples are drawn from; None draws them from the other rows of `file`"""


def known() -> tuple[str, ...]:
    """Return the names of the demo's tasks and of the paper's seven; any other task of lm-eval is one too."""
    return (*questions.NAMES, *STANDARD_TASKS)


def resolve(task: str, settings: EvaluationSettings) -> TaskSource:
    """Find a task by its name, or by the path of a file of own questions; nothing is downloaded.

    Raises:
        SettingsError: There is no such task, it executes generated code, or the task folder is no folder.
        CorpusError: Its file does not exist.
    """
    if task in questions.NAMES:
        return TaskSource(task, "demo")
    if task.lower().endswith(_OWN_SUFFIXES):
        with safe_parsing.refused_as(SettingsError):
            file = safe_parsing.path(task, "a task")
        if not file.is_file():
            raise CorpusError(f"the task {task!r} has no data: there is no file {str(file)!r}")
        return TaskSource(task, "own", file)
    registry.require_runnable(task, known())
    return _in_folder(task, settings.task_folder) if settings.task_folder else TaskSource(task, "registered")


def available(tasks: tuple[str, ...], settings: EvaluationSettings) -> dict[str, str]:
    """Return by task why it cannot be measured here: an empty text, or one sentence. Rows are not checked."""
    reasons: dict[str, str] = {}
    for task in tasks:
        try:
            source = resolve(task, settings)
            reason = registry.missing_data(task) if source.kind == "registered" and source.file is None else ""
            reasons[task] = reason and no_data(task, reason)
        except GpruneError as error:
            reasons[task] = str(error)
    return reasons


def no_data(task: str, reason: str) -> str:
    """Return the sentence on a task of the hub without data."""
    return (
        f"the task {task!r} has no data: {reason}. Run it once with a network, set evaluation.task_folder to a "
        f"folder with {task}.jsonl, or leave the task out"
    )


def read_documents(source: TaskSource) -> list[Row]:
    """Read and check the local rows of a task.

    Raises CorpusError, with file, row and column, where one cannot be used.
    """
    if source.kind == "demo":
        asked = questions.questions(source.task)
        return [{**asdict(question), "choices": list(question.choices)} for question in asked]
    if source.file is None:
        raise CorpusError(f"the task {source.task!r} has no local rows: they come from the hub")
    if source.kind == "own":
        return _read_own(source.task, source.file)
    return read_rows(source.file, source.task, columns_of(source.task))


def _read_own(task: str, file: Path) -> list[Row]:
    try:
        return read_rows(file, task, OWN_COLUMNS)
    except CorpusError as error:
        rows = read_rows(file, task)
        meant = next((name for name, each in STANDARD_TASKS.items() if _fits(rows[0], name)), None)
        if meant is None:
            raise
        raise CorpusError(f"{error}. These are rows of {meant}: give them as {meant}.jsonl in a task folder") from error


def _fits(row: Row, task: str) -> bool:
    try:
        check_row(row, STANDARD_TASKS[task].columns)
    except ValueError:
        return False
    return True


def _in_folder(task: str, name: str) -> TaskSource:
    with safe_parsing.refused_as(SettingsError):
        folder = safe_parsing.path(name, "evaluation.task_folder")
    if not folder.is_dir():
        raise SettingsError(f"evaluation.task_folder must be a folder (got {name!r})")
    split = STANDARD_TASKS[task].split if task in STANDARD_TASKS else _measured_split(task)
    stems = (task, f"{task}/{split}")
    names = [f"{stem}{suffix}" for stem in stems for suffix in SUFFIXES]
    file = next((folder / each for each in names if (folder / each).is_file()), None)
    if file is None:
        raise CorpusError(
            f"the task {task!r} has no data in {str(folder)!r}: put one of {', '.join(names)} there, or leave "
            "evaluation.task_folder empty to use the hub"
        )
    examples = (folder / f"{task}/train{suffix}" for suffix in SUFFIXES)
    return TaskSource(task, "registered", file, next((each for each in examples if each.is_file()), None))


def _measured_split(task: str) -> str:
    """Return the split that lm-eval measures; a group has no rows of its own."""
    if not registry.is_single(task):
        raise SettingsError(
            f"{task!r} is a group of lm-eval, whose rows are those of its tasks: name these, or leave "
            "evaluation.task_folder empty"
        )
    settings = registry.definition(task)
    if "class" in settings:
        raise SettingsError(f"the task {task!r} reads its own data set: leave evaluation.task_folder empty for it")
    return next((name for split in _SPLITS if (name := settings.get(f"{split}_split"))), "test")
