"""Answers: what does a cache have of a study, which run made it, and why is there none?

Whether a result is there is decided by its key alone, whichever run made it. What the runs have written down
says where it comes from, which method cannot run, and how a run has failed.
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


@dataclass(frozen=True, slots=True)
class Run:
    """A run as its record says."""

    name: str
    study: Study
    record: dict[str, Any]
    """what run.json holds"""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a result cannot be had."""

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
        """What there is of a study, on any device that runs name; nothing where it cannot be read here."""
        if study not in self._results:
            known: list[Inputs] = []
            for device in dict.fromkeys((study.device, *(run.study.device for run in self.every))):
                found = self._read(replace(study, device=device))
                if found is not None and found[0] not in known:
                    known.append(found[0])
            # a plug-in that is not installed, or cannot be read, leaves nothing to be compared with
            with contextlib.suppress(SettingsError):
                plugins = plugins_read(study)
                known = [replace(inputs, plugins=plugins) for inputs in known]
                self._results[study] = [Results(self.store, Graph(study, inputs)) for inputs in known]
            self._results.setdefault(study, [])
        return self._results[study]

    def missing_tasks(self, study: Study) -> dict[str, str]:
        """Why tasks of a study cannot be measured here, by task."""
        found = self._read(study)
        return {} if found is None else found[1]

    def makers(self, stage: Stage[Any]) -> list[Run]:
        """The runs that have a result, the latest first."""
        return self._makers.get(stage.key, [])

    def reason(self, stages: Iterable[Stage[Any]], results: Results) -> Reason | None:
        """Why some results cannot be had, where a run has noted it of one of them or of what they need."""
        for stage in order(stages, results.holds) if self._reasons else ():
            noted = self._reasons.get((stage.key, results.graph.study.calibration.batch))
            if noted is not None and not results.there(stage):
                return noted
        return None

    def refused(self, stage: Stage[Any], results: Results) -> Reason | None:
        """Why one result cannot be had itself, where a run has noted it and no other has made it since."""
        noted = self._reasons.get((stage.key, results.graph.study.calibration.batch))
        return noted if noted is not None and not results.there(stage) else None

    def failure(self, study: Study) -> str:
        """The error of a study's latest run, whatever its methods, if that run failed; else empty."""
        run = self._latest.get(shared(study))
        if run is None or run.record.get("state") != "failed":
            return ""
        return str(run.record.get("error") or "the run failed without a reason")

    def _read(self, study: Study) -> tuple[Inputs, dict[str, str]] | None:
        """Digests of what a study reads, and why tasks have none; None where it cannot be read here."""
        # they are the same whatever the other settings
        texts = ("primary", "auxiliary", "substitute")
        others = ("device", "dtype", "calibration", "repair", "scales", "recovery", "choice", "evaluation", "baselines")
        # whoever chooses or scales reads more, and LLM-Pruner may have a text of its own
        more = {name: name in study.involved for name in (RECOMMENDED, "gates_scaled", "llm_pruner")}
        # some models reach no other retention than theirs
        names = (*texts, *others, "retention")
        reads = Study(study.model, **{name: getattr(study, name) for name in names})
        if any(more.values()):
            reads = replace(reads, methods=tuple(name for name, involved in more.items() if involved))
        if reads not in self._inputs:
            missing: dict[str, str] = {}
            try:
                self._inputs[reads] = read(reads, missing, download=False, store=self.store), missing
            except GpruneError:
                self._inputs[reads] = None
        return self._inputs[reads]


def _readable(store: Store) -> Iterator[Run]:
    """The runs of a cache, the latest first, that this version can read."""
    for name, record in runs.every(store):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            yield Run(name, from_dict(record["study"]), record)
