"""A finished run made of random numbers in the true form, for tests of the pages; no model is needed."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from gprune.plan import run_name
from views.synthetic_calibration import ROLES, calibration

from gprune import budget
from gprune.ranking import module_means, module_sizes, rank_within, ranks, spearman
from gprune.records import (
    AdaptedScores,
    Agreement,
    LearningHistory,
    ModelShape,
    ModuleStatistics,
    Partition,
    Perplexity,
    PruningMasks,
    RankDrift,
    UnitScores,
)
from gprune.reliability import adapt
from gprune.store import Store
from gprune.study import EvaluationSettings, Study

SMALL = ModelShape(layers=4, neurons=60, heads=4, kv_heads=2, head_width=8, hidden=16)
LARGE = ModelShape(layers=32, neurons=11008, heads=32, kv_heads=32, head_width=128, hidden=4096)
DRIFT_ONLY = (
    "tokens_primary",
    "tokens_auxiliary",
    "norms",
    "statistics_primary",
    "statistics_auxiliary",
    "scores_primary",
    "scores_auxiliary",
    "drift",
)
METHODS = {"dense": 40.0, "gprune": 62.0, "flap": 118.0, "flap_no_bias": 121.0, "wanda_sp": 190.0}
COMPARISONS = (
    "A-B against A-C",
    "A-B against B-C",
    "A-C against B-C",
    "control: A-B, another seed",
    "control: initialization only, A-B against A-C",
)
FANG_COMPARISONS = (
    "FANG: A against B",
    "FANG: A against C",
    "FANG: B against C",
    "control: FANG, another seed",
)
SWAP = "swap: A-B against B-A"


def a_study(**changes: Any) -> Study:
    """A study whose texts are known by name and cost nothing."""
    values: dict[str, Any] = {
        "model": "demo",
        "primary": "python-reference",
        "auxiliary": "science-docs",
        "substitute": "python-code",
        "name": "Synthetic",
        "evaluation": EvaluationSettings(texts=("python-reference", "science-docs"), windows=96),
    }
    return Study(**(values | changes))


def write_run(
    root: Path,
    shape: ModelShape = SMALL,
    *,
    modules: int = 6,
    study: Study | None = None,
    stages: tuple[str, ...] | None = None,
    state: str = "done",
    seed: int = 0,
) -> str:
    """Writes every record of a run through the store, and its run.json.

    Args:
        root: cache folder.
        shape: sizes of the model.
        modules: modules of each layer.
        study: the study; `a_study()` by default.
        stages: stages that are there; all by default.
        state: state of the run.
        seed: of the random numbers.

    Returns:
        Name of the run.
    """
    study = study or a_study()
    records = everything(shape, modules, study, np.random.default_rng(seed))
    store, entries = Store(root), {}
    for number, (name, (stage, record)) in enumerate(records.items()):
        if stages is not None and name not in stages:
            continue
        key = f"{seed:08x}{shape.layers:08x}{shape.neurons:08x}{number:08x}"
        if record is not None:
            store.put(stage, key, record)
        entries[name] = {"stage": stage, "key": key, "seconds": 0.5 + number, "reused": number % 2 == 0}
    name = run_name(study)
    store.save_run(name, run_record(name, study, shape, entries, state))
    return name


def run_record(
    name: str, study: Study, shape: ModelShape, entries: dict[str, Any], state: str
) -> dict[str, Any]:
    """What run.json holds."""
    inputs = {
        "model": "m" * 64,
        "tokenizer": "t" * 64,
        "precision": "float32",
        "calibration": {"primary": "1", "auxiliary": "2", "substitute": "3"},
        "evaluation": {text: f"e{index}" for index, text in enumerate(study.evaluation.texts)},
    }
    return {
        "run": name,
        "study": study.to_dict(),
        "state": state,
        "error": "the disk is full" if state == "failed" else None,
        "started": "2026-11-21T12:00:00+00:00",
        "updated": "2026-11-21T12:01:30+00:00",
        "seconds": 90.0,
        "stages": entries,
        "shape": asdict(shape),
        "size": {
            "parameters": shape.decoder_weights + 1000,
            "group_biases": 0,
            "neuron_biases": 0,
            "missing_biases": 2 * shape.hidden * shape.layers,
        },
        "texts": {"primary": "English prose of Python's reference"},
        "provenance": {
            "gprune": "0.1.0",
            "commit": "0123456789ab",
            "uncommitted_changes": False,
            "inputs": inputs,
        },
        "result": {"run": name} if state == "done" else None,
    }


def everything(
    shape: ModelShape, modules: int, study: Study, random: np.random.Generator
) -> dict[str, tuple[str, Any]]:
    """Store folder and record of every stage; None where no page reads it."""
    base = random.normal(size=(shape.layers, shape.neurons))
    noise = [random.normal(size=base.shape) for _ in range(6)]
    primary = _scores("flap", study.primary, shape, base + 0.8 * noise[0], random)
    auxiliary = _scores("flap", study.auxiliary, shape, base + 0.8 * noise[1], random)
    drift = _drift(primary.ffn, auxiliary.ffn, noise)
    partition = _partition(shape, modules, random)
    statistics = _statistics(primary, auxiliary, partition, random)
    adapted: AdaptedScores = adapt(primary, auxiliary, partition, statistics, study.reliability, study.seed)
    made: dict[str, tuple[str, Any]] = {
        "scores_primary": ("scores", primary),
        "scores_auxiliary": ("scores", auxiliary),
        "drift": ("drift", drift),
        "partition": ("partition", partition),
        "modules": ("modules", statistics),
        "adapted": ("adapted", adapted),
        "history": ("history", _history(partition, shape, random)),
    }
    for index, method in enumerate(("gprune", "flap", "wanda_sp")):
        masks = _masks(method, shape, primary.ffn + index * random.normal(size=base.shape), study, random)
        made[f"masks_{method}"] = ("masks", masks)
    made["checkpoint"] = ("checkpoint", None)
    for method, level in METHODS.items():
        for index, text in enumerate(study.evaluation.texts):
            made[f"perplexity.{method}.{index}"] = (
                "perplexity",
                _perplexity(text, level * (1 + index), random),
            )
    if study.substitute:
        made["agreement"] = ("agreement", _agreement(shape.layers, random))
    titles = FANG_COMPARISONS if "fang" in study.methods else ()
    titles += (SWAP,) if study.metric == "twflap" else ()
    if study.substitute and titles:
        made["agreement"] = ("agreement", _more(made["agreement"][1], titles, random))
    if study.substitute:
        scores = base + 0.8 * random.normal(size=base.shape)
        made["scores_substitute"] = ("scores", _scores("flap", study.substitute, shape, scores, random))
    made |= calibration(shape, study, base + 0.8 * noise[0], base + 0.8 * noise[1], random)
    return made | _partitions(shape, modules, study, random)


def _partitions(
    shape: ModelShape, modules: int, study: Study, random: np.random.Generator
) -> dict[str, tuple[str, Any]]:
    """What the agreement compares, in the order of its comparisons."""
    names: list[str] = []
    if study.substitute:
        names += [f"partition_{name}" for name in ("ac", "bc", "ab_other_seed")]
        names += [f"partition_{name}_initialization" for name in ("ab", "ac")]
    if study.metric == "twflap":
        names.append("partition_ba")
    made: dict[str, tuple[str, Any]] = {
        name: ("partition", _partition(shape, modules, random)) for name in names
    }
    if "fang" in study.methods:
        for role in ROLES if study.substitute else ROLES[:2]:
            made[f"groups_{role}"] = ("groups", _partition(shape, 2, random))
    return made


def _more(record: Agreement, titles: tuple[str, ...], random: np.random.Generator) -> Agreement:
    """The same agreement with further comparisons of low agreement."""
    ari = np.clip(0.15 + 0.05 * random.normal(size=(len(titles), record.ari.shape[1])), -0.1, 1)
    both = np.concatenate([record.ari, ari]), np.concatenate([record.overlap, np.clip(ari + 0.3, 0, 1)])
    return Agreement(record.comparisons + titles, *both)


def _scores(
    metric: str, text: str, shape: ModelShape, latent: np.ndarray, random: np.random.Generator
) -> UnitScores:
    growth = 10.0 ** np.linspace(0, 2, shape.layers)[:, None]
    heads = random.gamma(2.0, size=(shape.layers, shape.kv_heads))
    channels = random.gamma(2.0, size=(shape.layers, shape.heads * shape.head_width))
    return UnitScores(metric, text, growth * np.exp(latent), heads, channels)


def _drift(primary: np.ndarray, auxiliary: np.ndarray, noise: list[np.ndarray]) -> RankDrift:
    def half(scores: np.ndarray, index: int) -> np.ndarray:
        return np.log(scores) + 0.05 * noise[index]

    halves = [half(primary, 2), half(primary, 3), half(auxiliary, 4), half(auxiliary, 5)]
    signed = _signed(primary, auxiliary)
    return RankDrift(
        magnitude=np.abs(signed),
        signed=signed,
        scaled=signed,
        resample_primary=np.abs(_signed(halves[0], halves[1])),
        resample_auxiliary=np.abs(_signed(halves[2], halves[3])),
        half=np.abs(_signed(halves[0], halves[2])),
        correlation=spearman(primary, auxiliary),
        correlation_half=spearman(halves[0], halves[2]),
        correlation_primary=spearman(halves[0], halves[1]),
        correlation_auxiliary=spearman(halves[2], halves[3]),
    )


def _signed(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return (ranks(first) - ranks(second)) / max(first.shape[1] - 1, 1)


def _partition(shape: ModelShape, modules: int, random: np.random.Generator) -> Partition:
    count = min(modules, shape.neurons)
    labels = np.stack([random.permutation(np.arange(shape.neurons) % count) for _ in range(shape.layers)])
    counts = np.full(shape.layers, count, dtype=np.int32)
    return Partition(
        kind="refined",
        profile="magnitude",
        labels=labels.astype(np.int32),
        counts=counts,
        initial_counts=np.maximum(counts - 2, 1),
        silhouette=random.random((shape.layers, 5)),
        mixing=np.array([0.2, np.nan]),
        variation=np.array([0.1, np.nan]),
        history=np.zeros((shape.layers, 3, 5)),
    )


def _statistics(
    primary: UnitScores, auxiliary: UnitScores, partition: Partition, random: np.random.Generator
) -> ModuleStatistics:
    pairs = zip(primary.ffn, auxiliary.ffn, partition.labels, strict=True)
    moved = [
        np.abs(rank_within(a, labels) - rank_within(b, labels))
        / np.maximum(module_sizes(labels)[labels] - 1, 1)
        for a, b, labels in pairs
    ]
    labels = partition.global_labels.ravel()
    return ModuleStatistics(
        drift=module_means(np.concatenate(moved), labels, partition.modules),
        score=module_means(primary.ffn.ravel(), labels, partition.modules),
        size=np.bincount(labels, minlength=partition.modules),
        layer=partition.module_layer,
        u_primary=random.random(partition.modules) * 0.1,
        u_auxiliary=random.random(partition.modules) * 0.1,
    )


def _masks(
    method: str, shape: ModelShape, scores: np.ndarray, study: Study, random: np.random.Generator
) -> PruningMasks:
    ffn = ranks(scores) >= shape.neurons * (1 - study.retention)
    heads = ranks(random.random((shape.layers, shape.kv_heads))) >= shape.kv_heads * (1 - study.retention)
    heads[:, 0] |= ~heads.any(axis=1)
    return PruningMasks(method, ffn, heads, budget.retention(shape, ffn, heads), study.retention)


def _history(partition: Partition, shape: ModelShape, random: np.random.Generator) -> LearningHistory:
    steps = np.arange(40.0)
    falling = 3.5 + 2.0 * np.exp(-steps / 10)
    columns = ("step", "epoch", "ce_primary", "ce_auxiliary", "distillation", "retention")
    kept = 0.5 + 0.05 * np.exp(-steps / 8) * np.cos(steps / 3)
    values = np.stack([steps, steps // 20, falling, falling + 0.3, falling / 4, kept], axis=1)
    thresholds = random.random(partition.modules)
    return LearningHistory(values, columns, thresholds, random.random(shape.layers))


def _perplexity(text: str, level: float, random: np.random.Generator) -> Perplexity:
    losses = np.log(level) + 0.4 * random.normal(size=96)
    mean, error = float(np.exp(losses.mean())), float(losses.std(ddof=1) / np.sqrt(len(losses)))
    return Perplexity(text, "128", 128, len(losses), mean, mean * error, losses)


def _agreement(layers: int, random: np.random.Generator) -> Agreement:
    centre = np.array([0.55, 0.5, 0.52, 0.7, 0.6])[:, None]
    ari = np.clip(centre + 0.1 * random.normal(size=(5, layers)), -0.1, 1)
    return Agreement(COMPARISONS, ari, np.clip(ari + 0.15, 0, 1))


def read(root: Path, name: str) -> dict[str, Any]:
    """The record of a run as plain values."""
    values: dict[str, Any] = json.loads((root / "runs" / name / "run.json").read_text(encoding="utf-8"))
    return values
