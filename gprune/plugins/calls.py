"""Call a plug-in for scores, for facts of the weights and for a decision, and check the result."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from gprune import records
from gprune.plugins import Facts, LayerWeights, Measured, Method, Metric, Problem
from gprune.plugins.registry import PluginInfo
from gprune.records import Array, WeightFacts, budget, merge_moments
from gprune.system.errors import Cancelled, PluginError
from gprune.system.safe_parsing import sentence

_COLUMNS = {"ffn": "down", "attention": "out"}
"""weight matrix whose inputs each part of the statistics describes: down_proj or o_proj"""
TOLERANCE = 0.005
"""largest deviation from the retention, as a fraction of the weights, unless a key/value group is a larger fraction"""


@contextmanager
def name_plugin(plugin: PluginInfo, action: str) -> Iterator[None]:
    """Turn an error of a plug-in, or an invalid result, into a PluginError that names the plug-in and the action."""
    try:
        yield
    except (MemoryError, Cancelled):
        raise
    except PluginError as error:
        raise PluginError(f"{plugin.description}: {error}") from error
    except Exception as error:
        reason = sentence(f"{type(error).__name__}: {error}", 140)
        raise PluginError(f"{plugin.description} failed in {action} ({reason})") from error


@dataclass(frozen=True, slots=True)
class MetricScorer:
    """Scores a text by a plug-in's metric. Scoring raises PluginError if the metric fails or its result is invalid."""

    plugin: PluginInfo
    metric: Metric
    statistics: records.ActivationStatistics
    """statistics of the calibration text, per shard"""
    norms: records.WeightNorms
    """norms of the columns of down_proj and o_proj"""
    shape: records.ModelShape
    facts: WeightFacts | None = None
    """the result of `weigh_layers`, if the metric has a `weigh`"""

    def units(self, shards: Sequence[int] | None = None) -> records.UnitScores:
        """Return the scores of every unit on the text, or on the shards with these indices."""
        shape = self.shape
        chosen = range(self.statistics.shards) if shards is None else shards
        neurons = self.neurons(chosen)
        groups = self._score_layers("groups", self.metric.groups, "attention", shape.kv_heads, chosen)
        # each channel has the score of its group, so that the mean of a group's channels is that score
        channels = np.repeat(groups, shape.group_channels, axis=1)
        return records.UnitScores(self.plugin.name, self.statistics.text, neurons, groups, channels)

    def neurons(self, shards: Sequence[int]) -> Array:
        """Return the (layers, neurons) scores of neurons on some shards."""
        return self._score_layers("neurons", self.metric.neurons, "ffn", self.shape.neurons, shards)

    def measure_layer(self, part: str, layer: int, shards: Sequence[int]) -> Measured:
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
        return Measured(self.shape, layer, samples, int(counts.sum()), **arrays, facts=facts)

    def _score_layers(self, unit: str, function: Any, part: str, length: int, shards: Sequence[int]) -> Array:
        """Return (layers, length) scores."""
        scores = np.empty((self.shape.layers, length))
        for layer in range(self.shape.layers):
            measured = self.measure_layer(part, layer, shards)
            with name_plugin(self.plugin, unit):
                name = f"the scores of {unit} in layer {layer}"
                scores[layer] = _require_numbers(function(measured), name, length, may_be_negative=False)
        return scores


def weigh_layers(plugin: PluginInfo, metric: Metric, layers: Sequence[LayerWeights], progress: Any) -> WeightFacts:
    """Return the facts that a metric's `weigh` computes for every layer.

    Raises PluginError if it fails or its result is not valid.
    """
    shape, facts = layers[0].shape, list[Facts]()
    with name_plugin(plugin, "weigh"):
        for layer in layers:
            progress(layer.layer, len(layers), f"weights of layer {layer.layer + 1}")
            facts.append(metric.weigh(layer) if metric.weigh else Facts())
        neurons = _stack_facts([item.neurons for item in facts], "Facts.neurons", shape.neurons)
        channels = _stack_facts([item.channels for item in facts], "Facts.channels", shape.heads * shape.head_width)
    return WeightFacts(plugin.name, tuple(facts[0].neurons), neurons, tuple(facts[0].channels), channels)


def decide(plugin: PluginInfo, method: Method, problem: Problem) -> records.PruningMasks:
    """Return the masks that a method decides. Raises PluginError if it fails or its result is invalid."""
    shape = problem.shape
    with name_plugin(plugin, "decide"):
        units = method.decide(problem)
        _require_mask(units.neurons, "Kept.neurons", (shape.layers, shape.neurons))
        _require_mask(units.groups, "Kept.groups", (shape.layers, shape.kv_heads))
        reached = budget.retention(shape, units.neurons, units.groups)
        allowed = max(TOLERANCE, shape.group_weights / shape.decoder_weights)
        if abs(reached - problem.retention) > allowed:
            raise PluginError(
                f"its mask keeps {reached:.2%} of the decoder's weights instead of {problem.retention:.2%} (tolerance "
                f"{allowed:.2%}): methods are compared at the same size"
            )
    return records.PruningMasks(plugin.name, units.neurons, units.groups, reached, problem.retention)


def _stack_facts(facts: list[Mapping[str, Array]], name: str, length: int) -> Array:
    """Return (layers, facts, length) values; the second size may be 0."""
    rows = [[_require_numbers(layer[key], f"{name}[{key!r}]", length) for key in facts[0]] for layer in facts]
    return np.array(rows, dtype=np.float64).reshape(len(facts), -1, length)


def _require_numbers(values: Any, name: str, length: int, may_be_negative: bool = True) -> Array:
    """Return a plug-in's numbers as a float64 array. Raises PluginError if shape or values are not valid."""
    numbers: Array = np.asarray(values, dtype=np.float64)
    if numbers.shape != (length,):
        raise PluginError(f"{name} must have shape ({length},) (got {numbers.shape})")
    bad = np.flatnonzero(~np.isfinite(numbers))
    if bad.size:
        raise PluginError(
            f"{name} must be finite: {bad.size} of {length} are not, the first at {bad[0]} is {numbers[bad[0]]}"
        )
    if not may_be_negative and numbers.min() < 0:
        raise PluginError(
            f"{name} must be 0 or more, higher is more important: the lowest is {numbers.min():.6g}; take the "
            "size, or add a constant"
        )
    return numbers


def _require_mask(mask: Array, name: str, size: tuple[int, int]) -> None:
    if mask.dtype != np.bool_ or mask.shape != size:
        raise PluginError(f"{name} must be bool of shape {size}, True = kept (got {mask.dtype} of {mask.shape})")
    empty = np.flatnonzero(~mask.any(axis=1))
    if empty.size:
        raise PluginError(f"{name} keeps nothing in layer {empty[0]}: at least one must stay in every layer")
