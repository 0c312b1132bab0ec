"""Reproduce tables: find the missing studies, run them as jobs, and write each table when its numbers change."""

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
    """Return the studies that some tables need, in the order of the tables; studies that measure speed come last."""
    return entries(row for table in tables for row in table.rows(series))


def missing(tables: Sequence[PaperTable], series: Series, finished: ResultLookup) -> list[TableStudy]:
    """Return the studies that still have to run, with the methods that no run has computed yet."""
    rows = (row for table in tables for row in table.rows(series))
    return entries(row for row in rows if finished.answer(row) is None)


def check_inputs(series: Series) -> None:
    """Check that all inputs of the studies are on this machine, before the first study starts.

    Tasks without data are not an error: the studies leave them out and report the reason. Raises ModelError or
    CorpusError if the model or a text is missing or cannot be downloaded. Raises SettingsError if the name of a text or
    task is not valid, or if two texts have equal content.
    """
    read_inputs(replace(series.base, substitute=series.scale.substitute, evaluation=series.tasks))


class TableWork:
    """The tables of one command, with the studies that they need."""

    def __init__(
        self, store: Store, series: Series, tables: Sequence[PaperTable], folder: Path, *, command: str = ""
    ) -> None:
        """Read the results of a cache and a folder of tables; nothing is started or written yet.

        `command` is the command line, which the index records.
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
        """Run the missing studies, write the tables after every study, and return the final tables.

        `watch` is called with the status after every poll. `on_end` is called with every finished study and the reason
        for its failure, empty if it succeeded. `build` returns the argument list of a run, as for gprune.jobs.submit.
        Raises GpruneError if the cache or the folder cannot be written; the jobs of this call are then cancelled.
        """

        def ended(entry: TableStudy, reason: str) -> None:
            if reason:
                self.failures[entry.shared] = reason
            self.write([table for table in self.tables if any(row in entry.rows for row in table.rows(self.series))])
            on_end(entry, reason)

        self.write(self.tables)
        studies = missing(self.tables, self.series, self.finished)
        Schedule(self.store.root, watch, ended, self._is_needed, build).run(studies)
        return self.write(self.tables)

    def write(self, tables: Sequence[PaperTable]) -> list[Assembled]:
        """Build tables from the current results, write and return them."""
        assembled = [assemble(table, self.series, self.finished, self.failures) for table in tables]
        write(self.folder, self.series, assembled, self.command)
        return assembled

    def _is_needed(self, entry: TableStudy) -> bool:
        self.finished = ResultLookup(self.store)
        return any(self.finished.answer(row) is None for row in entry.rows)
