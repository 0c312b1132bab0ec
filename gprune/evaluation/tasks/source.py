"""Answers: where are the documents of a task, and are they on this machine?

A task is one of the paper's seven, one of the demo's kinds of questions, or a file of one's own. The seven
are read from ``evaluation.task_folder`` where it is set, under any of the names in ``places``, else from the
hub.
"""

from __future__ import annotations

from pathlib import Path

from gprune.data.demo import questions
from gprune.data.texts import hub, naming
from gprune.evaluation.tasks import places
from gprune.evaluation.tasks.reading import TaskSource
from gprune.evaluation.tasks.standard import STANDARD_TASKS, StandardTask
from gprune.study import EvaluationSettings
from gprune.system import safe_parsing
from gprune.system.errors import CorpusError, GpruneError, SettingsError

_OWN_SUFFIXES = (".jsonl", ".ndjson", ".json", ".parquet")
_BRANCH = "main"


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
        entry = STANDARD_TASKS[task]
        if not settings.task_folder:
            return TaskSource(task, "standard", _on_hub(entry, download))
        file = _in_folder(entry, settings)
        return TaskSource(task, "standard", file, places.labels_of(entry, file))
    with safe_parsing.refused_as(SettingsError):
        file = safe_parsing.path(task, "a task")
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


def _in_folder(entry: StandardTask, settings: EvaluationSettings) -> Path:
    with safe_parsing.refused_as(SettingsError):
        folder = safe_parsing.path(settings.task_folder, "evaluation.task_folder")
    if not folder.is_dir():
        raise SettingsError(f"evaluation.task_folder must be a folder (got {settings.task_folder!r})")
    found = places.find(entry, folder)
    if found is not None:
        return found
    others = places.others(entry, folder)
    there = f", only {', '.join(others)}" if others else ""
    raise CorpusError(
        f"the task {entry.name!r} has no data in {str(folder)!r}{there}: put one of "
        f"{', '.join(places.asked_for(entry))} there, or the published files as docs/tasks.md has them, or "
        "leave evaluation.task_folder empty to use the hub"
    )


def _on_hub(entry: StandardTask, download: bool) -> Path | None:
    options = f"#config={entry.configuration}" if entry.configuration else ""
    place = entry.repository, _BRANCH, naming.parse(f"hub:{entry.repository}{options}"), entry.split
    try:
        return next((file for file, _ in hub.split_files(*place, download)), None)
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
