"""A run made of random numbers in the true form, for tests of the pages; no model is needed.

What a run consists of follows from the declarations of gprune.stages; here is only what its records hold.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from views import synthetic_calibration, synthetic_measurements
from views.synthetic_calibration import Task, digest

from gprune import budget, stages
from gprune.progress import silent
from gprune.ranking import ranks
from gprune.records import Array, Learning, ModelShape, Partition, PruningMasks, UnitScores
from gprune.stages import KINDS, Graph, Inputs, Stage
from gprune.stages.inputs import from_plain, roles
from gprune.store import Store
from gprune.study import CalibrationSettings, EvaluationSettings, Study, from_dict, run_name

SMALL = ModelShape(layers=4, neurons=60, heads=4, kv_heads=2, head_width=8, hidden=16)
LARGE = ModelShape(layers=32, neurons=11008, heads=32, kv_heads=32, head_width=128, hidden=4096)


def a_study(**changes: Any) -> Study:
    """A study whose texts are known by name and cost nothing."""
    values: dict[str, Any] = {
        "model": "demo",
        "primary": "python-reference",
        "auxiliary": "science-docs",
        "substitute": "python-code",
        "name": "Synthetic",
        "calibration": CalibrationSettings(samples=32, length=16, shards=4),
        "evaluation": EvaluationSettings(texts=("python-reference", "science-docs"), windows=96),
    }
    return Study(**(values | changes))


def names(until: str = "all", study: Study | None = None) -> tuple[str, ...]:
    """The stages that a run of a study goes through until something."""
    return tuple(stage.name for stage in stages.course(Graph(study or a_study()), until, lambda _: False))


def write_run(
    root: Path,
    shape: ModelShape = SMALL,
    *,
    modules: int = 6,
    study: Study | None = None,
    stages: str | Collection[str] = "all",
    state: str = "done",
    seed: int = 0,
    unavailable: Mapping[str, str] | None = None,
    missing_tasks: Mapping[str, str] | None = None,
) -> str:
    """Writes every record of a run through the store, and its run.json.

    Args:
        root: cache folder.
        shape: sizes of the model.
        modules: modules of each layer.
        study: the study; `a_study()` by default.
        stages: what is there: all until something, or stages by name.
        state: state of the run.
        seed: runs of different seeds, shapes or modules share no result.
        unavailable: why masks could not be made, by the name under which methods use them.
        missing_tasks: why tasks of the study have no data here.

    Returns:
        Name of the run.
    """
    study = study or a_study()
    inputs = _inputs(study, missing_tasks or {}, (shape, modules, seed))
    graph, name = Graph(study, inputs), run_name(study)
    present = names(stages, study) if isinstance(stages, str) else stages
    assert set(present) <= set(names("all", study)), set(present) - set(names("all", study))
    made, left_out = _records(graph, shape, modules, unavailable or {})
    store, entries = Store(root), dict[str, Any]()
    for number, (stage, record) in enumerate(made.items()):
        if stage.name not in present:
            continue
        if KINDS[stage.kind].record is None:
            store.put_folder(stage.kind, stage.key, _checkpoint)
        else:
            store.put(stage.kind, stage.key, record)
        entries[stage.name] = {"key": stage.key, "seconds": 0.5 + number, "reused": number % 2 == 0}
    reasons = {one.name: {"key": one.key, "reason": reason} for one, reason in left_out.items()}
    values = _run_record(graph, entries, state) | {"unavailable": reasons}
    store.save_run(name, values | {"missing_tasks": dict(missing_tasks or {})})
    return name


def _inputs(study: Study, missing_tasks: Mapping[str, str], apart: object) -> Inputs:
    """Digests of made-up contents, which differ where names or `apart` differ."""
    evaluation = study.evaluation
    measured = [task for task in evaluation.tasks if task not in missing_tasks]
    return Inputs(
        model=digest("model", study.model, apart),
        tokenizer=digest("tokenizer", study.model, apart),
        precision="float32",
        calibration={role: digest("calibration", text, apart) for role, text in roles(study).items()},
        evaluation={text: digest("evaluation", text, apart) for text in evaluation.texts},
        tasks={task: digest("task", task, apart) for task in measured},
        scoring="made up" if evaluation.tasks else "",
        machine="made up" if evaluation.speed != "none" else "",
    )


def _records(
    graph: Graph, shape: ModelShape, modules: int, unavailable: Mapping[str, str]
) -> tuple[dict[Stage[Any], Any], dict[Stage[Any], str]]:
    """The record of every stage of a whole run, and why stages are left out."""
    made: dict[Stage[Any], Any] = {}
    left_out = {stages.masks(graph, name): reason for name, reason in unavailable.items()}
    for stage in stages.course(graph, "all", lambda _: False):
        reason = next((left_out[one] for one in (stage, *stages.needed(stage)) if one in left_out), "")
        if reason and not stage.optional:
            left_out[stage] = reason
            continue
        needs = stages.resolve(stage.needs, lambda need: made.get(stages.served(need, made.__contains__)))
        made[stage] = MAKERS[stage.kind](Task(stage, graph, shape, modules, needs))
    return made, left_out


def _run_record(graph: Graph, entries: dict[str, Any], state: str) -> dict[str, Any]:
    """What run.json holds."""
    study = graph.study
    texts = roles(study) | {text: text for text in study.evaluation.texts}
    whole = stages.course(graph, "all", lambda _: False)
    return {
        "run": run_name(study),
        "study": study.to_dict(),
        "state": state,
        "until": "all",
        "error": "the disk is full" if state == "failed" else None,
        "started": "2026-11-21T12:00:00+00:00",
        "updated": "2026-11-21T12:01:30+00:00",
        "seconds": 90.0,
        "expected": {stage.name: KINDS[stage.kind].seconds for stage in whole},
        "stages": entries,
        "texts": {role: f"What is known of {text}" for role, text in texts.items()},
        "provenance": {
            "gprune": "0.1.0",
            "commit": "0123456789ab",
            "uncommitted_changes": False,
            "inputs": asdict(graph.inputs),
        },
        "result": {"run": run_name(study)} if state == "done" else None,
    }


def read(root: Path, name: str) -> dict[str, Any]:
    """The record of a run as plain values."""
    values: dict[str, Any] = json.loads((root / "runs" / name / "run.json").read_text(encoding="utf-8"))
    return values


def folder_of(root: Path, name: str, declare: Callable[..., Stage[Any]], *args: Any) -> Path:
    """Where a result of a run is kept: `folder_of(root, name, stages.scores, "auxiliary")`."""
    values = read(root, name)
    graph = Graph(from_dict(values["study"]), from_plain(values["provenance"]["inputs"]))
    stage = declare(graph, *args)
    return root / stage.kind / stage.key


def exchange(root: Path, name: str, record: object, declare: Callable[..., Stage[Any]], *args: Any) -> None:
    """Puts another record in the place of a result of a run."""
    folder = folder_of(root, name, declare, *args)
    shutil.rmtree(folder)
    Store(root).put(folder.parent.name, folder.name, record)


def _by_its_formula(task: Task) -> Any:
    """What needs no model is computed as in a real run, from the records that were made before."""
    return task.stage.make(SimpleNamespace(study=task.study, progress=silent), **task.needs)


def _scores(task: Task) -> UnitScores:
    shape = task.shape
    if "tokens" not in task.needs:
        found: UnitScores = _by_its_formula(task)
        return found
    heads = task.random.gamma(2.0, size=(shape.layers, shape.kv_heads))
    channels = task.random.gamma(2.0, size=(shape.layers, shape.heads * shape.head_width))
    return UnitScores(task.stage.id.metric, task.text, np.exp(task.level()), heads, channels)


def _partition(task: Task) -> Partition:
    """Modules of equal size; a share of the neurons is elsewhere than in any other partition."""
    shape, groups = task.shape, task.stage.kind == "groups"
    count = min(2 if groups else task.modules, shape.neurons)
    share = 0.8 if groups else 0.5 if "other_seed" in task.stage.id.variant else 0.15
    labels = np.tile(np.arange(shape.neurons, dtype=np.int32) % count, (shape.layers, 1))
    for row in labels:
        moved = task.random.permutation(shape.neurons)[: round(share * shape.neurons)]
        row[moved] = row[task.random.permutation(moved)]
    counts = np.full(shape.layers, count, dtype=np.int32)
    return Partition(
        kind="functional" if groups else "refined",
        profile="magnitude",
        labels=labels,
        counts=counts,
        initial_counts=np.maximum(counts - 2, 1),
        silhouette=task.random.random((shape.layers, 5)),
        mixing=np.array([0.2, np.nan]),
        variation=np.array([0.1, np.nan]),
        history=np.zeros((shape.layers, 3, 5)),
    )


def _kept(task: Task, scores: Array) -> dict[str, Any]:
    """The better units of every layer."""
    shape, lost = task.shape, 1 - task.study.retention
    ffn = ranks(scores) >= shape.neurons * lost
    heads = ranks(task.random.random((shape.layers, shape.kv_heads))) >= shape.kv_heads * lost
    heads[:, 0] |= ~heads.any(axis=1)
    retention = budget.retention(shape, ffn, heads)
    return {"ffn": ffn, "heads": heads, "retention": retention, "target": task.study.retention}


def _learning(task: Task) -> Learning:
    steps = np.arange(40.0)
    falling = 3.5 + 2.0 * np.exp(-steps / 10)
    kept = 0.5 + 0.05 * np.exp(-steps / 8) * np.cos(steps / 3)
    return Learning(
        **_kept(task, task.needs["adapted"].scores),
        steps=np.stack([steps, steps // 20, falling, falling + 0.3, falling / 4, kept], axis=1),
        columns=("step", "epoch", "ce_primary", "ce_auxiliary", "distillation", "retention"),
        thresholds=task.random.random(task.needs["partition"].modules),
        head_thresholds=task.random.random(task.shape.layers),
    )


def _masks(task: Task) -> PruningMasks:
    if "learning" in task.needs:
        found: PruningMasks = _by_its_formula(task)
        return found
    return PruningMasks(task.stage.id.method, **_kept(task, task.level("primary") + task.noise()))


def _checkpoint(folder: Path) -> dict[str, Any]:
    (folder / "model").mkdir()
    (folder / "model" / "plan.json").write_text('{"format": "gprune-plan"}', encoding="utf-8")
    return {}


MAKERS: dict[str, Callable[[Task], Any]] = {
    **synthetic_calibration.MAKERS,
    **synthetic_measurements.MAKERS,
    **dict.fromkeys(("groups", "clusters", "partition"), _partition),
    **dict.fromkeys(("drift", "modules", "adapted", "agreement"), _by_its_formula),
    "scores": _scores,
    "learning": _learning,
    "masks": _masks,
    "checkpoint": lambda _: None,
}
"""what makes a record, by kind"""
