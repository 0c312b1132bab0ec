"""Answers: which zero-shot accuracies does a finished run have for a row, and are they those asked for?

A task without data on this machine is no reason to run a study again: the run's own reason stands in its
place, until the data is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gprune.errors import GpruneError
from gprune.evaluation import tasks
from gprune.records import Accuracy
from gprune.settings import EvaluationSettings

NAN = float("nan")


@dataclass(frozen=True, slots=True)
class Measured:
    """The accuracies of one method in one run."""

    accuracies: tuple[Accuracy, ...] = ()
    """of the tasks asked for that have data; where none is asked for, of those that happen to be there"""
    missing: tuple[tuple[str, str], ...] = ()
    """tasks asked for that could not be measured, with the reason"""


class Tasks:
    """What is known of tasks on this machine, looked up once each."""

    def __init__(self) -> None:
        """Nothing is looked up yet."""
        self._content: dict[tuple[str, str], str] = {}
        self._reasons: dict[tuple[str, str], str] = {}

    def measured(
        self, wanted: EvaluationSettings, had: EvaluationSettings, record: Mapping[str, Any], method: str
    ) -> Measured | None:
        """Reads the accuracies of a method from the record of a run.

        Args:
            wanted: how the row is to be measured.
            had: how the run was measured.
            record: the run's record.
            method: a method of the run.

        Returns:
            The accuracies; None where the run lacks a task that it could have now, measured it on another
            number of documents, or on documents that have changed.
        """
        result = record.get("result") or {}
        found = (result.get("accuracy") or {}).get(method) or {}
        if not wanted.tasks:
            return Measured(tuple(_accuracy(task, values, had.limit) for task, values in found.items()))
        reasons = result.get("unavailable_tasks") or {}
        absent = {task: str(reasons[task]) for task in wanted.tasks if task in reasons}
        there = [task for task in wanted.tasks if task not in absent]
        contents = ((record.get("provenance") or {}).get("inputs") or {}).get("tasks") or {}
        complete = set(there) <= set(found) and wanted.limit == had.limit
        if not complete or not all(self._same(task, contents.get(task), wanted) for task in there):
            return None
        if absent and not all(self._missing(tuple(absent), wanted).values()):
            return None
        return Measured(
            tuple(_accuracy(task, found[task], had.limit) for task in there), tuple(absent.items())
        )

    def _missing(self, names: tuple[str, ...], settings: EvaluationSettings) -> dict[str, str]:
        """Why tasks cannot be measured here now; empty for those that can."""
        folder = settings.task_folder
        unknown = tuple(name for name in names if (name, folder) not in self._reasons)
        for name, reason in tasks.available(unknown, settings).items():
            self._reasons[name, folder] = reason
        return {name: self._reasons[name, folder] for name in names}

    def _same(self, task: str, content: str | None, settings: EvaluationSettings) -> bool:
        """Whether a task's documents are those of the run; believed where one of both cannot be told."""
        now = self._now(task, settings)
        return not content or not now or content == now

    def _now(self, task: str, settings: EvaluationSettings) -> str:
        key = task, settings.task_folder
        if key not in self._content:
            try:
                source = tasks.resolve(task, settings)
                unknown = source.kind == "standard" and source.file is None
                self._content[key] = "" if unknown else tasks.fingerprint(source)
            except GpruneError:
                self._content[key] = ""
        return self._content[key]


def _accuracy(task: str, values: Mapping[str, Any], limit: int | None) -> Accuracy:
    """The record of a task as a run's result keeps it; JSON has no NaN but null."""

    def number(name: str) -> float:
        found = values.get(name)
        return NAN if found is None else float(found)

    return Accuracy(
        task=task,
        acc=number("acc"),
        acc_norm=number("acc_norm"),
        acc_error=number("acc_error"),
        acc_norm_error=number("acc_norm_error"),
        samples=int(values.get("samples") or 0),
        limit=limit or 0,
        chance=number("chance"),
        version=str(values.get("version") or ""),
        data="",
    )
