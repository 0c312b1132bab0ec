"""Runs made by hand: the records that a finished study leaves, without a model.

As a script it is the worker of a job: it reads the job's study, finishes it, and behaves as `behaviour.json`
in the cache says of studies by name (`fail`, `hold`).
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gprune.plan import run_name

from gprune.records import Agreement, Partition, Perplexity, PruningMasks, RankDrift, Throughput
from gprune.reproduction.scale import Scale, choose
from gprune.reproduction.series import Series, Task
from gprune.store import Store
from gprune.study import Study, from_file

LAYERS, NEURONS, MODULES = 2, 40, 5
TITLES = (
    "A-B against A-C",
    "A-B against B-C",
    "A-C against B-C",
    "control: A-B, another seed",
    "control: initialization only, A-B against A-C",
)
TOKEN_TITLES = (
    "swap: A-B against B-A",
    "FANG: A against B",
    "FANG: A against C",
    "FANG: B against C",
    "control: FANG, another seed",
)
_NOT_TOLD = ("methods", "device", "name", "group", "substitute", "evaluation")


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


def finish(
    store: Store,
    task: Task | Study,
    *,
    state: str = "done",
    error: str | None = None,
    unavailable: dict[str, str] | None = None,
    accuracy: dict[str, Any] | None = None,
    missing_tasks: dict[str, str] | None = None,
    value: Callable[[Study, str, str], float] = perplexity_of,
    provenance: dict[str, Any] | None = None,
    formulas: dict[str, int] | None = None,
) -> str:
    """Leaves what a run of a study leaves; every run has records of its own. Returns the run's name."""
    study = task.study if isinstance(task, Task) else task
    run, stages = run_name(study), {}
    out = unavailable or {}
    measured = [name for name in study.methods if name not in out]
    absent = missing_tasks or {}
    if accuracy is None and study.evaluation.tasks:
        asked = [task for task in study.evaluation.tasks if task not in absent]
        accuracy = {name: {task: accuracy_of(study, name, task) for task in asked} for name in measured}

    def put(name: str, stage: str, record: object) -> None:
        key = hashlib.sha256(f"{run} {name}".encode()).hexdigest()[:32]
        store.put(stage, key, record)
        stages[name] = {"stage": stage, "key": key, "seconds": 0.1, "reused": False}

    if state == "done":
        for method in measured:
            for index, text in enumerate(study.evaluation.texts):
                number = value(study, method, text)
                losses = np.array([np.log(number) - 0.1, np.log(number) + 0.1])
                record = Perplexity(text, "128", 128, 2, number, 0.5, losses)
                put(f"perplexity.{method}.{index}", "perplexity", record)
        for name, stage, record in structure(study):
            put(name, stage, record)
        if study.evaluation.speed != "none":
            put("speed", "speed", throughput_of(study, measured))
    result = {
        "retention": {name: 1.0 if name == "dense" else study.retention - 0.001 for name in measured},
        "parameters": {name: 1000 + len(name) for name in measured},
        "perplexity": {name: {t: value(study, name, t) for t in study.evaluation.texts} for name in measured},
        "unavailable": out,
    }
    result |= {"accuracy": accuracy, "unavailable_tasks": absent} if accuracy is not None else {}
    record = {"run": run, "study": study.to_dict(), "state": state, "error": error, "stages": stages}
    record |= {"result": result if state == "done" else None, "provenance": provenance or {}}
    store.save_run(run, record | ({"formulas": formulas} if formulas else {}))
    return run


def structure(study: Study) -> list[tuple[str, str, object]]:
    """Drift, modules, masks and agreement; the drift of neuron i of N is i / (N - 1)."""
    magnitude = np.tile(np.arange(NEURONS) / (NEURONS - 1), (LAYERS, 1))
    rho = {name: np.full(LAYERS, value) for name, value in CORRELATIONS.items()}
    drift = RankDrift(magnitude, magnitude, magnitude, magnitude / 4, magnitude / 5, magnitude / 2, **rho)
    labels = np.tile(np.repeat(np.arange(MODULES), NEURONS // MODULES), (LAYERS, 1)).astype(np.int32)
    counts, nan = np.full(LAYERS, MODULES, dtype=np.int32), np.full(2, np.nan)
    empty = np.zeros((LAYERS, 1)), nan, nan, np.zeros((LAYERS, 1, 5))
    partition = Partition("refined", "magnitude", labels, counts, counts, *empty)
    made: list[tuple[str, str, object]] = [("drift", "drift", drift), ("partition", "partition", partition)]
    for name, step in (("gprune", 2), ("flap", 4)):
        ffn = np.zeros((LAYERS, NEURONS), dtype=bool)
        ffn[:, ::step] = True
        made.append((f"masks_{name}", "masks", PruningMasks(name, ffn, np.ones((LAYERS, 2), bool), 0.5, 0.5)))
    if study.substitute:
        titles = TITLES + (TOKEN_TITLES if study.metric == "twflap" else ())
        ari = np.array([[0.1 * i, 0.1 * i + 0.2] for i in range(len(titles))])
        made.append(("agreement", "agreement", Agreement(titles, ari, ari + 0.05)))
    return made


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
