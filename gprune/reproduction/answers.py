"""Answers: what do the results in the cache say of a row, and which rows has no run answered yet?

Results are looked up by the keys of the row's study, so any run's count, the app's as well. What changes a
number (a text, the model, a setting, a formula) changes its key, and the row is open again. The records of
runs say only who made a result, and why there is none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from gprune.errors import GpruneError, MethodError, StoreError
from gprune.methods import METHODS
from gprune.pipeline.summary import retained
from gprune.records import Accuracy, RankDrift, Throughput
from gprune.reproduction import figures, throughput
from gprune.reproduction.series import TASKS, TIMED, Row, shared, together
from gprune.stages import Graph, Inputs, Results, Stage, accuracy, drift, masks, order, perplexity, speed
from gprune.stages.inputs import read
from gprune.store import Store
from gprune.study import Study, from_dict

NAN = float("nan")
_PERPLEXITY = ("perplexity", "alignment")
"""rows that read perplexities"""


@dataclass(frozen=True, slots=True)
class Value:
    """One number of a row."""

    measure: str
    """perplexity, or what a figure measures"""
    subject: str
    """the text; empty for figures"""
    value: float
    """the number"""
    error: float = NAN
    """standard error; of figures the deviation over layers, of speed the quartile range of repetitions"""
    windows: int = 0
    """perplexity windows behind it; 0 where none"""
    length: int = 0
    """tokens of a window"""
    samples: int = 0
    """documents of a task; 0 elsewhere"""
    chance: float = NAN
    """accuracy of guessing; NaN elsewhere"""
    version: str = ""
    """version of a task and of the harness"""


@dataclass(frozen=True, slots=True)
class Answer:
    """What is known of a row."""

    row: Row
    run: str = ""
    """the latest run that has its result, or that says why there is none; empty where no run does"""
    values: tuple[Value, ...] = ()
    """its numbers; none where `reason` says why"""
    accuracies: tuple[Accuracy, ...] = ()
    """of the tasks asked for that have data; where none is asked for, of those that happen to be there"""
    missing_tasks: tuple[tuple[str, str], ...] = ()
    """tasks that were asked for and cannot be measured, with the reason"""
    drift: RankDrift | None = None
    """what a row of rank drift was read from"""
    clock: Throughput | None = None
    """what a row with a clock was read from; the same object for all rows of a measurement"""
    retained: float = NAN
    """fraction of the decoder's weights that was kept"""
    parameters: int = 0
    """parameters of the model; 0 where not known"""
    reason: str = ""
    """why there are no numbers"""
    precision: str = ""
    """number type of the model"""
    versions: dict[str, Any] = field(default_factory=dict)
    """of the packages and the commit that made the result"""

    @property
    def filled(self) -> bool:
        """Whether the row has its numbers."""
        return bool(self.values)

    @property
    def setting(self) -> str:
        """How and where speed was measured; empty where it was not."""
        return throughput.describe(self.clock) if self.clock is not None else ""


@dataclass(frozen=True, slots=True)
class _Run:
    name: str
    study: Study
    record: dict[str, Any]


class Finished:
    """What a cache has of the rows, whichever runs made it."""

    def __init__(self, store: Store) -> None:
        """Reads the records of all runs.

        Args:
            store: the cache.
        """
        self.store = store
        self.refresh()

    def refresh(self) -> None:
        """Reads the records again, and once more what the studies read from outside."""
        self._inputs: dict[Study, tuple[Inputs, dict[str, str]] | None] = {}
        self._opened: dict[Study, list[Results]] = {}
        self._clocks: dict[str, Throughput] = {}
        self._runs = list(_runs(self.store))
        self._makers: dict[str, list[_Run]] = {}
        self._reasons: dict[str, tuple[str, str]] = {}
        self._latest: dict[Study, _Run] = {}
        for run in self._runs:
            self._latest.setdefault(shared(run.study), run)
            for entry in run.record["stages"].values():
                self._makers.setdefault(entry.get("key", ""), []).append(run)
            for entry in run.record.get("unavailable", {}).values():
                self._reasons.setdefault(entry["key"], (run.name, entry["reason"]))

    def answer(self, row: Row) -> Answer | None:
        """What the results of a row's study say of it.

        Returns:
            Its numbers, or the reason why it can have none; None where a run is still needed.
        """
        refused = None
        for results in self._of(row.study):
            try:
                found = self._read(row, results)
            except StoreError:
                continue
            except MethodError as error:
                found = Answer(row, reason=str(error))
            if found is not None and found.filled:
                return found
            refused = refused or found
        return refused

    def failure(self, row: Row) -> str:
        """The error of the latest run of a row's study, if that run failed; else empty."""
        run = self._latest.get(shared(row.study))
        failed = run is not None and run.record.get("state") == "failed"
        return str(run.record.get("error") or "the run failed without a reason") if run and failed else ""

    # ---- results by their keys -----------------------------------------------------------------------------

    def _of(self, study: Study) -> list[Results]:
        """What there is of a study, for every device that runs name; nothing where it cannot be read here."""
        if study not in self._opened:
            known: list[Inputs] = []
            for device in dict.fromkeys((study.device, *(run.study.device for run in self._runs))):
                found = self._read_by(replace(study, device=device))
                if found is not None and found[0] not in known:
                    known.append(found[0])
            self._opened[study] = [Results(self.store, Graph(study, inputs)) for inputs in known]
        return self._opened[study]

    def _read_by(self, study: Study) -> tuple[Inputs, dict[str, str]] | None:
        """Digests of what a study reads, and why tasks have none; None where it cannot be read here."""
        texts = study.primary, study.auxiliary
        # the digests are the same whatever the other settings
        reads = {name: getattr(study, name) for name in ("substitute", "device", "dtype", "evaluation")}
        known = Study(study.model, *texts, **reads)
        if known not in self._inputs:
            missing: dict[str, str] = {}
            try:
                self._inputs[known] = read(known, missing, download=False), missing
            except GpruneError:
                self._inputs[known] = None
        return self._inputs[known]

    def _read(self, row: Row, results: Results) -> Answer | None:
        stages = self._stages(row, results)
        values = self._values(row, results, stages) if all(map(results.there, stages)) else []
        if not values:
            return self._refusal(row, results, stages)
        measured, first = row.reads in (*_PERPLEXITY, *TIMED), stages[0]
        kept, parameters = _size(row, results) if measured else (NAN, 0)
        _, missing_tasks = self._read_by(row.study) or (None, {})
        return Answer(
            row=row,
            run=next((run.name for run in self._makers.get(first.key, ())), ""),
            values=tuple(values),
            accuracies=tuple(self._accuracies(row, results, first)),
            missing_tasks=tuple(missing_tasks.items()),
            drift=results.get(drift) if row.reads == "drift" else None,
            clock=self._clock(first, results) if row.reads in TIMED else None,
            retained=kept,
            parameters=parameters,
            precision=results.graph.inputs.precision,
            versions=results.details(first),
        )

    def _stages(self, row: Row, results: Results) -> list[Stage[Any]]:
        """The results that a row is read from; the first is what it is all about."""
        graph, found = results.graph, list[Stage[Any]]()
        if row.reads not in (*_PERPLEXITY, *TIMED):
            return list(figures.sources(row, graph))
        if row.reads in TIMED:
            found.append(self._speed(row, results))
        if row.reads in _PERPLEXITY:
            found += [perplexity(graph, row.method, text) for text in row.study.evaluation.texts]
        if row.reads == "perplexity":
            found += [accuracy(graph, row.method, task) for task in graph.inputs.tasks]
        return found

    def _speed(self, row: Row, results: Results) -> Stage[Throughput]:
        """The measurement of all methods of a row's study side by side, alone or with more of them."""
        own = together(row.study.methods)
        larger = (run.study.methods for run in self._runs if set(own) <= set(run.study.methods))
        inputs = results.graph.inputs
        stages = [
            speed(Graph(replace(row.study, methods=methods), inputs))
            for methods in dict.fromkeys((*larger, own))
        ]
        return next(filter(results.holds, stages), stages[-1])

    def _clock(self, stage: Stage[Throughput], results: Results) -> Throughput:
        if stage.key not in self._clocks:
            self._clocks[stage.key] = results.record(stage)
        return self._clocks[stage.key]

    def _values(self, row: Row, results: Results, stages: list[Stage[Any]]) -> list[Value]:
        """Every number of a row but accuracies; none where its method was not measured."""
        if row.reads not in (*_PERPLEXITY, *TIMED):
            return _measured(figures.measures(row, results))
        texts = row.study.evaluation.texts if row.reads in _PERPLEXITY else ()
        values = [_perplexity(results, row.method, text) for text in texts]
        if row.reads not in TIMED:
            return values
        timed = throughput.measures(self._clock(stages[0], results), row.method)
        return [*values, *_measured(timed)] if timed else []

    def _accuracies(self, row: Row, results: Results, first: Stage[Any]) -> list[Accuracy]:
        if row.reads != "perplexity":
            return []
        chosen = results if row.study.evaluation.tasks else self._with_tasks(row, results, first)
        stages = [accuracy(chosen.graph, row.method, task) for task in chosen.graph.inputs.tasks]
        return [chosen.record(stage) for stage in stages if chosen.there(stage)]

    def _with_tasks(self, row: Row, results: Results, first: Stage[Any]) -> Results:
        """A row's results with the tasks of a run that has measured some beside the same perplexity."""
        for run in self._makers.get(first.key, ()):
            tasks = {f"evaluation.{name}": getattr(run.study.evaluation, name) for name in TASKS}
            if run.study.evaluation.tasks:
                for other in self._of(row.study.with_settings(tasks)):
                    if other.graph.inputs.precision == results.graph.inputs.precision:
                        return other
        return results

    def _refusal(self, row: Row, results: Results, stages: list[Stage[Any]]) -> Answer | None:
        """Why a row can have no numbers, where a run has noted it of what the row is read from; else None."""
        # a measurement side by side does without the methods that cannot run
        asked = [stage for stage in stages if not stage.optional]
        method = METHODS[row.method]
        if row.reads in TIMED and method.decision != "none":
            asked.append(masks(results.graph, method.masks))
        for stage in order(asked, results.holds) if self._reasons else ():
            if stage.key in self._reasons and not results.there(stage):
                run, reason = self._reasons[stage.key]
                return Answer(row, run, reason=reason)
        return None


def _measured(found: list[figures.Measure]) -> list[Value]:
    return [Value(name, "", value, error) for name, value, error in found]


def _perplexity(results: Results, method: str, text: str) -> Value:
    found = results.get(perplexity, method, text)
    numbers = float(found.perplexity), float(found.standard_error)
    return Value("perplexity", text, *numbers, int(found.windows), int(found.length))


def _size(row: Row, results: Results) -> tuple[float, int]:
    """Kept fraction of the decoder's weights and parameters of the model, where they are known."""
    try:
        found = retained(results, [row.method])
    except StoreError:
        return NAN, 0
    return float(found["retention"][row.method]), int(found["parameters"][row.method])


def _runs(store: Store) -> Iterator[_Run]:
    """The runs of a cache, the latest first, that this version can read."""
    for name in store.runs():
        record = store.run(name) or {}
        with contextlib.suppress(ValueError, KeyError, TypeError):
            yield _Run(name, from_dict(record["study"]), record)
