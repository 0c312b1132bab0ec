"""Answers: where are the documents of a task, and are they on this machine?

A task is one of the paper's seven, one of the demo's kinds of questions, or a file of one's own. The seven
are read from ``evaluation.task_folder`` where it is set, else from the hub. Looked for in a folder, first of
all, is what this program has always asked for: ``boolq.jsonl`` or ``boolq/validation.jsonl``. Then come the
names that the files have where people get them: in the archives of the tasks' authors, in SuperGLUE, and in
copies of the hub's repositories (docs/tasks.md).
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from gprune.data.demo import questions
from gprune.data.texts import hub, naming
from gprune.evaluation.tasks.reading import TaskSource
from gprune.evaluation.tasks.standard import STANDARD_TASKS, StandardTask
from gprune.study import EvaluationSettings
from gprune.system import safe_parsing
from gprune.system.errors import CorpusError, GpruneError, SettingsError
from gprune.system.nearest import closest

_OWN_SUFFIXES = (".jsonl", ".ndjson", ".json", ".parquet")
_BRANCH = "main"


def known() -> tuple[str, ...]:
    """Names of all tasks that have one, the ones that need no data first."""
    return (*questions.NAMES, *STANDARD_TASKS)


def resolve(task: str, settings: EvaluationSettings, download: bool = False) -> TaskSource:
    """Finds a task: a name in ``known()``, or the path of a file of one's own.

    A hub dataset that is not on this machine is fetched if `download`. Raises SettingsError where there is no
    such task, or the folder of the seven does not exist, CorpusError where its file does not exist or cannot
    be downloaded; the message names what was looked for.
    """
    if task in questions.NAMES:
        return TaskSource(task, "demo")
    if task in STANDARD_TASKS:
        entry = STANDARD_TASKS[task]
        if not settings.task_folder:
            return TaskSource(task, "standard", _on_hub(entry, download))
        file = _in_folder(entry, settings)
        return TaskSource(task, "standard", file, labels_of(entry, file))
    with safe_parsing.refused_as(SettingsError):
        file = safe_parsing.path(task, "a task")
    if file.suffix.lower() not in _OWN_SUFFIXES:
        near = closest(task, known())
        meant = f": did you mean {near}?" if near else f"; known tasks: {', '.join(known())}."
        raise SettingsError(f"there is no task {task!r}{meant} A file of your own questions ends in .jsonl or .parquet")
    if not file.is_file():
        raise CorpusError(f"the task {task!r} has no data: there is no file {str(file)!r}")
    return TaskSource(task, "own", file)


def available(tasks: tuple[str, ...], settings: EvaluationSettings) -> dict[str, str]:
    """Why each task cannot be measured here, so that a caller can leave out just those.

    An empty string where its data is here or can be downloaded, else one sentence. Rows are not checked.
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
    found = find(entry, folder)
    if found is not None:
        return found
    instead = others(entry, folder)
    there = f", only {', '.join(instead)}" if instead else ""
    raise CorpusError(
        f"the task {entry.name!r} has no data in {str(folder)!r}{there}: put one of "
        f"{', '.join(asked_for(entry))} there, or the published files as docs/tasks.md has them, or "
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


OWN_SUFFIXES = (".jsonl", ".parquet")
_SUFFIXES = (*OWN_SUFFIXES, ".arrow")
_SPLITS = {"validation": ("validation", "valid", "val", "dev"), "test": ("test",)}
"""what a split's files are called"""
_FOLDERS: Mapping[str, tuple[str, ...]] = {
    "boolq": ("boolq", "BoolQ", "super_glue/boolq"),
    "piqa": ("piqa", "PIQA", "physicaliqa-train-dev"),
    "hellaswag": ("hellaswag", "HellaSwag", "hellaswag-train-dev"),
    "winogrande": ("winogrande", "WinoGrande", "winogrande_1.1", "winogrande_xl"),
    "arc_easy": ("arc_easy", "ARC-Easy", "ARC-V1-Feb2018-2/ARC-Easy", "ARC-V1-Feb2018/ARC-Easy"),
    "arc_challenge": (
        "arc_challenge",
        "ARC-Challenge",
        "ARC-V1-Feb2018-2/ARC-Challenge",
        "ARC-V1-Feb2018/ARC-Challenge",
    ),
    "openbookqa": ("openbookqa", "OpenBookQA", "OpenBookQA-V1-Sep2018/Data/Main", "Data/Main", "main"),
}
"""folders of a task, ours first"""
_FILES = {
    "hellaswag": "hellaswag_val",
    "arc_easy": "ARC-Easy-Test",
    "arc_challenge": "ARC-Challenge-Test",
}
"""files of tasks whose authors put the task's name into the file's"""
_LABELS = ("{}-labels.lst", "{}_labels.lst", "{}-labels.txt")
_SHOWN = 3


def asked_for(entry: StandardTask) -> tuple[str, ...]:
    """The names that are asked for where nothing is found, from a task folder on."""
    stems = (entry.name, f"{entry.name}/{entry.split}")
    return tuple(f"{stem}{end}" for stem in stems for end in OWN_SUFFIXES)


def find(entry: StandardTask, folder: Path) -> Path | None:
    """The file of a task in a folder, or None."""
    return next((folder / name for name in _names(entry) if (folder / name).is_file()), None)


def labels_of(entry: StandardTask, file: Path) -> Path | None:
    """The file of labels beside a file of questions, or None; not every task is published with one."""
    if not entry.answer or file.suffix == ".parquet":
        return None
    near = (file.with_name(form.format(file.stem)) for form in _LABELS)
    return next((place for place in near if place.is_file()), None)


def others(entry: StandardTask, folder: Path) -> list[str]:
    """A few files in a task's folders that are not what is looked for: another split, an archive."""
    found: list[str] = []
    for name in _FOLDERS[entry.name]:
        try:
            found += sorted(f"{name}/{child}" for child in os.listdir(folder / name))
        except (OSError, ValueError):
            continue
    return found[:_SHOWN]


def _names(entry: StandardTask) -> Iterator[str]:
    """Every name under which a task is looked for, in order."""
    yield from asked_for(entry)
    own = _FILES.get(entry.name)
    folders = _FOLDERS[entry.name]
    if own:
        yield from (f"{place}{own}.jsonl" for place in ("", *(f"{folder}/" for folder in folders)))
    for folder in folders:
        for split in _SPLITS[entry.split]:
            yield from (f"{folder}/{split}{end}" for end in _SUFFIXES)
            # a copy of the hub's repository, or of its converted branch
            yield f"{folder}/{split}-00000-of-00001.parquet"
            yield f"{folder}/{split}/0000.parquet"
            yield f"{folder}/data/{split}-00000-of-00001.parquet"
