"""The results that a cache has of a study, the runs that made them, and the reasons where there are none.

A result is there if its key is, whichever run made it. The records of the runs say where it comes from, which
method cannot run, and how a run has failed.
"""

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from gprune.experiments.reproduction.grid import shared
from gprune.pipeline import runs
from gprune.pipeline.stages import Graph, Inputs, Results, Stage, order
from gprune.pipeline.stages.inputs import plugins_read, read
from gprune.store import Store
from gprune.study import Study, from_dict
from gprune.study.methods import RECOMMENDED
from gprune.system.errors import GpruneError, SettingsError

_READ = (
    *("primary", "auxiliary", "substitute", "device", "dtype", "calibration", "repair", "scales", "recovery"),
    *("choice", "evaluation", "baselines", "retention"),
)
"""fields of a study that the digests of its inputs depend on; some models reach no other retention than theirs"""


@dataclass(frozen=True, slots=True)
class Run:
    """A run as its record says."""

    name: str
    study: Study
    record: dict[str, Any]
    """what run.json holds"""


@dataclass(frozen=True, slots=True)
class Reason:
    """The reason for a missing result."""

    run: str
    """the run that says so"""
    words: str


class Runs:
    """The runs of a cache as they stand now, and the results of studies."""

    def __init__(self, store: Store) -> None:
        """Reads the records of all runs."""
        self.store, self.every = store, tuple(_readable(store))
        self._inputs: dict[Study, tuple[Inputs, dict[str, str]] | None] = {}
        self._results: dict[Study, list[Results]] = {}
        self._makers: dict[str, list[Run]] = {}
        self._reasons: dict[tuple[str, int], Reason] = {}
        self._latest: dict[Study, Run] = {}
        for run in self.every:
            self._latest.setdefault(shared(run.study), run)
            for entry in run.record["stages"].values():
                self._makers.setdefault(entry.get("key", ""), []).append(run)
            # what does not fit into memory may fit in smaller batches
            batch = run.study.calibration.batch
            for entry in run.record.get("unavailable", {}).values():
                self._reasons.setdefault((entry["key"], batch), Reason(run.name, entry["reason"]))

    def results(self, study: Study) -> list[Results]:
        """Return the results of a study on every device that runs name; none where it cannot be read here."""
        if study not in self._results:
            inputs: list[Inputs] = []
            for device in dict.fromkeys((study.device, *(run.study.device for run in self.every))):
                reading = self._read(replace(study, device=device))
                if reading is not None and reading[0] not in inputs:
                    inputs.append(reading[0])
            self._results[study] = []
            # a plug-in that is not installed, or cannot be read, leaves nothing to be compared with
            with contextlib.suppress(SettingsError):
                plugins = plugins_read(study)
                graphs = (Graph(study, replace(item, plugins=plugins)) for item in inputs)
                self._results[study] = [Results(self.store, graph) for graph in graphs]
        return self._results[study]

    def missing_tasks(self, study: Study) -> dict[str, str]:
        """Return why tasks of a study cannot be measured here, by task."""
        reading = self._read(study)
        return {} if reading is None else reading[1]

    def makers(self, stage: Stage[Any]) -> list[Run]:
        """Return the runs that have a result, the latest first."""
        return self._makers.get(stage.key, [])

    def refused(self, stage: Stage[Any], results: Results) -> Reason | None:
        """Return why one result cannot be had itself, where a run has noted it and no other has made it since."""
        reason = self._reasons.get((stage.key, results.graph.study.calibration.batch))
        return reason if reason is not None and not results.there(stage) else None

    def reason(self, stages: Iterable[Stage[Any]], results: Results) -> Reason | None:
        """Return why some results cannot be had: the reason of the first of them, or of their needs, that has one."""
        needed = order(stages, results.holds) if self._reasons else ()
        return next(filter(None, (self.refused(stage, results) for stage in needed)), None)

    def failure(self, study: Study) -> str:
        """Return the error of a study's latest run, whatever its methods, if that run failed; else empty."""
        run = self._latest.get(shared(study))
        if run is None or run.record.get("state") != "failed":
            return ""
        return str(run.record.get("error") or "the run failed without a reason")

    def _read(self, study: Study) -> tuple[Inputs, dict[str, str]] | None:
        """Return the digests of a study's inputs, and why tasks have none; None where it cannot be read here."""
        # whoever chooses or scales reads more, and LLM-Pruner may have a text of its own
        methods = tuple(name for name in (RECOMMENDED, "gates_scaled", "llm_pruner") if name in study.involved)
        # other settings change no digest
        reads = Study(study.model, **{name: getattr(study, name) for name in _READ})
        reads = replace(reads, methods=methods) if methods else reads
        if reads not in self._inputs:
            missing: dict[str, str] = {}
            self._inputs[reads] = None
            with contextlib.suppress(GpruneError):
                self._inputs[reads] = read(reads, missing, download=False, store=self.store), missing
        return self._inputs[reads]


def _readable(store: Store) -> Iterator[Run]:
    """Yield the runs of a cache that this version can read, the latest first."""
    for name, record in runs.every(store):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            yield Run(name, from_dict(record["study"]), record)
