"""Runs made by hand: the results that a finished study leaves at its own keys, without a model.

As a script it is the worker of a job: it reads the job's study, finishes it, and behaves as `behaviour.json`
in the cache says of studies by name (`fail`, `hold`).
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gprune import stages
from gprune.comparisons import COMPARISONS
from gprune.methods import METHODS
from gprune.pipeline import provenance
from gprune.pipeline.record import RunRecord
from gprune.records import (
    Accuracy,
    ModelShape,
    ModelSize,
    Partition,
    PartitionAgreement,
    Perplexity,
    PruningMasks,
    RankDrift,
    Throughput,
)
from gprune.reproduction.scale import Scale, choose
from gprune.reproduction.series import Errand, Series
from gprune.stages import Graph, Results, Stage
from gprune.stages.course import wanted
from gprune.stages.inputs import read
from gprune.store import Store
from gprune.study import Study, from_file

LAYERS, NEURONS, MODULES = 2, 40, 5
SHAPE = ModelShape(layers=LAYERS, neurons=NEURONS, heads=2, kv_heads=2, head_width=8, hidden=16)
SIZE = ModelSize(parameters=10_000, group_biases=0, neuron_biases=0, missing_biases=4)
_NOT_TOLD = ("methods", "device", "name", "group", "substitute", "evaluation")
Accuracies = Mapping[str, Mapping[str, Mapping[str, Any]]]


def a_series(**changes: Any) -> Series:
    return Series("demo", a_scale(**changes))


def a_scale(**changes: Any) -> Scale:
    return choose("demo", "demo", changes)


def perplexity_of(study: Study, method: str, text: str) -> float:
    """A number that is the same wherever it is asked for, and differs between studies, methods and texts."""
    values = study.to_dict() | dict.fromkeys(_NOT_TOLD, "")
    words = json.dumps([values, method, text], sort_keys=True)
    return 10.0 + int(hashlib.sha256(words.encode()).hexdigest()[:6], 16) / 2**20


def accuracy_of(study: Study, method: str, task: str) -> dict[str, Any]:
    """Accuracies that differ between studies, methods and tasks; acc_norm is missing in every second task."""
    acc = (perplexity_of(study, method, task) - 10.0) / 16.0
    norm = 1.0 - acc if study.evaluation.tasks.index(task) % 2 else None
    return {
        "acc": acc,
        "acc_norm": norm,
        "acc_error": 0.03,
        "acc_norm_error": None if norm is None else 0.04,
    } | {
        "samples": study.evaluation.limit or 100,
        "chance": 0.25,
        "version": "1, lm-eval 0.4",
    }


def throughput_of(study: Study, methods: Sequence[str]) -> Throughput:
    """The dense model decodes 100 tokens a second, the method at place i 10 * i more; a GPU adds graphs."""
    rows = []
    for place, method in enumerate(methods):
        for mode in ("eager",) if study.evaluation.speed == "cpu" else ("eager", "graph"):
            for phase in ("prefill", "decode", "whole") if mode == "eager" else ("decode", "whole"):
                speed = (100.0 + 10.0 * place) * (2.0 if mode == "graph" else 1.0)
                row = {"model": method, "parameters": 1000, "phase": phase, "mode": mode}
                row |= {"tokens_per_second": speed, "spread": 1.5, "ratio": speed / 100, "ratio_spread": 0.01}
                rows.append(row | {"peak_bytes": 3 * 2**20, "memory": "allocated", "seconds": [0.5, 0.25]})
    return Throughput("float32 on cpu, batch 1", "a processor, 2 threads", tuple(rows))


def opened(
    store: Store,
    study: Study,
    changed: Mapping[str, Any] | None = None,
    missing_tasks: dict[str, str] | None = None,
) -> Results:
    """The results of a study as it is read on this machine, with some digests changed."""
    found = read(study, missing_tasks, download=False)
    for name, value in (changed or {}).items():
        whole = getattr(found, name) | value if isinstance(value, dict) else value
        found = replace(found, **{name: whole})
    return Results(store, Graph(study, found))


def finish(
    store: Store,
    errand: Errand | Study,
    *,
    state: str = "done",
    error: str | None = None,
    unavailable: Mapping[str, str] | None = None,
    accuracy: Accuracies | None = None,
    value: Callable[[Study, str, str], float] = perplexity_of,
    changed: Mapping[str, Any] | None = None,
) -> str:
    """Leaves what a whole run of a study leaves, at the keys of its graph.

    Args:
        store: where to.
        errand: the study, or an errand with its study.
        state: how the run ended; only one that is done leaves results.
        error: why it failed.
        unavailable: why methods cannot run, by method.
        accuracy: figures by method and task; where it is left out, those of `accuracy_of`.
        value: the perplexities.
        changed: digests of what was read that are not those of today.

    Returns:
        The run's name.
    """
    study = errand.study if isinstance(errand, Errand) else errand
    missing_tasks: dict[str, str] = {}
    results = opened(store, study, changed, missing_tasks)
    record = RunRecord(results, "all", {}, missing_tasks, lambda *_: None)
    out = {METHODS[name].masks: reason for name, reason in (unavailable or {}).items()}
    able = [name for name in study.methods if METHODS[name].masks not in out]

    def made(stage: Stage[Any]) -> object | None:
        if stage.kind == "perplexity":
            text = study.evaluation.texts[stage.id.item or 0]
            number = value(study, stage.id.method, text)
            losses = np.array([np.log(number) - 0.1, np.log(number) + 0.1])
            return Perplexity(text, "128", 128, 2, number, 0.5, losses)
        if stage.kind == "accuracy":
            task = study.evaluation.tasks[stage.id.item or 0]
            if accuracy is None:
                return _accuracy(study, task, accuracy_of(study, stage.id.method, task))
            values = accuracy.get(stage.id.method, {}).get(task)
            return _accuracy(study, task, values) if values else None
        return throughput_of(study, able) if stage.kind == "speed" else structure(study, stage)

    left_out = record.unavailable
    for stage in [stages.shape(results.graph), *wanted(results.graph)] if state == "done" else ():
        lacking = next((left_out[need] for need in stages.needed(stage) if need in left_out), None)
        reason = out.get(stage.id.method) if stage.kind == "masks" else lacking
        if reason is not None and not stage.optional:
            left_out[stage] = reason
            continue
        found = made(stage)
        if found is not None:
            store.put(stage.kind, stage.key, found, {"seconds": 0.1, **provenance.versions()})
            record.stages[stage.name] = {"key": stage.key, "seconds": 0.1, "reused": False}
    record.save(state, error=error)
    return record.name


def _accuracy(study: Study, task: str, values: Mapping[str, Any]) -> Accuracy:
    names = ("acc", "acc_norm", "acc_error", "acc_norm_error", "chance")
    numbers = {name: math.nan if values.get(name) is None else values[name] for name in names}
    samples, version = values.get("samples", 0), values.get("version", "")
    limit = study.evaluation.limit or 0
    return Accuracy(task=task, samples=samples, limit=limit, version=version, data="", **numbers)


def structure(study: Study, stage: Stage[Any]) -> object | None:
    """Drift, modules, masks and agreement; the drift of neuron i of N is i / (N - 1)."""
    if stage.kind in ("shape", "size"):
        return SHAPE if stage.kind == "shape" else SIZE
    if stage.kind == "drift":
        magnitude = np.tile(np.arange(NEURONS) / (NEURONS - 1), (LAYERS, 1))
        rho = {name: np.full(LAYERS, value) for name, value in CORRELATIONS.items()}
        return RankDrift(magnitude, magnitude, magnitude, magnitude / 4, magnitude / 5, magnitude / 2, **rho)
    if stage.kind == "partition":
        labels = np.tile(np.repeat(np.arange(MODULES), NEURONS // MODULES), (LAYERS, 1)).astype(np.int32)
        counts, nan = np.full(LAYERS, MODULES, dtype=np.int32), np.full(2, np.nan)
        empty = np.zeros((LAYERS, 1)), nan, nan, np.zeros((LAYERS, 1, 5))
        return Partition("refined", "magnitude", labels, counts, counts, *empty)
    if stage.kind == "masks":
        ffn = np.zeros((LAYERS, NEURONS), dtype=bool)
        ffn[:, :: 4 if stage.id.method == "flap" else 2] = True
        heads, kept = np.ones((LAYERS, 2), bool), study.retention - 0.001
        return PruningMasks(stage.id.method, ffn, heads, kept, study.retention)
    if stage.kind == "agreement":
        place = list(COMPARISONS).index(stage.id.variant[0])
        ari = np.array([0.1 * place, 0.1 * place + 0.2])
        return PartitionAgreement(ari, ari + 0.05)
    return None


CORRELATIONS = {
    "correlation": 0.62,
    "correlation_half": 0.6,
    "correlation_primary": 0.98,
    "correlation_auxiliary": 0.97,
}


def command(folder: Path, arguments: Sequence[str]) -> list[str]:
    """The argument list of a worker that only pretends."""
    return [sys.executable, str(Path(__file__).resolve()), str(folder), *arguments]


def main(folder: Path) -> None:
    from gprune.errors import CorpusError
    from gprune.jobs import JobReporter

    study, cache = from_file(folder / "study.json"), folder.parents[1]
    behaviours = cache / "behaviour.json"
    behaviour = json.loads(behaviours.read_text()).get(study.name, "") if behaviours.exists() else ""
    with JobReporter(folder) as report:
        report("masks_gprune", 1, 2, "learning")
        while behaviour == "hold" and not (cache / "go").exists():
            report("masks_gprune", 1, 2, "holding")
            time.sleep(0.05)
        if behaviour == "fail":
            finish(Store(cache), study, state="failed", error="the text 'x' is empty: choose another")
            raise CorpusError("the text 'x' is empty: choose another")
        report.finish({}, finish(Store(cache), study))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
