"""Where the data of a task comes from: the demo, a file of own questions, a local file, or the hub.

A registered task of lm-eval, the paper's seven among them, is read from ``evaluation.task_folder`` where that is
set (``TASK.jsonl`` or ``TASK/SPLIT.jsonl``, in the form of the hub's rows), else from the hub.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from gprune.data.demo import questions
from gprune.evaluation.tasks import registry
from gprune.evaluation.tasks.rows import STANDARD_TASKS, Row, check_of, check_question, read_rows
from gprune.study import EvaluationSettings
from gprune.system import safe_parsing
from gprune.system.errors import CorpusError, GpruneError, SettingsError

_OWN_SUFFIXES = (".jsonl", ".ndjson", ".json")
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

    @property
    def on_hub(self) -> bool:
        """True if the rows come from a dataset of the hub."""
        return self.kind == "registered" and self.file is None


def known() -> tuple[str, ...]:
    """Return the names of the demo's tasks and of the paper's seven; any other task of lm-eval is one too."""
    return (*questions.NAMES, *STANDARD_TASKS)


def needs_index(task: str) -> bool:
    """Return True if only lm-eval's index, which takes seconds to read, can tell whether there is such a task."""
    return task not in known() and not task.lower().endswith(_OWN_SUFFIXES)


def resolve(task: str, settings: EvaluationSettings) -> TaskSource:
    """Find a task by its name, or by the path of a file of own questions; nothing is downloaded.

    Raises:
        SettingsError: There is no such task, it executes generated code, or the task folder is no folder.
        CorpusError: Its file does not exist.
    """
    if task in questions.NAMES:
        return TaskSource(task, "demo")
    if needs_index(task):
        registry.require_runnable(task, known())
    elif task not in STANDARD_TASKS:
        with safe_parsing.refused_as(SettingsError):
            file = safe_parsing.path(task, "a task")
        if not file.is_file():
            raise CorpusError(f"the task {task!r} has no data: there is no file {str(file)!r}")
        return TaskSource(task, "own", file)
    return _in_folder(task, settings.task_folder) if settings.task_folder else TaskSource(task, "registered")


def available(tasks: tuple[str, ...], settings: EvaluationSettings) -> dict[str, str]:
    """Return by task why it cannot be measured here: an empty text, or one sentence.

    Rows are not checked, and the hub is not asked.
    """
    reasons = dict.fromkeys(tasks, "")
    for task in tasks:
        try:
            resolve(task, settings)
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
        rows = map(asdict, questions.questions(source.task))
        return [{**row, "choices": list(row["choices"])} for row in rows]
    if source.file is None:
        raise CorpusError(f"the task {source.task!r} has no local rows: they come from the hub")
    return read_rows(source.file, source.task, check_question if source.kind == "own" else check_of(source.task))


def _in_folder(task: str, name: str) -> TaskSource:
    with safe_parsing.refused_as(SettingsError):
        folder = safe_parsing.path(name, "evaluation.task_folder")
    if not folder.is_dir():
        raise SettingsError(f"evaluation.task_folder must be a folder (got {name!r})")
    split = STANDARD_TASKS[task].split if task in STANDARD_TASKS else _measured_split(task)
    names = (f"{task}.jsonl", f"{task}/{split}.jsonl")
    file = next((folder / name for name in names if (folder / name).is_file()), None)
    if file is None:
        raise CorpusError(
            f"the task {task!r} has no data in {str(folder)!r}: put one of {', '.join(names)} there, or leave "
            "evaluation.task_folder empty to use the hub"
        )
    examples = folder / f"{task}/train.jsonl"
    return TaskSource(task, "registered", file, examples if examples.is_file() else None)


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
