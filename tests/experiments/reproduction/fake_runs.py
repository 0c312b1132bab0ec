"""Runs made by hand: the results that a finished study leaves at its own keys, without a model.

As a script it is the worker of a job, see `pretend_worker`.
"""

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pretend_worker
from made_runs import MAKERS, Makers, Task, an_accuracy, leave

from gprune.experiments.reproduction import tables, work
from gprune.experiments.reproduction.assembly import Assembled, assemble
from gprune.experiments.reproduction.grid import Series, TableStudy
from gprune.experiments.reproduction.lookup import ResultLookup
from gprune.experiments.reproduction.scale import Scale, choose
from gprune.pipeline.record import RunRecord
from gprune.pipeline.stages import Graph, Results
from gprune.pipeline.stages.inputs import read_inputs
from gprune.pipeline.stages.rasa import COMPARISONS
from gprune.records import ModelShape, PartitionAgreement, Perplexity, PruningMasks, RankDrift, Throughput
from gprune.store import Store
from gprune.study import Study

SHAPE, MODULES = ModelShape(layers=2, neurons=40, heads=2, kv_heads=2, head_width=8, hidden=16), 5
_NOT_TOLD = ("methods", "device", "name", "group", "substitute", "evaluation")
Accuracies = Mapping[str, Mapping[str, Mapping[str, Any]]]


def a_series(**changes: Any) -> Series:
    return Series("demo", a_scale(**changes))


def a_scale(**changes: Any) -> Scale:
    """A demo scale; the paper's own rows alone, unless controls are asked for."""
    return choose("demo", "demo", {"controls": False} | changes)


def perplexity_of(study: Study, method: str, text: str) -> float:
    """A number that is the same wherever it is asked for, and differs between studies, methods and texts."""
    values = study.to_dict() | dict.fromkeys(_NOT_TOLD, "")
    words = json.dumps([values, method, text], sort_keys=True)
    return 10.0 + int(hashlib.sha256(words.encode()).hexdigest()[:6], 16) / 2**20


def accuracy_of(study: Study, method: str, task: str) -> dict[str, Any]:
    """Accuracies that differ between studies, methods and tasks; acc_norm is missing in every second task."""
    acc = (perplexity_of(study, method, task) - 10.0) / 16.0
    norm = 1.0 - acc if study.evaluation.tasks.index(task) % 2 else None
    return {"acc": acc, "acc_norm": norm, "chance": 0.25}


def throughput_of(study: Study, methods: Sequence[str]) -> Throughput:
    """The dense model decodes 100 tokens a second, the method at place i 10 * i more; a GPU adds graphs."""
    rows = []
    for number, method in enumerate(methods):
        for mode in ("eager",) if study.evaluation.speed == "cpu" else ("eager", "graph"):
            for phase in ("prefill", "decode", "whole") if mode == "eager" else ("decode", "whole"):
                speed = (100.0 + 10.0 * number) * (2.0 if mode == "graph" else 1.0)
                row = {"model": method, "parameters": 1000, "phase": phase, "mode": mode}
                row |= {"tokens_per_second": speed, "spread": 1.5, "ratio": speed / 100, "ratio_spread": 0.01}
                rows.append(row | {"peak_bytes": 3 * 2**20, "memory": "allocated", "seconds": [0.5, 0.25]})
    return Throughput("float32 on cpu, batch 1", "a processor, 2 threads", tuple(rows))


def opened(
    store: Store, study: Study, changed: Mapping[str, Any] | None = None, missing_tasks: dict[str, str] | None = None
) -> Results:
    """The results of a study as it is read on this machine, with some digests changed."""
    results = read_inputs(study, missing_tasks, download=False)
    for name, value in (changed or {}).items():
        values = getattr(results, name) | value if isinstance(value, dict) else value
        results = replace(results, **{name: values})
    return Results(store, Graph(study, results))


def finish(
    store: Store,
    entry: TableStudy | Study,
    *,
    state: str = "done",
    accuracy: Accuracies | None = None,
    value: Callable[[Study, str, str], float] = perplexity_of,
    changed: Mapping[str, Any] | None = None,
    **how: Any,
) -> str:
    """Leaves what a whole run of a study leaves, where tables read it, and gives the run's name.

    Args:
        store: where to.
        entry: the study, or an entry with its study.
        state: how the run ended; only one that is done leaves results.
        accuracy: figures by method and task; where it is left out, those of `accuracy_of`.
        value: the perplexities.
        changed: digests of what was read that are not those of today.
        how: see `leave`.
    """
    study = entry.study if isinstance(entry, TableStudy) else entry
    missing_tasks: dict[str, str] = {}
    results = opened(store, study, changed, missing_tasks)
    record = RunRecord(results, "all", {}, missing_tasks, lambda *_: None)

    def perplexity(task: Task) -> Perplexity:
        number = value(study, task.stage.id.method, task.asked)
        losses = np.array([np.log(number) - 0.1, np.log(number) + 0.1])
        return Perplexity(task.asked, "128", 128, 2, number, 0.5, losses)

    def answered(task: Task) -> Any:
        method, name = task.stage.id.method, task.asked
        accuracies = accuracy_of(study, method, name) if accuracy is None else accuracy.get(method, {}).get(name)
        details = {"limit": study.evaluation.limit or 0, "version": "1, lm-eval 0.4"}
        return an_accuracy(name, **({"chance": math.nan} | details | dict(accuracies))) if accuracies else None

    makers = STRUCTURE | {"perplexity": perplexity, "accuracy": answered}
    return leave(record, makers, SHAPE, MODULES, present="all" if state == "done" else (), state=state, **how)


def run_tables(store: Store, *names: str, series: Series | None = None, **how: Any) -> None:
    """Finish every study of some tables; `how` as in `finish`."""
    for entry in work.needed_studies(tables.choose_tables(names), series or a_series()):
        finish(store, entry, **how)


def assemble_table(store: Store, name: str, **changes: Any) -> Assembled:
    return assemble(tables.TABLES[name], a_series(**changes), ResultLookup(store))


def _drift(task: Task) -> RankDrift:
    """The drift of neuron i of N is i / (N - 1)."""
    magnitude = np.tile(np.linspace(0, 1, task.shape.neurons), (task.shape.layers, 1))
    rho = {name: np.full(task.shape.layers, value) for name, value in CORRELATIONS.items()}
    return RankDrift(magnitude, magnitude, magnitude, magnitude / 4, magnitude / 5, magnitude / 2, **rho)


def _partition(task: Task) -> Any:
    """Modules of neurons that follow each other."""
    labels = np.arange(task.shape.neurons, dtype=np.int32) * task.modules // task.shape.neurons
    return replace(MAKERS["partition"](task), labels=np.tile(labels, (task.shape.layers, 1)))


def _masks(task: Task) -> PruningMasks:
    """FLAP keeps every fourth neuron, any other method every second."""
    ffn = np.zeros((task.shape.layers, task.shape.neurons), dtype=bool)
    ffn[:, :: 4 if task.stage.id.method == "flap" else 2] = True
    heads, retention = np.ones((task.shape.layers, task.shape.kv_heads), bool), task.study.retention
    return PruningMasks(task.stage.id.method, ffn, heads, retention - 0.001, retention)


def _agreement(task: Task) -> PartitionAgreement:
    ari = 0.1 * list(COMPARISONS).index(task.stage.id.variant[0]) + np.array([0.0, 0.2])
    return PartitionAgreement(ari, ari + 0.05)


CORRELATIONS = {
    "correlation": 0.62,
    "correlation_half": 0.6,
    "correlation_primary": 0.98,
    "correlation_auxiliary": 0.97,
}
STRUCTURE: Makers = {
    **{kind: MAKERS[kind] for kind in ("shape", "size")},
    "drift": _drift,
    "partition": _partition,
    "masks": _masks,
    "agreement": _agreement,
    "speed": lambda task: throughput_of(task.study, task.able),
}


command = pretend_worker.command_of(__file__)


if __name__ == "__main__":
    pretend_worker.work("masks_gprune", finish, partial(finish, state="failed", error=pretend_worker.FAULT))
