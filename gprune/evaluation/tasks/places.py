"""Answers: which file in a folder holds a task, under our names or those of the published downloads?

Looked for, first of all, is what this program has always asked for: ``boolq.jsonl`` or
``boolq/validation.jsonl``. Then come the names that the files have where people get them: in the archives of
the tasks' authors, in SuperGLUE, and in copies of the hub's repositories (docs/tasks.md).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from gprune.evaluation.tasks.standard import StandardTask

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
