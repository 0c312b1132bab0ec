"""Asks a plug-in for scores, for facts of the weights, and for a decision; all in the computing process."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gprune.plugins import checks
from gprune.plugins.discovery.declaration import Plugin
from gprune.plugins.interface import Facts, LayerWeights, Measured, Method, Metric, Problem
from gprune.plugins.loading import called
from gprune.records import (
    ActivationStatistics,
    Array,
    ModelShape,
    PruningMasks,
    UnitScores,
    WeightFacts,
    WeightNorms,
    budget,
    merge_moments,
)
from gprune.system.errors import PluginError

_PARTS = {"ffn": "down", "attention": "out"}
"""part of the statistics: the map whose inputs it measures"""


class Asked:
    """A metric with what it scores: the statistics of a text and what is known of the weights."""

    def __init__(
        self,
        plugin: Plugin,
        metric: Metric,
        statistics: ActivationStatistics,
        norms: WeightNorms,
        shape: ModelShape,
        facts: WeightFacts | None = None,
    ) -> None:
        """Binds a metric's code to the statistics of a whole calibration set, per shard.

        `norms` are of the columns of down_proj and o_proj; `facts` what its `weigh` has found, where it has
        one.
        """
        self.plugin, self.metric, self.statistics = plugin, metric, statistics
        self.norms, self.shape, self.facts = norms, shape, facts

    def units(self, shards: Sequence[int] | None = None) -> UnitScores:
        """Scores of every unit on the whole text, or on some of its shards.

        Raises PluginError where the metric fails, or answers with what cannot be scores.
        """
        shape, chosen = self.shape, range(self.statistics.shards) if shards is None else shards
        neurons, groups = self.neurons(chosen), np.empty((shape.layers, shape.kv_heads))
        for layer in range(shape.layers):
            found = self._call("groups", self.metric.groups, "attention", layer, chosen)
            groups[layer] = self._checked(found, "groups", layer, shape.kv_heads)
        # each channel has its group's score: what takes the mean of a group's channels gets it back
        channels = np.repeat(groups, shape.group_channels, axis=1)
        return UnitScores(self.plugin.name, self.statistics.text, neurons, groups, channels)

    def neurons(self, shards: Sequence[int]) -> Array:
        """(layers, neurons) scores of neurons alone on some shards; for errors see `units`."""
        found = np.empty((self.shape.layers, self.shape.neurons))
        for layer in range(self.shape.layers):
            values = self._call("neurons", self.metric.neurons, "ffn", layer, shards)
            found[layer] = self._checked(values, "neurons", layer, self.shape.neurons)
        return found

    def measured(self, part: str, layer: int, shards: Sequence[int]) -> Measured:
        """What the metric is given of one layer's `part`, ffn or attention, on some shards."""
        told, index, column = self.statistics, np.asarray(shards), _PARTS[part]
        counts = told.shard_tokens[index]
        mean, moment = (getattr(told, f"{part}_{name}")[index, layer] for name in ("mean", "moment"))
        mean, moment = merge_moments(counts.astype(np.float64), mean, moment)
        arrays = {
            "mean": mean,
            "variance": moment / counts.sum(),
            "energy": getattr(told, f"{part}_energy")[index, layer].sum(axis=0),
            "column_square": getattr(self.norms, f"{column}_column_square")[layer],
            "column_absolute": getattr(self.norms, f"{column}_column_absolute")[layer],
        }
        samples = int(told.shard_samples[index].sum())
        facts = {} if self.facts is None else self.facts.of_layer(part, layer)
        return Measured(
            self.shape,
            layer,
            samples,
            int(counts.sum()),
            **{name: _closed(values) for name, values in arrays.items()},
            facts={name: _closed(values) for name, values in facts.items()},
        )

    def _call(self, what: str, function: Any, part: str, layer: int, shards: Sequence[int]) -> Any:
        return called(self.plugin, what, function, self.measured(part, layer, shards))

    def _checked(self, found: Any, what: str, layer: int, length: int) -> Array:
        try:
            return checks.scores(found, f"the scores of {what} in layer {layer}", length)
        except PluginError as error:
            raise PluginError(f"{self.plugin.words}: {error}") from error


def weighed(plugin: Plugin, metric: Metric, layers: Sequence[LayerWeights], progress: Any) -> WeightFacts:
    """What a metric's `weigh` finds of every layer; `progress` is told after each.

    Raises PluginError where it fails, or answers with what is no fact of a channel.
    """
    found: list[Facts] = []
    for layer in layers:
        progress(layer.layer, len(layers), f"weights of layer {layer.layer + 1}")
        answer = called(plugin, "weigh", metric.weigh or (lambda _: Facts()), layer)
        try:
            found.append(checks.facts(answer, layer.shape))
        except PluginError as error:
            raise PluginError(f"{plugin.words}: {error}") from error
    alike = {(tuple(one.neurons), tuple(one.channels)) for one in found}
    if len(alike) != 1:
        raise PluginError(f"{plugin.words}: weigh gives facts of other names in some layers")
    neurons, channels = alike.pop()
    shape = layers[0].shape
    return WeightFacts(
        plugin.name,
        neurons,
        _stacked([[one.neurons[name] for name in neurons] for one in found], shape.neurons),
        channels,
        _stacked([[one.channels[name] for name in channels] for one in found], shape.heads * shape.head_width),
    )


def decided(plugin: Plugin, method: Method, problem: Problem) -> PruningMasks:
    """The decision of a method. Raises PluginError where it fails, or answers with what cannot be cut."""
    found = called(plugin, "decide", method.decide, problem)
    shape, retention = problem.shape, problem.retention
    try:
        kept = checks.kept(found, shape, retention)
    except PluginError as error:
        raise PluginError(f"{plugin.words}: {error}") from error
    reached = budget.retention(shape, kept.neurons, kept.groups)
    return PruningMasks(plugin.name, kept.neurons, kept.groups, reached, retention)


def closed_weights(shape: ModelShape, layer: int, matrices: dict[str, Array]) -> LayerWeights:
    """The weights of a layer from matrices that are in memory."""
    closed = {name: _closed(values) for name, values in matrices.items()}
    return LayerWeights(shape, layer, closed.__getitem__)


def _stacked(rows: list[list[Array]], length: int) -> Array:
    """(layers, facts, length), with no fact too."""
    return np.array(rows, dtype=np.float64).reshape(len(rows), -1, length)


def _closed(values: Array) -> Array:
    """A read-only view: what a plug-in writes into is an error of its own."""
    view = np.asarray(values).view()
    view.flags.writeable = False
    return view
