"""Look up the numbers of a row in the cache, or the reason why it has none.

Results are looked up by the keys of the row's study, so results of any run are used, including those of the app. If a
text, the model, a setting or a formula changes, so does the key, and the study of the row has to run again. The records
of the runs have the origin of a result, the methods that cannot run, and the reasons of failed runs.
"""

import contextlib
from collections.abc import Container, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gprune.evaluation.protocol import Stamp, of_accuracy, of_perplexity
from gprune.experiments.reproduction import figures
from gprune.experiments.reproduction.grid import FIGURES, TASKS, Row, shared_study
from gprune.pipeline import runs
from gprune.pipeline.running import sizes
from gprune.pipeline.stages import Graph, Inputs, Results, Stage, accuracy, masks, order, perplexity
from gprune.pipeline.stages.inputs import plugin_records, read_inputs
from gprune.records import Accuracy, Array, Throughput
from gprune.store import Store
from gprune.study import Study, from_dict
from gprune.study.methods import EXPERT_METHODS, RECOMMENDED
from gprune.system.errors import GpruneError, MethodError, SettingsError, StoreError

NAN = float("nan")


@dataclass(frozen=True, slots=True)
class Value:
    """One number of a row."""

    measure: str
    """`perplexity`, or the name of another number, such as `ARI`"""
    subject: str
    """name of the text; empty for figures"""
    value: float
    """the number"""
    error: float = NAN
    """standard error; for figures the standard deviation over layers, for speed the interquartile range over
    repetitions
    """
    windows: int = 0
    """number of perplexity windows; 0 for other measures"""
    length: int = 0
    """tokens of a window"""
    samples: int = 0
    """number of documents of a task; 0 for other measures"""
    chance: float = NAN
    """accuracy of guessing; NaN for other measures"""
    version: str = ""
    """version of a task and of the harness"""
    losses: Array = field(default_factory=lambda: np.empty(0), compare=False)
    """(windows,) mean negative log-likelihood of each perplexity window, nats per token; empty elsewhere"""
    stamp: Stamp | None = None
    """protocol of the measurement, or None for a figure without a quality measure"""

    @property
    def column(self) -> str:
        """Return the name of the table column with this number."""
        return f"ppl:{self.subject}" if self.measure == "perplexity" else self.measure


@dataclass(frozen=True, slots=True)
class Answer:
    """The numbers of a row, or the reason why it has none."""

    row: Row
    run: str = ""
    """latest run with the result or the reason; empty if there is no such run"""
    values: tuple[Value, ...] = ()
    """numbers of the row; empty if there is a `reason`"""
    accuracies: tuple[tuple[Accuracy, Stamp], ...] = ()
    """accuracies and protocols of the requested tasks with data; without requested tasks, of those in the cache"""
    missing_tasks: tuple[tuple[str, str], ...] = ()
    """requested tasks that cannot be measured, with their reasons"""
    throughput: Throughput | None = None
    """speed measurement from which the row was read; None for other rows"""
    retention: float = NAN
    """kept fraction of the decoder's weights"""
    parameters: int = 0
    """parameters of the model; 0 if unknown"""
    reason: str = ""
    """reason why there are no numbers"""
    precision: str = ""
    """number type of the model"""
    versions: dict[str, Any] = field(default_factory=dict)
    """versions of the packages and the commit that computed the result"""

    @property
    def stamps(self) -> dict[str, Stamp]:
        """Return the protocol of every perplexity and accuracy, by column."""
        texts = {value.column: value.stamp for value in self.values if value.stamp is not None}
        return texts | {f"accuracy:{item.task}": stamp for item, stamp in self.accuracies}

    @property
    def filled(self) -> bool:
        """Return True if the row has numbers."""
        return bool(self.values)


_INPUT_FIELDS = (
    *("primary", "auxiliary", "substitute", "device", "dtype", "calibration", "repair", "scales", "recovery"),
    *("choice", "evaluation", "baselines", "retention"),
)
"""fields of a study that determine the digests of its inputs, or whether they can be read

Retention is one of them, because reading the inputs fails for a retention that the model cannot reach.
"""


@dataclass(frozen=True, slots=True)
class Run:
    """A run and its record."""

    name: str
    study: Study
    record: dict[str, Any]
    """content of run.json"""


@dataclass(frozen=True, slots=True)
class Reason:
    """The reason why a result is missing."""

    run: str
    """name of the run whose record has the reason"""
    text: str


class ResultLookup:
    """Finds the numbers of rows in a cache, whichever run computed them."""

    def __init__(self, store: Store) -> None:
        """Read the current records of all runs."""
        self.store = store
        self._inputs: dict[Study, tuple[Inputs, dict[str, str]] | None] = {}
        self._results: dict[Study, Results | None] = {}
        self._runs_by_key: dict[str, list[Run]] = {}
        self._reasons: dict[tuple[str, int], Reason] = {}
        self._latest: dict[Study, Run] = {}
        for run in _read_runs(store):
            self._latest.setdefault(shared_study(run.study), run)
            for entry in run.record["stages"].values():
                self._runs_by_key.setdefault(entry.get("key", ""), []).append(run)
            # failures are stored by batch size, because smaller batches may fit in memory
            batch = run.study.calibration.batch
            for entry in run.record.get("unavailable", {}).values():
                self._reasons.setdefault((entry["key"], batch), Reason(run.name, entry["reason"]))

    def answer(self, row: Row) -> Answer | None:
        """Return the numbers of a row, or the reason why it has none; None if its study still has to run."""
        results = self._open_results(row.study)
        if results is None:
            return None
        try:
            return self._read_answer(row, results)
        except StoreError:
            return None
        except MethodError as error:
            return Answer(row, reason=str(error))

    def failure(self, row: Row) -> str:
        """Return the error of the latest run of a row's study if it failed, else an empty string.

        A run of the same study with other methods counts as well.
        """
        run = self._latest.get(shared_study(row.study))
        if run is None or run.record.get("state") != "failed":
            return ""
        return str(run.record.get("error") or "the run failed without a reason")

    def _read_answer(self, row: Row, results: Results) -> Answer | None:
        """Read the numbers of a row from stored results; None if some are missing without a recorded reason."""
        reasons = {task: self._find_reason(stage, results) for task, stage in _accuracy_stages(row, results).items()}
        refused_tasks = {task: reason.text for task, reason in reasons.items() if reason is not None}
        stages = self._list_stages(row, results, refused_tasks)
        values = self._read_values(row, results, stages) if all(map(results.holds, stages)) else []
        if not values:
            return self._find_refusal(row, results, stages)
        main_stage, reading = stages[0], self._read_inputs(row.study)
        missing_tasks = reading[1] if reading else {}
        retention, parameters = (NAN, 0) if row.reads in FIGURES else _read_size(row, results)
        return Answer(
            row=row,
            run=next((run.name for run in self._runs_by_key.get(main_stage.key, ())), ""),
            values=tuple(values),
            accuracies=tuple(self._read_accuracies(row, results, main_stage)),
            missing_tasks=tuple((missing_tasks | refused_tasks).items()),
            throughput=results.record(main_stage) if row.reads == "speed" else None,
            retention=retention,
            parameters=parameters,
            precision=results.graph.inputs.precision,
            versions=results.details(main_stage),
        )

    def _list_stages(self, row: Row, results: Results, refused_tasks: Container[str]) -> list[Stage[Any]]:
        """Return the stages that a row is read from; the first is the main one."""
        if row.reads != "perplexity":
            return list(figures.sources(row, results.graph))
        texts = [perplexity(results.graph, row.method, text) for text in row.study.evaluation.texts]
        return texts + [stage for task, stage in _accuracy_stages(row, results).items() if task not in refused_tasks]

    def _read_values(self, row: Row, results: Results, stages: list[Stage[Any]]) -> list[Value]:
        """Return every number of a row except accuracies; empty if its method was not measured."""
        if row.reads == "perplexity":
            return [_read_perplexity(results, row.method, text) for text in row.study.evaluation.texts]
        measures = figures.figure_measures(row, list(map(results.record, stages)))
        return [Value(name, "", value, error) for name, value, error in measures]

    def _read_accuracies(self, row: Row, results: Results, main_stage: Stage[Any]) -> list[tuple[Accuracy, Stamp]]:
        """Return the accuracies of the study's tasks; if it has none, those of a run with the same perplexity."""
        if row.reads != "perplexity":
            return []
        if row.study.evaluation.tasks:
            return _read_task_accuracies(row, results)
        for run in self._runs_by_key.get(main_stage.key, ()):
            names = (*TASKS, "few_shot", "chat_template", "generated_tokens")
            evaluation = {f"evaluation.{name}": getattr(run.study.evaluation, name) for name in names}
            study = row.study.with_settings(evaluation)
            other_results = self._open_results(study) if study.evaluation.tasks else None
            if other_results is not None:
                return _read_task_accuracies(row, other_results)
        return []

    def _find_refusal(self, row: Row, results: Results, stages: list[Stage[Any]]) -> Answer | None:
        """Return an answer with the recorded reason why a row has no numbers, or None if no run recorded a reason."""
        needed, method = list(stages), results.graph.methods[row.method]
        if row.reads == "speed" and method.decision != "none":
            needed.append(masks(results.graph, method.masks))
        required = order(needed) if self._reasons else ()
        reason = next(filter(None, (self._find_reason(stage, results) for stage in required)), None)
        return None if reason is None else Answer(row, reason.run, reason=reason.text)

    def _open_results(self, study: Study) -> Results | None:
        """Return the results of a study, or None if its inputs cannot be read here."""
        if study not in self._results:
            self._results[study] = None
            reading = self._read_inputs(study)
            # without its plug-in, a study has no results
            with contextlib.suppress(SettingsError):
                if reading is not None:
                    inputs = replace(reading[0], plugins=plugin_records(study))
                    reasons = self._reasons.items()
                    failures = {key: reason.text for (key, _), reason in reasons if key not in self._runs_by_key}
                    self._results[study] = Results(self.store, Graph(study, inputs, failures=failures))
        return self._results[study]

    def _find_reason(self, stage: Stage[Any], results: Results) -> Reason | None:
        """Return the recorded reason for a missing result, unless a later run computed the result."""
        reason = self._reasons.get((stage.key, results.graph.study.calibration.batch))
        return reason if reason is not None and not results.holds(stage) else None

    def _read_inputs(self, study: Study) -> tuple[Inputs, dict[str, str]] | None:
        """Return the digests of a study's inputs and the reasons for missing tasks.

        None if the inputs cannot be read.
        """
        # these methods are kept, because they read additional texts or prune another kind of units
        special = RECOMMENDED, "gates_scaled", "llm_pruner", *EXPERT_METHODS
        methods = tuple(name for name in special if name in study.involved)
        # the other settings change no digest
        input_study = Study(study.model, **{name: getattr(study, name) for name in _INPUT_FIELDS})
        input_study = replace(input_study, methods=methods) if methods else input_study
        if input_study not in self._inputs:
            missing_tasks: dict[str, str] = {}
            self._inputs[input_study] = None
            with contextlib.suppress(GpruneError):
                self._inputs[input_study] = (
                    read_inputs(input_study, missing_tasks, download=False, store=self.store),
                    missing_tasks,
                )
        return self._inputs[input_study]


def _accuracy_stages(row: Row, results: Results) -> dict[str, Stage[Any]]:
    """Return the accuracy stages of a row's method on the tasks with data, by task."""
    return {task: accuracy(results.graph, row.method, task) for task in results.graph.inputs.tasks}


def _read_task_accuracies(row: Row, results: Results) -> list[tuple[Accuracy, Stamp]]:
    stages = [stage for stage in _accuracy_stages(row, results).values() if results.holds(stage)]
    records, precision = [(results.record(stage), stage) for stage in stages], results.graph.inputs.precision
    return [(item, of_accuracy(item, results.details(stage), precision=precision)) for item, stage in records]


def _read_perplexity(results: Results, method: str, text: str) -> Value:
    """Return a stored perplexity with its protocol."""
    stage, graph = perplexity(results.graph, method, text), results.graph
    record = results.record(stage)
    stamp = of_perplexity(record, results.details(stage), graph.inputs.precision, graph.study.evaluation.windows)
    value, error = float(record.perplexity), float(record.standard_error)
    windows, length = int(record.windows), int(record.length)
    return Value("perplexity", text, value, error, windows, length, stamp=stamp, losses=record.losses)


def _read_size(row: Row, results: Results) -> tuple[float, int]:
    """Return the kept fraction of the decoder's weights and the model's parameters, NaN and 0 if unknown."""
    try:
        summary = sizes(results, [row.method])
    except StoreError:
        return NAN, 0
    return float(summary["retention"][row.method]), int(summary["parameters"][row.method])


def _read_runs(store: Store) -> Iterator[Run]:
    """Yield the runs of a cache that this version can read, the latest first."""
    for name, record in runs.read_all(store):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            yield Run(name, from_dict(record["study"]), record)
