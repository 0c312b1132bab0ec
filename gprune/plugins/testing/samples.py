"""Made-up texts and weights, on which plug-ins are checked.

The inputs of down_proj and o_proj are drawn token by token, so that any sequences can be measured alone, any
channel moved, and any value set to the limits of float16.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from gprune.plugins import LayerWeights, Method, Metric
from gprune.plugins.calls import layer_weights
from gprune.plugins.registry import PluginInfo, describe
from gprune.records import ActivationStatistics, Array, ModelShape, UnitScores, WeightNorms
from gprune.system.errors import PluginError


class ContractError(AssertionError):
    """A plug-in fails a check; the message says which, on what input, and what to do."""


def require(condition: bool, message: str) -> None:
    """Raise ContractError unless a condition holds."""
    if not condition:
        raise ContractError(message)


@contextmanager
def report_case(case: str) -> Iterator[None]:
    """Turn a PluginError into a ContractError that names the case."""
    try:
        yield
    except PluginError as error:
        raise ContractError(f"{case}: {error}") from error


def describe_checked(code: Metric | Method) -> PluginInfo:
    """Describe a plug-in that is checked. Raises ContractError where its fields would be refused."""
    with report_case(f"the declaration of the {type(code).__name__.lower()}"):
        return describe(code, "checked", "this package", "0")


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
        """Return the statistics of a calibration pass, with a shard for each group of sequences."""
        values: dict[str, Array] = {}
        for part, inputs in (("ffn", self.ffn), ("attention", self.attention)):
            tokens = [inputs[:, list(shard)].reshape(len(inputs), -1, inputs.shape[-1]) for shard in shards]
            values[f"{part}_mean"] = np.stack([x.mean(axis=1) for x in tokens])
            values[f"{part}_moment"] = np.stack([x.var(axis=1) * x.shape[1] for x in tokens])
            values[f"{part}_energy"] = np.stack([(x**2).sum(axis=1) for x in tokens])
            values[f"{part}_released_fluctuation"] = np.zeros((len(inputs), inputs.shape[-1]))
        samples = np.array([len(shard) for shard in shards])
        return ActivationStatistics("a made-up text", "", samples, samples * self.ffn.shape[2], **values)

    def permuted(self, neurons: Array, channels: Array) -> Text:
        """Return the text with neurons and channels of o_proj in another order."""
        return Text(self.ffn[..., neurons], self.attention[..., channels])

    def part(self, samples: Sequence[int]) -> Text:
        """Return some of its sequences."""
        return Text(self.ffn[:, list(samples)], self.attention[:, list(samples)])


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """The matrices of every layer, by name, (layers, out, in)."""

    shape: ModelShape
    matrices: dict[str, Array]

    def layers(self) -> list[LayerWeights]:
        """Return the weights as a metric's `weigh` gets them."""
        count = range(self.shape.layers)
        return [layer_weights(self.shape, i, {name: m[i] for name, m in self.matrices.items()}) for i in count]

    def norms(self) -> WeightNorms:
        """Return the norms that every metric gets."""
        down, out = (self.matrices[name].astype(np.float64) for name in ("down", "out"))
        return WeightNorms((down**2).sum(axis=1), abs(down).mean(axis=1), (out**2).sum(axis=1), abs(out).mean(axis=1))

    def permuted(self, neurons: Array, groups: Array) -> Weights:
        """Return the weights with neurons and key/value groups in another order."""
        keys = spread(groups, self.shape.head_width)
        queries = spread(groups, self.shape.group_channels)
        rows = {"gate": neurons, "up": neurons, "query": queries, "key": keys, "value": keys}
        matrices = {name: m[:, rows[name]] if name in rows else m for name, m in self.matrices.items()}
        columns = {"down": matrices["down"][:, :, neurons], "out": matrices["out"][:, :, queries]}
        return replace(self, matrices=matrices | columns)


def spread(groups: Array, width: int) -> Array:
    """Return the (groups * width,) channels of some groups, in the order of the groups."""
    return (np.asarray(groups)[:, None] * width + np.arange(width)).ravel()


def text(shape: ModelShape, seed: int = 0) -> Text:
    """Return a text whose channels differ in mean and spread, as they do in a model."""
    generator, inputs = np.random.default_rng(seed), []
    for width in (shape.neurons, shape.heads * shape.head_width):
        spreads = generator.gamma(2.0, 1.0, (shape.layers, 1, 1, width))
        inputs.append(generator.normal(0.4, 1.0, (shape.layers, SAMPLES, LENGTH, width)) * spreads)
    return Text(*inputs)


def extreme(shape: ModelShape) -> Text:
    """Return a text with the largest and the smallest values of float16, and channels that are always zero."""
    extreme_text = text(shape, 5)
    for values in (extreme_text.ffn, extreme_text.attention):
        values[..., 0] = HALF * np.sign(values[..., 0])
        values[..., 1] = 6e-8
        values[..., 2] = 0.0
    return extreme_text


def weights(shape: ModelShape, seed: int = 1, largest: float = 0.0) -> Weights:
    """Return random float32 weights; neuron 0 and channel 0 have the `largest` value, if any, and 2 has zeros."""
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
    matrices = {name: generator.normal(0, 0.3, (shape.layers, *size)) for name, size in sizes.items()}
    if largest:
        for name, values in matrices.items():
            rows = values.swapaxes(1, 2) if name in ("down", "out") else values
            rows[:, min(2, rows.shape[1] - 1)] = 0.0
            rows[:, 0] = largest
    return Weights(shape, {name: values.astype(np.float32) for name, values in matrices.items()})


def scores(shape: ModelShape, seed: int = 2, power: float = 1.0) -> UnitScores:
    """Return scores of every unit; no two are equal unless `power` is 0."""
    generator = np.random.default_rng(seed)
    sizes = ((shape.layers, shape.neurons), (shape.layers, shape.kv_heads))
    ffn, groups = (generator.gamma(1.0, 1.0, size) ** power for size in sizes)
    channels = np.repeat(groups, shape.group_channels, axis=1)
    return UnitScores("made_up", "a made-up text", ffn, groups, channels)
