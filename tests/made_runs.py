"""Runs made by hand: a record at the key of every result of a study, without a model.

What a run consists of follows from the declarations of gprune.pipeline.stages. What its records hold is said
by makers, one a kind: here are those of random numbers in the true form, for all that is not measured.
"""

import atexit
import functools
import hashlib
import json
import math
import shutil
import tempfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from gprune import records
from gprune.pipeline import stages
from gprune.pipeline.record import RunRecord
from gprune.pipeline.stages import KINDS, Graph, Stage, execution_plan
from gprune.pipeline.stages.inputs import text_of
from gprune.pruning.ranking import ranks
from gprune.pruning.sparsity.rounding import RankedUnits, exact_masks
from gprune.records import Array, budget
from gprune.store import Store, provenance
from gprune.study import Study
from gprune.study.methods import METHODS
from gprune.system.files import temporary_path
from gprune.system.progress import silent


def digest(*parts: object) -> str:
    """What stands for the content of a model or a text."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()


@dataclass(frozen=True)
class Task:
    """A record to be made."""

    stage: Stage[Any]
    graph: Graph
    shape: records.ModelShape
    modules: int
    needs: dict[str, Any]

    @cached_property
    def random(self) -> np.random.Generator:
        """Numbers that follow from the stage's key."""
        return np.random.default_rng(int(self.stage.key, 16))

    @property
    def study(self) -> Study:
        return self.graph.study

    @property
    def role(self) -> str:
        """The text that the record is of."""
        return self.stage.id.texts[0]

    @property
    def text(self) -> str:
        return text_of(self.study, self.role)

    @property
    def asked(self) -> str:
        """The evaluation text or the task that is measured on."""
        settings = self.study.evaluation
        tasks = self.stage.kind in ("accuracy", "answers", "questions", "generated_answers", "open_answers")
        return (settings.tasks if tasks else settings.texts)[self.stage.id.item or 0]

    @property
    def able(self) -> list[str]:
        """The methods that can run, where the speed of all is measured."""
        return [name for name, parts in self.needs["models"].items() if name == "dense" or "masks" in parts]


Makers = Mapping[str, Callable[[Task], Any]]
"""what makes a record, by kind; a kind that is not among them has no results, nor has one that gives None"""


def leave(
    record: RunRecord,
    makers: Makers,
    shape: records.ModelShape,
    modules: int,
    *,
    present: str | Collection[str] = "all",
    state: str = "done",
    error: str | None = None,
    unavailable: Mapping[str, str] | None = None,
) -> str:
    """Leaves what a run leaves, results in the store and its run.json, and gives the run's name.

    Args:
        record: of the run.
        makers: what its results hold.
        shape: sizes of the model.
        modules: modules of each layer.
        present: what is there: all until something, or stages by name.
        state: how the run ended.
        error: why it failed.
        unavailable: why methods cannot run, by method.
    """
    results, contents = record.results, dict[Stage[Any], Any]()
    graph = results.graph
    present_names = {item.name for item in execution_plan(graph, present)} if isinstance(present, str) else set(present)
    assert present_names <= {item.name for item in execution_plan(graph)}, present_names
    reasons = {METHODS[name].masks: reason for name, reason in (unavailable or {}).items()}
    for name, reason in reasons.items():
        graph.record_failure(stages.masks(graph, name), reason)
    study = replace(results.graph.study, name="", group="")
    equal = (study, shape, modules, *makers.items(), *reasons.items(), *sorted(present_names))
    for number, stage in enumerate(execution_plan(graph)):
        if reason := graph.failure(stage):
            record.leave_out(stage, reason)
        elif stage.kind in makers:
            needs = stages.resolve(stage.needs, contents.get)
            task = Task(stage, results.graph, shape, modules, needs)
            contents[stage] = _once((stage.key, stage.name, *equal), lambda task=task: makers[task.stage.kind](task))
            if stage.name in present_names and contents[stage] is not None:
                used = {"seconds": 0.5 + number}
                _put(record, stage, contents[stage], {**used, **provenance.versions()})
                record.stages[stage.name] = {"key": stage.key, **used, "reused": number % 2 == 0}
    record.save(state, {"run": record.name} if state == "done" else None, error)
    return record.name


_contents: dict[tuple[Any, ...], Any] = {}


def _once(key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
    """What is made for a key, once a process: most tests ask for the same few runs."""
    if key not in _contents:
        _contents[key] = make()
    return _contents[key]


@functools.cache
def _template_store() -> Store:
    """Where results lie that have been written once, to be copied."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Store(Path(folder))


def _put(record: RunRecord, stage: Stage[Any], content: Any, details: dict[str, Any]) -> None:
    """Puts a result where there is none; what is made of a folder's stage is a function that fills it."""
    store, location = record.results.store, record.results.store.folder(stage.kind, stage.key)
    if KINDS[stage.kind].record is None:
        store.put_folder(stage.kind, stage.key, lambda folder: content(folder) or details)
    elif location.exists():
        if not record.results.holds(stage):
            store.put(stage.kind, stage.key, content, details)
    else:
        _copy(_template(stage, content, details), location)


def _copy(template: Path, folder: Path) -> None:
    """Copies a folder in one step; where another process has been faster, its own stays."""
    partial = temporary_path(folder)
    shutil.copytree(template, partial, copy_function=shutil.copyfile)
    try:
        partial.rename(folder)
    except OSError:
        shutil.rmtree(partial)
        if not folder.exists():
            raise


def _template(stage: Stage[Any], content: Any, details: dict[str, Any]) -> Path:
    """The folder of a result as the store writes it; `made` lives as long, and so does its identity."""

    def write() -> Path:
        key = f"{stage.key}-{len(_contents)}"
        _template_store().put(stage.kind, key, content, details)
        return _template_store().folder(stage.kind, key)

    return _once((id(content), stage.kind, json.dumps(details, sort_keys=True)), write)


def size(task: Task) -> records.ModelSize:
    return records.ModelSize(task.shape.decoder_weights + 1000, 0, 0, 2 * task.shape.hidden * task.shape.layers)


def an_accuracy(
    task: str,
    acc: float,
    acc_norm: float | None = None,
    chance: float = 0.25,
    limit: int = 200,
    version: str = "1.0, lm-eval 0.4.13",
) -> records.Accuracy:
    """The accuracy on a task, of whose documents there are 100 where no limit is set."""
    norm, norm_error = (math.nan, math.nan) if acc_norm is None else (acc_norm, 0.04)
    errors, samples = (0.03, norm_error), limit or 100
    return records.Accuracy(task, acc, norm, *errors, samples, limit, chance, version, digest(task))


def level(task: Task, role: str = "") -> Array:
    """(layers, neurons) log level of the neurons on a text: what all texts share, and its own part."""
    inputs, size = task.graph.inputs, (task.shape.layers, task.shape.neurons)
    shared, of_text = (
        np.random.default_rng(int(content, 16)).normal(size=size)
        for content in (inputs.model, inputs.calibration[role or task.role])
    )
    return shared + 0.8 * of_text


def noise(task: Task, *size: int, scale: float = 1.0) -> Array:
    """Normal numbers; by default one for every neuron."""
    return scale * task.random.normal(size=size or (task.shape.layers, task.shape.neurons))


def norms(task: Task) -> records.WeightNorms:
    reference = task.shape
    neurons, channels = ((reference.layers, n) for n in (reference.neurons, reference.heads * reference.head_width))
    return records.WeightNorms(*(1 + 0.1 * task.random.random(size) for size in (neurons,) * 2 + (channels,) * 2))


def weighed(task: Task) -> records.WeightFacts:
    reference = task.shape
    sizes = (reference.layers, 1, reference.neurons), (reference.layers, 1, reference.heads * reference.head_width)
    neurons, channels = (1 + task.random.random(size) for size in sizes)
    return records.WeightFacts(task.stage.id.metric, ("rows",), neurons, ("rows",), channels)


def tokens(task: Task) -> records.Tokens:
    location = ("primary", "auxiliary", "substitute", "sampled").index(task.role)
    frequent = 1.0 / np.arange(1, 501 - 50 * location)
    settings = task.study.calibration.samples, task.study.calibration.length
    ids = task.random.choice(len(frequent), settings, p=frequent / frequent.sum()) + 50 * location
    return records.Tokens(task.text, digest(task.stage.key), ids.astype(np.int32), settings[0] * (location + 2))


def sampled(task: Task) -> records.SampledText:
    settings = task.study.calibration.samples, task.study.calibration.length
    ids = task.random.integers(0, 500, settings).astype(np.int32)
    return records.SampledText(task.text, ids, np.full(settings[0], 20.0), np.ones(settings[0], dtype=bool))


def statistics(task: Task) -> records.ActivationStatistics:
    reference, rendered, values = task.shape, task.study.calibration, dict[str, Any]()
    growth = np.log(100) * np.linspace(0, 1, reference.layers)[:, None]
    for part, width in (("ffn", reference.neurons), ("attention", reference.heads * reference.head_width)):
        size = (rendered.shards, reference.layers, width)
        middle = level(task) + growth if part == "ffn" else np.zeros(size[1:])
        values[f"{part}_mean"] = noise(task, *size, scale=0.1)
        values[f"{part}_moment"] = 128 * np.exp(middle + noise(task, *size, scale=0.3))
        values[f"{part}_energy"] = values[f"{part}_moment"] + 128 * values[f"{part}_mean"] ** 2
        values[f"{part}_released_fluctuation"] = values[f"{part}_moment"].mean(axis=0)
    counts = np.full(rendered.shards, rendered.samples // rendered.shards, dtype=np.int64)
    return records.ActivationStatistics(task.text, "f" * 64, counts, rendered.length * counts, **values)


def positions(task: Task) -> records.StrongestPositions:
    rendered, reference = task.needs["tokens"], task.shape
    samples, length = rendered.ids.shape
    retained = min(task.study.calibration.positions, samples)
    size = (reference.layers, reference.neurons, retained)
    first = task.random.integers(0, samples, (*size[:2], 1))
    strength = np.sort(np.abs(noise(task, *size)), axis=2)[:, :, ::-1]
    sequences = ((first + np.arange(retained)) % samples).astype(np.int16)
    places = task.random.integers(0, length, size).astype(np.int16)
    values = (strength * task.random.choice((-1, 1), size)).astype(np.float32)
    return records.StrongestPositions(rendered.text, rendered.fingerprint, length, sequences, places, values)


def contexts(task: Task) -> records.Contexts:
    reference, count, dimensions = task.shape, task.study.contexts.count, 3
    components = noise(task, reference.layers, dimensions, reference.hidden)
    centroids = noise(task, reference.layers, count, dimensions)
    distances = np.linalg.norm(centroids[:, :, None] - centroids[:, None], axis=-1)
    mean = noise(task, reference.layers, reference.hidden)
    return records.Contexts(task.text, mean, components, centroids, distances, 512)


def context_statistics(task: Task) -> records.ContextStatistics:
    of_contexts, count = task.needs["contexts"].text, task.study.contexts.count
    size = (task.study.calibration.shards, task.shape.layers, count, task.shape.neurons)
    moment = 16 * np.exp(level(task)[:, None] + noise(task, *size, scale=0.3))
    tokens, change = np.full(size[:3], 16.0), task.random.random(task.shape.layers)
    affinity, mean = task.random.random(size[1:]), noise(task, *size, scale=0.1)
    return records.ContextStatistics(task.text, of_contexts, tokens, mean, moment, affinity, change)


def by_its_formula(task: Task) -> Any:
    """What needs no model is computed as in a real run, from the records that were made before."""
    return task.stage.make(SimpleNamespace(study=task.study, progress=silent), **task.needs)


def scores(task: Task) -> records.UnitScores:
    shape = task.shape
    if "tokens" not in task.needs:
        return by_its_formula(task)
    heads = task.random.gamma(2.0, size=(shape.layers, shape.kv_heads))
    channels = task.random.gamma(2.0, size=(shape.layers, shape.heads * shape.head_width))
    return records.UnitScores(task.stage.id.metric, task.text, np.exp(level(task)), heads, channels)


def partition(task: Task) -> records.Partition:
    """Modules of equal size; a share of the neurons is elsewhere than in any other partition."""
    shape, groups = task.shape, task.stage.kind == "groups"
    count = min(2 if groups else task.modules, shape.neurons)
    share = 0.8 if groups else 0.5 if "other_seed" in task.stage.id.variant else 0.15
    labels = np.tile(np.arange(shape.neurons, dtype=np.int32) % count, (shape.layers, 1))
    for row in labels:
        moved = task.random.permutation(shape.neurons)[: round(share * shape.neurons)]
        row[moved] = row[task.random.permutation(moved)]
    counts, silhouette = np.full(shape.layers, count, np.int32), task.random.random((shape.layers, 5))
    result = labels, counts, np.maximum(counts - 2, 1), silhouette, np.array([0.2, np.nan])
    kind = "functional" if groups else "refined"
    return records.Partition(kind, "magnitude", *result, np.array([0.1, np.nan]), np.zeros((shape.layers, 3, 5)))


def _decided(masks: records.PruningMasks) -> dict[str, Any]:
    """What a learning repeats of the masks that it ended with."""
    return {name: getattr(masks, name) for name in ("ffn", "heads", "retention", "target")}


def learning(task: Task) -> records.Learning:
    steps = np.arange(40.0)
    falling = 3.5 + 2.0 * np.exp(-steps / 10)
    retained = 0.5 + 0.05 * np.exp(-steps / 8) * np.cos(steps / 3)
    partition = task.needs["partition"]
    rendered = task.random.random(partition.modules + task.shape.layers)
    ranked = task.needs["adapted"].scores, task.needs["heads"].heads, partition
    plan = exact_masks(RankedUnits.build(task.shape, *ranked), rendered, task.study.retention)
    return records.Learning(
        **_decided(plan.masks),
        steps=np.stack([steps, steps // 20, falling, falling + 0.3, falling / 4, retained], axis=1),
        columns=("step", "epoch", "ce_primary", "ce_auxiliary", "distillation", "retention"),
        thresholds=plan.thresholds[: partition.modules],
        head_thresholds=plan.thresholds[partition.modules :],
    )


def gates(task: Task) -> records.GateLearning:
    import torch

    from gprune.pruning.sparsity.gate_masks import GateMasks

    shape, steps = task.shape, np.arange(40.0)
    rendered = task.random.random(shape.layers * (shape.neurons + shape.kv_heads)).astype(np.float32)
    family = GateMasks.of(shape, task.study.retention, 1, 1.5, torch.device("cpu"))
    values = torch.tensor(rendered)
    retained, (neurons, groups) = family.exact(values), family.split(values)
    return records.GateLearning(
        **_decided(retained),
        steps=np.stack([steps, steps // 20, 5 - steps / 20], axis=1),
        columns=("step", "epoch", "ce_primary"),
        gates=neurons.numpy(),
        head_gates=groups.numpy(),
    )


def masks(task: Task) -> records.PruningMasks:
    if "learning" in task.needs:
        return by_its_formula(task)
    shape, lost = task.shape, 1 - task.study.retention
    # the better units of every layer
    ffn = ranks(level(task, "primary") + noise(task)) >= shape.neurons * lost
    heads = ranks(task.random.random((shape.layers, shape.kv_heads))) >= shape.kv_heads * lost
    heads[:, 0] |= ~heads.any(axis=1)
    retention = budget.retention(shape, ffn, heads)
    return records.PruningMasks(task.stage.id.method, ffn, heads, retention, task.study.retention)


def overlap(task: Task) -> records.TextOverlap:
    """Next to nothing stands in either calibration set."""
    windows = task.study.evaluation.windows or 96
    return records.TextOverlap(task.asked, 17, windows, np.array([0.0, 0.0004]), np.array([0.1, 0.25]))


def checkpoint(_: Task) -> Callable[[Path], None]:
    def fill(folder: Path) -> None:
        (folder / "model").mkdir()
        (folder / "model" / "pruning.json").write_text("{}", encoding="utf-8")

    return fill


_MEASURED = (size, norms, weighed, sampled, tokens, statistics, positions, contexts, context_statistics)
_DECIDED = (scores, learning, gates, masks, overlap, checkpoint)
MAKERS: Makers = {
    "shape": lambda task: task.shape,
    **{maker.__name__: maker for maker in (*_MEASURED, *_DECIDED)},
    **dict.fromkeys(("groups", "clusters", "partition"), partition),
    **dict.fromkeys(("drift", "modules", "adapted", "agreement"), by_its_formula),
}
