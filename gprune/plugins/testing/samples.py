"""Made-up texts and weights: what a plug-in is given, small enough to be checked in every way.

The inputs of down_proj and o_proj are drawn token by token, so that any group of sequences can be measured by
itself, any channel moved to another place, and any value set to what float16 allows at most.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from gprune.plugins import LayerWeights
from gprune.plugins.calls import closed_weights
from gprune.plugins.discovery.declaration import require_facts
from gprune.records import ActivationStatistics, Array, ModelShape, UnitScores, WeightNorms
from gprune.system.errors import PluginError


class ContractError(AssertionError):
    """A plug-in does not hold what it must; the message says what, on what, and what to do."""


def require(holds: bool, words: str) -> None:
    """Raises `ContractError` with some words unless something holds."""
    if not holds:
        raise ContractError(words)


def declares(kind: str, **facts: object) -> None:
    """Checks the fields that a plug-in, a metric or a method, says of itself, as its discovery will.

    Raises ContractError where it would be left out.
    """
    with on(f"the declaration of the {kind}"):
        require_facts(facts)


@contextmanager
def on(case: str) -> Iterator[None]:
    """Raises ContractError that says on which made-up case the plug-in failed."""
    try:
        yield
    except PluginError as error:
        raise ContractError(f"{case}: {error}") from error


SAMPLES, LENGTH = 12, 5
SHARDS = [list(range(first, first + 3)) for first in range(0, SAMPLES, 3)]
SPLITS = {
    "one shard": [list(range(SAMPLES))],
    "shards of unequal size": [[0], list(range(1, 11)), [11]],
    "shards in another order": [[7, 3, 9], [0, 5, 1], [2, 6, 4], [11, 8, 10]],
}
SHAPES = {
    "multi-head attention": ModelShape(layers=2, neurons=12, heads=4, kv_heads=4, head_width=2, hidden=8),
    "grouped-query attention and odd widths": ModelShape(3, 13, 6, 2, 3, 5),
    "one key/value group and one layer": ModelShape(1, 7, 3, 1, 2, 4),
}
WIDER = {
    "multi-head attention": ModelShape(layers=4, neurons=96, heads=8, kv_heads=8, head_width=2, hidden=16),
    "grouped-query attention and odd widths": ModelShape(3, 61, 6, 3, 3, 7),
    "one layer": ModelShape(1, 53, 4, 4, 2, 6),
}
"""shapes of which a retention can be met"""
HALF = float(np.finfo(np.float16).max)


@dataclass(frozen=True, slots=True, eq=False)
class Text:
    """Every activation of a text."""

    ffn: Array
    """(layers, samples, length, neurons)"""
    attention: Array
    """(layers, samples, length, heads * head_width)"""

    def statistics(self, shards: Sequence[Sequence[int]]) -> ActivationStatistics:
        """What the calibration pass keeps of it, a shard for each group of sequences."""
        values: dict[str, Array] = {}
        for part, every in (("ffn", self.ffn), ("attention", self.attention)):
            flat = [every[:, list(one)].reshape(len(every), -1, every.shape[-1]) for one in shards]
            means = [one.mean(axis=1) for one in flat]
            pairs = list(zip(flat, means, strict=True))
            values[f"{part}_mean"] = np.stack(means)
            values[f"{part}_moment"] = np.stack([((x - m[:, None]) ** 2).sum(axis=1) for x, m in pairs])
            values[f"{part}_energy"] = np.stack([(one**2).sum(axis=1) for one in flat])
            values[f"{part}_released_fluctuation"] = np.zeros((len(every), every.shape[-1]))
        samples = np.array([len(one) for one in shards])
        return ActivationStatistics("a made-up text", "", samples, samples * self.ffn.shape[2], **values)

    def moved(self, neurons: Array, channels: Array) -> Text:
        """The same with neurons and channels of o_proj in another order."""
        return Text(self.ffn[..., neurons], self.attention[..., channels])

    def part(self, samples: Sequence[int]) -> Text:
        """Some of its sequences."""
        return Text(self.ffn[:, list(samples)], self.attention[:, list(samples)])


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """The matrices of every layer, by name, (layers, out, in)."""

    shape: ModelShape
    matrices: dict[str, Array]

    def layers(self) -> list[LayerWeights]:
        """As a metric's `weigh` gets them."""
        count = range(self.shape.layers)
        return [closed_weights(self.shape, i, {n: m[i] for n, m in self.matrices.items()}) for i in count]

    def norms(self) -> WeightNorms:
        """As every metric gets them."""
        down, out = (self.matrices[name].astype(np.float64) for name in ("down", "out"))
        return WeightNorms((down**2).sum(axis=1), abs(down).mean(axis=1), (out**2).sum(axis=1), abs(out).mean(axis=1))

    def moved(self, neurons: Array, groups: Array) -> Weights:
        """The same model with its neurons and its key/value groups in another order."""
        keys = spread(groups, self.shape.head_width)
        queries = spread(groups, self.shape.group_channels)
        rows = {"gate": neurons, "up": neurons, "query": queries, "key": keys, "value": keys}
        moved = {n: m[:, rows[n]] if n in rows else m for n, m in self.matrices.items()}
        columns = {"down": moved["down"][:, :, neurons], "out": moved["out"][:, :, queries]}
        return replace(self, matrices=moved | columns)


def spread(groups: Array, width: int) -> Array:
    """(groups * width,) the channels of some groups, in the order of the groups."""
    return (np.asarray(groups)[:, None] * width + np.arange(width)).ravel()


def text(shape: ModelShape, seed: int = 0) -> Text:
    """A text in which channels differ in mean and spread, as they do in a model."""
    generator, found = np.random.default_rng(seed), []
    for width in (shape.neurons, shape.heads * shape.head_width):
        spreads = generator.gamma(2.0, 1.0, (shape.layers, 1, 1, width))
        found.append(generator.normal(0.4, 1.0, (shape.layers, SAMPLES, LENGTH, width)) * spreads)
    return Text(*found)


def extreme(shape: ModelShape) -> Text:
    """A text with the largest and the smallest values that float16 has, and channels that say nothing."""
    found = text(shape, 5)
    for values in (found.ffn, found.attention):
        values[..., 0] = HALF * np.sign(values[..., 0])
        values[..., 1] = 6e-8
        values[..., 2] = 0.0
    return found


def weights(shape: ModelShape, seed: int = 1, largest: float = 0.0) -> Weights:
    """Random float32 weights; with a largest value, neuron 0 and channel 0 have it and others are zero."""
    generator, hidden = np.random.default_rng(seed), shape.hidden
    queries, keys = shape.heads * shape.head_width, shape.kv_heads * shape.head_width
    sizes = {
        "gate": (shape.neurons, hidden),
        "up": (shape.neurons, hidden),
        "down": (hidden, shape.neurons),
        "query": (queries, hidden),
        "key": (keys, hidden),
        "value": (keys, hidden),
        "out": (hidden, queries),
    }
    found = {n: generator.normal(0, 0.3, (shape.layers, *size)) for n, size in sizes.items()}
    if largest:
        for name, values in found.items():
            across = name in ("down", "out")
            for place, value in ((0, largest), (2, 0.0)):
                values[(..., place) if across else (slice(None), min(place, values.shape[1] - 1))] = value
    return Weights(shape, {name: values.astype(np.float32) for name, values in found.items()})


def scores(shape: ModelShape, seed: int = 2, power: float = 1.0) -> UnitScores:
    """Made-up scores of every unit, no two alike."""
    generator = np.random.default_rng(seed)
    sizes = ((shape.layers, shape.neurons), (shape.layers, shape.kv_heads))
    ffn, groups = (generator.gamma(1.0, 1.0, size) ** power for size in sizes)
    channels = np.repeat(groups, shape.group_channels, axis=1)
    return UnitScores("made_up", "a made-up text", ffn, groups, channels)
