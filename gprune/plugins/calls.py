"""Ask a plug-in for scores, for facts of the weights and for a decision, and check the answer."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from gprune.plugins import checks
from gprune.plugins.interface import Facts, LayerWeights, Measured, Method, Metric, Problem
from gprune.plugins.registry import PluginInfo
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
from gprune.system.errors import Cancelled, PluginError
from gprune.system.safe_parsing import sentence

R = TypeVar("R")
_COLUMNS = {"ffn": "down", "attention": "out"}
"""part of the statistics: the projection whose inputs it measures"""


def call(plugin: PluginInfo, action: str, function: Callable[..., R], *arguments: Any) -> R:
    """Call a plug-in's function. Raises PluginError, which names `action`, where it fails."""
    try:
        return function(*arguments)
    except (MemoryError, Cancelled):
        raise
    except Exception as error:
        reason = sentence(f"{type(error).__name__}: {error}", 140)
        raise PluginError(f"{plugin.description} failed in {action} ({reason})") from error


def check(plugin: PluginInfo, function: Callable[..., R], *arguments: Any) -> R:
    """Call a function of `checks`. Raises PluginError, which names the plug-in, where an answer is not valid."""
    try:
        return function(*arguments)
    except PluginError as error:
        raise PluginError(f"{plugin.description}: {error}") from error


class MetricScorer:
    """Score a text by a plug-in's metric. Scoring raises PluginError where the metric fails or an answer is invalid."""

    def __init__(
        self,
        plugin: PluginInfo,
        metric: Metric,
        statistics: ActivationStatistics,
        norms: WeightNorms,
        shape: ModelShape,
        facts: WeightFacts | None = None,
    ) -> None:
        """Bind a metric to the statistics of a calibration text, per shard.

        Args:
            plugin: its description.
            metric: its code.
            statistics: of the text.
            norms: of the columns of down_proj and o_proj.
            shape: of the model.
            facts: the result of `weigh_layers`, where the metric has a `weigh`.
        """
        self.plugin, self.metric, self.statistics = plugin, metric, statistics
        self.norms, self.shape, self.facts = norms, shape, facts

    def units(self, shards: Sequence[int] | None = None) -> UnitScores:
        """Return the scores of every unit on the text, or on some of its shards."""
        shape = self.shape
        chosen = range(self.statistics.shards) if shards is None else shards
        neurons = self.neurons(chosen)
        groups = self._layers("groups", self.metric.groups, "attention", shape.kv_heads, chosen)
        # each channel has the score of its group, so that the mean of a group's channels is that score
        channels = np.repeat(groups, shape.group_channels, axis=1)
        return UnitScores(self.plugin.name, self.statistics.text, neurons, groups, channels)

    def neurons(self, shards: Sequence[int]) -> Array:
        """Return the (layers, neurons) scores of neurons on some shards."""
        return self._layers("neurons", self.metric.neurons, "ffn", self.shape.neurons, shards)

    def measured(self, part: str, layer: int, shards: Sequence[int]) -> Measured:
        """Return the metric's input for one layer; `part` is ffn or attention."""
        statistics, index, column = self.statistics, np.asarray(shards), _COLUMNS[part]
        counts = statistics.shard_tokens[index]
        mean, moment = (getattr(statistics, f"{part}_{name}")[index, layer] for name in ("mean", "moment"))
        mean, moment = merge_moments(counts.astype(np.float64), mean, moment)
        arrays = {
            "mean": mean,
            "variance": moment / counts.sum(),
            "energy": getattr(statistics, f"{part}_energy")[index, layer].sum(axis=0),
            "column_square": getattr(self.norms, f"{column}_column_square")[layer],
            "column_absolute": getattr(self.norms, f"{column}_column_absolute")[layer],
        }
        samples = int(statistics.shard_samples[index].sum())
        facts = {} if self.facts is None else self.facts.of_layer(part, layer)
        return Measured(self.shape, layer, samples, int(counts.sum()), **_read_only(arrays), facts=_read_only(facts))

    def _layers(self, unit: str, function: Any, part: str, length: int, shards: Sequence[int]) -> Array:
        """(layers, length) scores."""
        scores = np.empty((self.shape.layers, length))
        for layer in range(self.shape.layers):
            answer = call(self.plugin, unit, function, self.measured(part, layer, shards))
            scores[layer] = check(
                self.plugin, checks.require_scores, answer, f"the scores of {unit} in layer {layer}", length
            )
        return scores


def weigh_layers(plugin: PluginInfo, metric: Metric, layers: Sequence[LayerWeights], progress: Any) -> WeightFacts:
    """Return the facts that a metric's `weigh` computes of every layer.

    Raises PluginError where it fails, or an answer is not valid.
    """
    facts: list[Facts] = []
    for layer in layers:
        progress(layer.layer, len(layers), f"weights of layer {layer.layer + 1}")
        answer = call(plugin, "weigh", metric.weigh or (lambda _: Facts()), layer)
        facts.append(check(plugin, checks.require_facts, answer, layer.shape))
    names = {(tuple(item.neurons), tuple(item.channels)) for item in facts}
    if len(names) != 1:
        raise PluginError(f"{plugin.description}: weigh gives facts of other names in some layers")
    neurons, channels = names.pop()
    shape = layers[0].shape
    return WeightFacts(
        plugin.name,
        neurons,
        _stack([[item.neurons[name] for name in neurons] for item in facts], shape.neurons),
        channels,
        _stack([[item.channels[name] for name in channels] for item in facts], shape.heads * shape.head_width),
    )


def decide(plugin: PluginInfo, method: Method, problem: Problem) -> PruningMasks:
    """Return a method's decision. Raises PluginError where it fails, or the answer is not valid."""
    answer = call(plugin, "decide", method.decide, problem)
    kept = check(plugin, checks.require_kept, answer, problem.shape, problem.retention)
    reached = budget.retention(problem.shape, kept.neurons, kept.groups)
    return PruningMasks(plugin.name, kept.neurons, kept.groups, reached, problem.retention)


def layer_weights(shape: ModelShape, layer: int, matrices: dict[str, Array]) -> LayerWeights:
    """Return the weights of a layer from matrices in memory."""
    return LayerWeights(shape, layer, _read_only(matrices).__getitem__)


def _stack(rows: list[list[Array]], length: int) -> Array:
    """(layers, facts, length), also without facts."""
    return np.array(rows, dtype=np.float64).reshape(len(rows), -1, length)


def _read_only(arrays: dict[str, Array]) -> dict[str, Array]:
    """Views that raise an error where a plug-in writes into them."""
    views = {name: np.asarray(values).view() for name, values in arrays.items()}
    for view in views.values():
        view.flags.writeable = False
    return views
