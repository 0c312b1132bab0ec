"""Reproduces tables: finds what is missing, has it run, and writes each table as soon as it changes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

from gprune import corpora, jobs
from gprune.errors import CorpusError
from gprune.evaluation import tasks as zero_shot
from gprune.models import identity as models
from gprune.reproduction import series as grouping
from gprune.reproduction.answers import Finished
from gprune.reproduction.assembly import Assembled, assemble
from gprune.reproduction.schedule import Schedule, Watcher
from gprune.reproduction.series import Series, Task, task_key
from gprune.reproduction.tables import Table
from gprune.reproduction.writing import write
from gprune.store import Store

INCOMPLETE = "its run ended without this result: run the command again, and see the job's log"


def needed(tables: Sequence[Table], series: Series) -> list[Task]:
    """Every study behind some tables, each once, in the order of the tables; those with a clock last."""
    rows = [row for table in tables for row in table.rows(series)]
    return grouping.tasks([*rows, *grouping.before(rows)])


def missing(tables: Sequence[Table], series: Series, finished: Finished) -> list[Task]:
    """The studies that still have to run, with the methods that no run has yet."""
    every = (row for table in tables for row in table.rows(series))
    rows = [row for row in every if finished.answer(row) is None]
    first = (row for row in grouping.before(rows) if finished.answer(row) is None)
    return grouping.tasks([*rows, *first])


def prepare(series: Series) -> None:
    """Makes sure that the model and the texts are on this machine, before the first study starts.

    Tasks without data stop nothing: the studies leave them out, and say why.

    Raises:
        ModelError: there is no such model, or it cannot be downloaded.
        CorpusError: a text is missing, or cannot be downloaded.
        SettingsError: the name of a text or of a task is not valid.
    """
    for task in series.tasks.tasks:
        with contextlib.suppress(CorpusError):
            zero_shot.resolve(task, series.tasks)
    models.locate(series.model, download=True)
    scale = series.scale
    for text in (scale.primary, scale.auxiliary, scale.substitute):
        corpora.prepare(text, "calibration")
    for text in series.base.evaluation.texts:
        corpora.prepare(text, "evaluation")


class Work:
    """The tables of one command."""

    def __init__(
        self,
        store: Store,
        series: Series,
        tables: Sequence[Table],
        folder: Path,
        *,
        command: str = "",
    ) -> None:
        """Reads what is there; nothing is started or written yet.

        Args:
            store: the cache.
            series: the studies.
            tables: which tables.
            folder: where they are written.
            command: the command line, for the index.
        """
        self.store, self.series, self.tables, self.folder = store, series, tuple(tables), folder
        self.command = command
        self.finished = Finished(store)
        self.failures: dict[str, str] = {}

    def run(
        self,
        devices: Sequence[str] = (),
        watch: Watcher = lambda _: None,
        told: Callable[[Task, str], None] = lambda _task, _reason: None,
        build: jobs.CommandBuilder = jobs.worker_command,
    ) -> list[Assembled]:
        """Has the missing studies run and writes the tables, again after every study.

        Args:
            devices: devices to keep busy, one study each.
            watch: told where the work stands.
            told: told of every study that has ended, with the reason where it failed.
            build: makes a run's argument list, as for gprune.jobs.submit.

        Returns:
            The tables as they are at the end.

        Raises:
            GpruneError: the cache or the folder cannot be written; the work under way is cancelled.
        """

        def ended(task: Task, reason: str) -> None:
            if reason:
                self.failures[task.key] = reason
            if self._needed(task) and not reason:
                self.failures[task.key] = INCOMPLETE
            self.write([table for table in self.tables if self._has(table, task.key)])
            told(task, self.failures.get(task.key, ""))

        self.write(self.tables)
        left = missing(self.tables, self.series, self.finished)
        Schedule(self.store.root, devices, watch, ended, self._needed, build).run(left)
        return self.write(self.tables)

    def write(self, tables: Sequence[Table]) -> list[Assembled]:
        """Assembles tables of what is there now and writes them."""
        made = [self.assemble(table) for table in tables]
        write(self.folder, self.series, made, self.command)
        return made

    def assemble(self, table: Table) -> Assembled:
        """One table of what is there now."""
        return assemble(table, self.series, self.finished, self.failures)

    def _needed(self, task: Task) -> bool:
        self.finished.refresh()
        return any(self.finished.answer(row) is None for row in task.rows)

    def _has(self, table: Table, key: str) -> bool:
        return any(task_key(row.study) == key for row in table.rows(self.series))
