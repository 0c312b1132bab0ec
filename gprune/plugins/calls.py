"""Ask a plug-in for scores, for facts of the weights and for a decision, and check the answer."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from gprune.plugins.interface import Facts, Kept, LayerWeights, Measured, Method, Metric, Problem
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
from gprune.system.safe_parsing import quoted, sentence

_COLUMNS = {"ffn": "down", "attention": "out"}
"""part of the statistics: the projection whose inputs it measures"""
TOLERANCE = 0.005
"""fraction of the weights by which a method may miss its retention; one key/value group may weigh more"""


@contextmanager
def name_plugin(plugin: PluginInfo, action: str) -> Iterator[None]:
    """Turn what a plug-in raises in an action, or what is wrong with its answer, into a PluginError that names it."""
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
    """Score a text by a plug-in's metric. Scoring raises PluginError where the metric fails or an answer is invalid."""

    plugin: PluginInfo
    metric: Metric
    statistics: ActivationStatistics
    """of the calibration text, per shard"""
    norms: WeightNorms
    """of the columns of down_proj and o_proj"""
    shape: ModelShape
    facts: WeightFacts | None = None
    """the result of `weigh_layers`, where the metric has a `weigh`"""

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
            measured = self.measured(part, layer, shards)
            with name_plugin(self.plugin, unit):
                scores[layer] = _require_scores(function(measured), f"the scores of {unit} in layer {layer}", length)
        return scores


def weigh_layers(plugin: PluginInfo, metric: Metric, layers: Sequence[LayerWeights], progress: Any) -> WeightFacts:
    """Return the facts that a metric's `weigh` computes of every layer.

    Raises PluginError where it fails, or an answer is not valid.
    """
    facts: list[Facts] = []
    for layer in layers:
        progress(layer.layer, len(layers), f"weights of layer {layer.layer + 1}")
        with name_plugin(plugin, "weigh"):
            facts.append(_require_facts(metric.weigh(layer) if metric.weigh else Facts(), layer.shape))
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
    with name_plugin(plugin, "decide"):
        kept = _require_kept(method.decide(problem), problem.shape, problem.retention)
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


def _require_numbers(values: Any, name: str, length: int) -> Array:
    if not isinstance(values, np.ndarray):
        raise PluginError(f"{name} must be a numpy array (got {type(values).__name__})")
    if values.dtype.kind not in "fiu":
        raise PluginError(f"{name} must be numbers (got an array of {values.dtype})")
    if values.shape != (length,):
        raise PluginError(f"{name} must have shape ({length},) (got {values.shape})")
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise PluginError(
            f"{name} must be finite: {bad.size} of {length} are not, the first at {int(bad[0])} is {values[bad[0]]}"
        )
    return values.astype(np.float64)


def _require_scores(values: Any, name: str, length: int) -> Array:
    scores = _require_numbers(values, name, length)
    if scores.size and scores.min() < 0:
        raise PluginError(
            f"{name} must be 0 or more, higher is more important: the lowest is {scores.min():.6g}; take the "
            "size, or add a constant"
        )
    return scores


def _require_facts(facts: Any, shape: ModelShape) -> Facts:
    if not isinstance(facts, Facts):
        raise PluginError(f"weigh must return gprune.plugins.Facts (got {quoted(facts, 60)})")
    channels = shape.heads * shape.head_width
    return Facts(_named(facts.neurons, "neurons", shape.neurons), _named(facts.channels, "channels", channels))


def _named(arrays: Any, part: str, length: int) -> Mapping[str, Array]:
    if not isinstance(arrays, Mapping) or not all(isinstance(name, str) for name in arrays):
        raise PluginError(f"Facts.{part} must be arrays by name (got {quoted(arrays, 60)})")
    return {name: _require_numbers(values, f"Facts.{part}[{name!r}]", length) for name, values in arrays.items()}


def _require_kept(kept: Any, shape: ModelShape, retention: float) -> Kept:
    if not isinstance(kept, Kept):
        raise PluginError(f"decide must return gprune.plugins.Kept (got {quoted(kept, 60)})")
    _require_mask(kept.neurons, "Kept.neurons", (shape.layers, shape.neurons))
    _require_mask(kept.groups, "Kept.groups", (shape.layers, shape.kv_heads))
    reached = budget.retention(shape, kept.neurons, kept.groups)
    allowed = max(TOLERANCE, shape.group_weights / shape.decoder_weights)
    if abs(reached - retention) > allowed:
        raise PluginError(
            f"what it keeps weighs {reached:.2%} of the decoder where {retention:.2%} were asked for, and "
            f"may miss that by {allowed:.2%}: methods are compared at one size"
        )
    return kept


def _require_mask(mask: Any, name: str, size: tuple[int, int]) -> None:
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != size:
        got = f"{mask.dtype} of {mask.shape}" if isinstance(mask, np.ndarray) else type(mask).__name__
        raise PluginError(f"{name} must be bool of shape {size}, True = kept (got {got})")
    empty = np.flatnonzero(~mask.any(axis=1))
    if empty.size:
        raise PluginError(f"{name} keeps nothing in layer {int(empty[0])}: at least one must stay in every layer")
