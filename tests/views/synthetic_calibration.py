"""What every synthetic record is made from, and the records of the calibration, in their true form."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gprune.records import (
    ActivationStatistics,
    Array,
    Contexts,
    ContextStatistics,
    ModelShape,
    ModelSize,
    Tokens,
    WeightNorms,
)
from gprune.stages import Graph, Stage
from gprune.study import Study

VOCABULARY = 500


def digest(*parts: object) -> str:
    """What stands for the content of a model or a text."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _numbers(content: str) -> np.random.Generator:
    return np.random.default_rng(int(content, 16))


@dataclass(frozen=True)
class Task:
    """A record to be made; all of it follows from the stage's key and from what the record is made from."""

    stage: Stage[Any]
    graph: Graph
    shape: ModelShape
    modules: int
    needs: dict[str, Any]

    @cached_property
    def random(self) -> np.random.Generator:
        return _numbers(self.stage.key)

    @property
    def study(self) -> Study:
        return self.graph.study

    @property
    def role(self) -> str:
        """The text that the record is of."""
        return self.stage.id.texts[0]

    @property
    def text(self) -> str:
        return str(getattr(self.study, self.role))

    def level(self, role: str = "") -> Array:
        """(layers, neurons) log level of the neurons on a text: what all texts share, and its own part."""
        inputs, size = self.graph.inputs, (self.shape.layers, self.shape.neurons)
        shared, own = inputs.model, inputs.calibration[role or self.role]
        found: Array = _numbers(shared).normal(size=size) + 0.8 * _numbers(own).normal(size=size)
        return found

    def noise(self, *size: int, scale: float = 1.0) -> Array:
        """Normal numbers; by default one for every neuron."""
        found: Array = scale * self.random.normal(size=size or (self.shape.layers, self.shape.neurons))
        return found


def shape(task: Task) -> ModelShape:
    return task.shape


def size(task: Task) -> ModelSize:
    known = task.shape
    return ModelSize(known.decoder_weights + 1000, 0, 0, 2 * known.hidden * known.layers)


def norms(task: Task) -> WeightNorms:
    known = task.shape
    neurons, channels = (known.layers, known.neurons), (known.layers, known.heads * known.head_width)
    return WeightNorms(*(1 + 0.1 * task.random.random(size) for size in (neurons,) * 2 + (channels,) * 2))


def tokens(task: Task) -> Tokens:
    place = ("primary", "auxiliary", "substitute").index(task.role)
    frequent = 1.0 / np.arange(1, VOCABULARY - 50 * place + 1)
    drawn = task.study.calibration.samples, task.study.calibration.length
    ids = task.random.choice(len(frequent), drawn, p=frequent / frequent.sum()) + 50 * place
    return Tokens(task.text, digest(task.stage.key), ids.astype(np.int32), drawn[0] * (place + 2))


def statistics(task: Task) -> ActivationStatistics:
    known, drawn, values = task.shape, task.study.calibration, dict[str, Any]()
    growth = np.log(100) * np.linspace(0, 1, known.layers)[:, None]
    for part, width in (("ffn", known.neurons), ("attention", known.heads * known.head_width)):
        size = (drawn.shards, known.layers, width)
        level = task.level() + growth if part == "ffn" else np.zeros(size[1:])
        values[f"{part}_mean"] = task.noise(*size, scale=0.1)
        values[f"{part}_moment"] = 128 * np.exp(level + task.noise(*size, scale=0.3))
        values[f"{part}_energy"] = values[f"{part}_moment"] + 128 * values[f"{part}_mean"] ** 2
        values[f"{part}_released_fluctuation"] = values[f"{part}_moment"].mean(axis=0)
    counts = np.full(drawn.shards, drawn.samples // drawn.shards, dtype=np.int64)
    return ActivationStatistics(task.text, "f" * 64, counts, drawn.length * counts, **values)


def contexts(task: Task) -> Contexts:
    known, count, dimensions = task.shape, task.study.contexts.count, 3
    components = task.noise(known.layers, dimensions, known.hidden)
    centroids = task.noise(known.layers, count, dimensions)
    distances = np.linalg.norm(centroids[:, :, None] - centroids[:, None], axis=-1)
    return Contexts(task.text, task.noise(known.layers, known.hidden), components, centroids, distances, 512)


def context_statistics(task: Task) -> ContextStatistics:
    made, count = task.needs["contexts"].text, task.study.contexts.count
    size = (task.study.calibration.shards, task.shape.layers, count, task.shape.neurons)
    moment = 16 * np.exp(task.level()[:, None] + task.noise(*size, scale=0.3))
    tokens, change = np.full(size[:3], 16.0), task.random.random(task.shape.layers)
    affinity = task.random.random(size[1:])
    return ContextStatistics(task.text, made, tokens, task.noise(*size, scale=0.1), moment, affinity, change)


MAKERS = {
    made.__name__: made for made in (shape, size, norms, tokens, statistics, contexts, context_statistics)
}
"""what makes a record, by kind"""
