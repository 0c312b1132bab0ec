"""Reproduces tables: finds the missing studies, runs them as jobs, and writes each table as soon as it changes."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from gprune import jobs
from gprune.experiments.reproduction.assembly import Assembled, assemble
from gprune.experiments.reproduction.catalogue import write
from gprune.experiments.reproduction.grid import Series, TableStudy, entries
from gprune.experiments.reproduction.lookup import ResultLookup
from gprune.experiments.reproduction.tables import PaperTable
from gprune.experiments.scheduler import Schedule, Watcher
from gprune.pipeline.stages.inputs import read_inputs
from gprune.store import Store
from gprune.study import Study


def needed_studies(tables: Sequence[PaperTable], series: Series) -> list[TableStudy]:
    """Return every study behind some tables once, in the order of the tables; those that measure speed come last."""
    return entries(row for table in tables for row in table.rows(series))


def missing(tables: Sequence[PaperTable], series: Series, finished: ResultLookup) -> list[TableStudy]:
    """Return the studies that still have to run, with the methods that no run has yet."""
    rows = (row for table in tables for row in table.rows(series))
    return entries(row for row in rows if finished.answer(row) is None)


def check_inputs(series: Series) -> None:
    """Make sure that all that the studies read is on this machine, before the first one starts.

    Tasks without data stop nothing: the studies leave them out, and say why. Raises ModelError or CorpusError if the
    model or a text is missing or cannot be downloaded, SettingsError if the name of a text or of a task is
    not valid, or two texts hold the same content.
    """
    read_inputs(replace(series.base, substitute=series.scale.substitute, evaluation=series.tasks))


class TableWork:
    """The tables of one command."""

    def __init__(
        self, store: Store, series: Series, tables: Sequence[PaperTable], folder: Path, *, command: str = ""
    ) -> None:
        """Read the results of a cache and a folder of tables; nothing is started or written yet.

        `command` is the command line, for the index.
        """
        self.store, self.series, self.tables, self.folder = store, series, tuple(tables), folder
        self.command = command
        self.finished = ResultLookup(store)
        self.failures: dict[Study, str] = {}

    def run(
        self,
        watch: Watcher = lambda _: None,
        on_end: Callable[[TableStudy, str], None] = lambda _entry, _reason: None,
        build: jobs.CommandBuilder = jobs.worker_command,
    ) -> list[Assembled]:
        """Run the missing studies and write the tables, again after every study; return them as they are at the end.

        `watch` is called with the status after every poll, `on_end` with every study that has ended and the reason
        for its failure, empty if it succeeded. `build` builds the argument list of a run, as for gprune.jobs.submit.
        Raises GpruneError if the cache or the folder cannot be written; the jobs of this call are cancelled.
        """

        def ended(entry: TableStudy, reason: str) -> None:
            if reason:
                self.failures[entry.shared] = reason
            self.write([table for table in self.tables if any(row in entry.rows for row in table.rows(self.series))])
            on_end(entry, reason)

        self.write(self.tables)
        studies = missing(self.tables, self.series, self.finished)
        Schedule(self.store.root, watch, ended, self._needed, build).run(studies)
        return self.write(self.tables)

    def write(self, tables: Sequence[PaperTable]) -> list[Assembled]:
        """Assemble tables of the current results and write them."""
        assembled = [assemble(table, self.series, self.finished, self.failures) for table in tables]
        write(self.folder, self.series, assembled, self.command)
        return assembled

    def _needed(self, entry: TableStudy) -> bool:
        self.finished = ResultLookup(self.store)
        return any(self.finished.answer(row) is None for row in entry.rows)
