"""Answers: what do the finished runs in the cache say of a row, and which rows has no run answered yet?

A run answers a row when its study gives the same numbers (`series.identity`), its model and texts have not
changed since, and every result behind the row is still in the store. Runs that the app or `run` started
count as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gprune import corpora
from gprune.errors import GpruneError, StoreError
from gprune.fingerprints import VERSIONS
from gprune.models import identity as models
from gprune.records import Accuracy, Perplexity, Throughput
from gprune.reproduction import figures, throughput
from gprune.reproduction.accuracies import NAN, Measured, Tasks
from gprune.reproduction.series import TIMED, Row, identity, recorded_study
from gprune.store import Store
from gprune.study import Study

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
    """the run it comes from; empty where there is none"""
    values: tuple[Value, ...] = ()
    """its numbers; none where `reason` says why"""
    accuracies: tuple[Accuracy, ...] = ()
    """of the tasks, where the run has them"""
    missing_tasks: tuple[tuple[str, str], ...] = ()
    """tasks that were asked for and could not be measured, with the reason"""
    setting: str = ""
    """how and where speed was measured; empty where it was not"""
    retained: float = NAN
    """fraction of the decoder's weights that was kept"""
    parameters: int = 0
    """parameters of the model; 0 where not known"""
    reason: str = ""
    """why there are no numbers"""
    provenance: dict[str, Any] = field(default_factory=dict)
    """versions, machine and number type of the run"""

    @property
    def filled(self) -> bool:
        """Whether the row has its numbers."""
        return bool(self.values)


@dataclass(frozen=True, slots=True)
class _Recorded:
    name: str
    record: dict[str, Any]
    study: Study


class Finished:
    """The runs of a cache, by what they answer."""

    def __init__(self, store: Store) -> None:
        """Reads the records of all runs.

        Args:
            store: the cache.
        """
        self.store = store
        self._inputs: dict[tuple[str, str], str] = {}
        self._tasks = Tasks()
        self._runs: dict[str, list[_Recorded]] = {}
        self.refresh()

    def refresh(self) -> None:
        """Reads the records again, the latest first."""
        self._runs = {}
        for name in self.store.runs():
            record = self.store.run(name) or {}
            study = recorded_study(record)
            if study is not None:
                self._runs.setdefault(identity(study), []).append(_Recorded(name, record, study))

    def answer(self, row: Row) -> Answer | None:
        """What the finished runs say of a row.

        Returns:
            Its numbers, or the reason why no run can have them; None where a run is still needed.
        """
        refused = None
        for run in self._candidates(row):
            if run.record.get("state") != "done" or not self._current(run):
                continue
            found = self._read(row, run)
            if found is not None and found.filled:
                return found
            refused = refused or found
        return refused

    def failure(self, row: Row) -> str:
        """The error of the latest run of a row's study, if that run failed; else empty."""
        run = next(iter(self._candidates(row)), None)
        failed = run is not None and run.record.get("state") == "failed"
        return str(run.record.get("error") or "the run failed without a reason") if run and failed else ""

    def stage_key(self, run: str, stage: str) -> str:
        """Key of a stage of a run; empty where the run has none."""
        stages = (self.store.run(run) or {}).get("stages", {})
        return str(stages.get(stage, {}).get("key", ""))

    def _candidates(self, row: Row) -> list[_Recorded]:
        runs = self._runs.get(identity(row.study), [])
        if row.reads in TIMED:
            wanted = row.study.evaluation.speed
            return [run for run in runs if run.study.evaluation.speed == wanted]
        if row.reads != "agreement":
            return runs
        return [run for run in runs if run.study.substitute == row.study.substitute]

    def _read(self, row: Row, run: _Recorded) -> Answer | None:
        result = run.record.get("result") or {}
        reason = (result.get("unavailable") or {}).get(row.method)
        if reason:
            return Answer(row, run.name, reason=str(reason))
        try:
            values, setting = self._values(row, run)
        except StoreError:
            return None
        except GpruneError as error:
            return Answer(row, run.name, reason=str(error))
        measured = self._accuracies(row, run) if values else None
        if measured is None:
            return None
        retained, parameters = (
            (result.get(name) or {}).get(row.method) for name in ("retention", "parameters")
        )
        return Answer(
            row=row,
            run=run.name,
            values=tuple(values),
            accuracies=measured.accuracies,
            missing_tasks=measured.missing,
            setting=setting,
            retained=NAN if retained is None else float(retained),
            parameters=int(parameters or 0),
            provenance=run.record.get("provenance") or {},
        )

    def _values(self, row: Row, run: _Recorded) -> tuple[list[Value], str]:
        """Every number of a row but accuracies, none where one is missing; and how speed was measured."""
        if row.reads not in (*_PERPLEXITY, *TIMED):
            return self._figure(row, run), ""
        values = self._perplexities(row, run) if row.reads in _PERPLEXITY else []
        if row.reads not in TIMED or (row.reads in _PERPLEXITY and not values):
            return values, ""
        found, setting = self._speed(row, run)
        return ([*values, *found] if found else []), setting

    def _speed(self, row: Row, run: _Recorded) -> tuple[list[Value], str]:
        """What a run's clock says of a row, where all methods of the row's study ran side by side."""
        key = self._key(run, throughput.STAGE, throughput.STAGE)
        if not key or not set(row.study.methods) <= set(run.study.methods):
            return [], ""
        record = self.store.get(throughput.STAGE, key, Throughput)
        found = throughput.measures(record, row.method)
        return [Value(name, "", value, error) for name, value, error in found], throughput.describe(record)

    def _accuracies(self, row: Row, run: _Recorded) -> Measured | None:
        if row.reads != "perplexity":
            return Measured()
        evaluation = row.study.evaluation
        return self._tasks.measured(evaluation, run.study.evaluation, run.record, row.method)

    def _perplexities(self, row: Row, run: _Recorded) -> list[Value]:
        evaluated, values = list(run.study.evaluation.texts), []
        for text in row.study.evaluation.texts:
            if text not in evaluated:
                return []
            key = self._key(run, f"perplexity.{row.method}.{evaluated.index(text)}", "perplexity")
            if not key:
                return []
            found = self.store.get("perplexity", key, Perplexity)
            number = float(found.perplexity)
            error = float(found.standard_error)
            values.append(Value("perplexity", text, number, error, int(found.windows), int(found.length)))
        return values

    def _figure(self, row: Row, run: _Recorded) -> list[Value]:
        keys = {}
        for name in figures.stages(row):
            key = self._key(run, name, "masks" if name.startswith("masks_") else name)
            if not key:
                return []
            keys[name] = key
        found = figures.measures(row, self.store, keys)
        return [Value(name, "", value, error) for name, value, error in found]

    def _key(self, run: _Recorded, name: str, stage: str) -> str:
        """Key of a result of a run that is still whole; empty otherwise."""
        key = str((run.record["stages"].get(name) or {}).get("key", ""))
        return key if key and self.store.has(stage, key) else ""

    def _current(self, run: _Recorded) -> bool:
        """Whether model, texts and formulas are still those of the run; what it does not say is believed."""
        if run.record.get("formulas", VERSIONS) != VERSIONS:
            return False
        inputs = (run.record.get("provenance") or {}).get("inputs") or {}
        study = run.study
        # the third text only matters where it was read
        roles = [role for role in ("primary", "auxiliary", "substitute") if getattr(study, role)]
        pairs = [(inputs.get("model"), self._now("model", study.model))]
        calibration, evaluation = inputs.get("calibration") or {}, inputs.get("evaluation") or {}
        pairs += [(calibration.get(role), self._now("calibration", getattr(study, role))) for role in roles]
        pairs += [(evaluation.get(text), self._now("evaluation", text)) for text in study.evaluation.texts]
        return all(not then or not now or then == now for then, now in pairs)

    def _now(self, role: str, name: str) -> str:
        """Present fingerprint of a model or text; empty where it cannot be told, as of one not downloaded."""
        if (role, name) not in self._inputs:
            try:
                if role == "model":
                    found = models.fingerprint(name)
                else:
                    found = corpora.fingerprint(
                        name, "calibration" if role == "calibration" else "evaluation"
                    )
            except GpruneError:
                found = ""
            self._inputs[role, name] = found
        return self._inputs[role, name]
