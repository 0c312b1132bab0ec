"""Checks of a plug-in's contract for its author's tests; each check is one call and reports a fault in a sentence.

    from gprune.testing import check_method, check_metric

    def test_my_metric():
        check_metric(my_package.metric)

The checks take seconds, need no network, and use random texts and weights of small, odd shapes. The inputs of down_proj
and o_proj are sampled directly, so that channels can be reordered and values set to the limits of float16.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from gprune.plugins import LayerWeights, Method, Metric, Problem
from gprune.plugins.calls import MetricScorer, decide, weigh_layers
from gprune.plugins.registry import PluginInfo, describe
from gprune.records import ActivationStatistics, Array, ModelShape, PruningMasks, UnitScores, WeightNorms
from gprune.system.errors import GpruneError

RETENTIONS = (0.4, 0.6, 0.85)
_MODELS = (("llama", "float32"), ("qwen2", "float16"))
"""families and number types of the random models for methods that need a model"""
_SIZES = {"layers": 2, "hidden": 16, "neurons": 61, "heads": 4, "kv_heads": 2, "head_width": 4}
_TOLERANCE = 1e-9
"""relative difference that another order of summation may cause"""
SAMPLES, LENGTH = 12, 5
"""sequences of a random text, and tokens of each"""
SHARDS = [list(range(first, first + 3)) for first in range(0, SAMPLES, 3)]
SHAPES = {
    "multi-head attention": ModelShape(layers=4, neurons=96, heads=8, kv_heads=8, head_width=2, hidden=16),
    "grouped-query attention and odd widths": ModelShape(3, 61, 6, 3, 3, 7),
    "one layer": ModelShape(1, 53, 4, 4, 2, 6),
}
"""models for which units can meet a retention, by description"""
_ARRAYS = ("mean", "variance", "energy", "column_square", "column_absolute")
FLOAT16_MAX = float(np.finfo(np.float16).max)


class ContractError(AssertionError):
    """A plug-in fails a check; the message names the check, the input and the remedy."""


def require(condition: bool, message: str) -> None:
    """Raise ContractError if a condition is False."""
    if not condition:
        raise ContractError(message)


@contextmanager
def report_case(case: str) -> Iterator[None]:
    """Turn an error about a plug-in into a ContractError that names the case."""
    try:
        yield
    except GpruneError as error:
        raise ContractError(f"{case}: {error}") from error


def describe_checked(code: Metric | Method) -> PluginInfo:
    """Return the description of a plug-in under test. Raises ContractError if one of its fields is not valid."""
    with report_case(f"the declaration of the {type(code).__name__.lower()}"):
        return describe(code, "checked", "this package", "0")


def check_metric(metric: Metric) -> None:
    """Check the scores of a metric as a run uses them.

    The checks cover shapes, finite scores from 0, repeated calls, reordered neurons and key/value groups,
    grouped-query attention, odd widths, the largest and smallest values of float16, channels that are always zero,
    and a single token.

    Args:
        metric: the object that the entry point names.

    Raises:
        ContractError: the metric fails a check; the message says which, and on what input.
    """
    describe_checked(metric)
    for case, shape in SHAPES.items():
        with report_case(case):
            _check_scores(metric, shape, case)
            _check_order(metric, shape, case)
    for case, shape in list(SHAPES.items())[:2]:
        with report_case(f"{case}, largest and smallest activations and weights of float16"):
            _scorer(metric, extreme_text(shape), sample_weights(shape, largest=FLOAT16_MAX)).units()
        with report_case(f"{case}, one token"):
            text = sample_text(shape)
            token = Text(text.ffn[:, :1, :1], text.attention[:, :1, :1])
            _scorer(metric, token, sample_weights(shape), [[0]]).units()


def check_method(method: Method, *, draws: bool = False) -> None:
    """Check the decisions of a method as a run uses them.

    The checks cover shapes and types, a kept unit of each kind in every layer, the retention, repeated calls, and
    reordered neurons. The scores differ by many orders of magnitude, or are equal. A method that gets the model is
    checked on small random models, also in float16.

    Args:
        method: the object that the entry point names.
        draws: True for a method that draws random numbers, so that the order of neurons changes its decision.

    Raises:
        ContractError: the method fails a check; the message says which, and on what input.
    """
    plugin = describe_checked(method)
    if method.needs == "scores":
        for case, retention in itertools.product(SHAPES, RETENTIONS):
            _check_on_scores(plugin, method, SHAPES[case], retention, f"{case}, retention {retention}", draws)
        return
    for (family, dtype), retention in itertools.product(_MODELS, RETENTIONS[1:]):
        _check_on_model(plugin, method, family, dtype, retention)


def _scorer(metric: Metric, text: Text, weights: Weights, split: Sequence[Sequence[int]] = SHARDS) -> MetricScorer:
    plugin = describe_checked(metric)
    facts = weigh_layers(plugin, metric, weights.layers(), lambda *_: None) if metric.weigh else None
    return MetricScorer(plugin, metric, text.statistics(split), weights.norms(), weights.shape, facts)


def _check_scores(metric: Metric, shape: ModelShape, case: str) -> None:
    scorer = _scorer(metric, sample_text(shape), sample_weights(shape))
    first = scorer.units()
    scorer.units([0, 2])
    for again in (scorer.units(), _scorer(metric, sample_text(shape), sample_weights(shape)).units()):
        require(
            np.array_equal(first.ffn, again.ffn) and np.array_equal(first.heads, again.heads),
            f"{case}: the metric returns different scores for the same input: it must draw no "
            "random numbers and keep no state between calls",
        )
    for layer, row in enumerate(first.ffn):
        require(
            np.ptp(row) > 0,
            f"{case}: all neurons of layer {layer} have the same score, although their activations and weights differ",
        )


def _check_order(metric: Metric, shape: ModelShape, case: str) -> None:
    scorer, generator = _scorer(metric, sample_text(shape), sample_weights(shape)), np.random.default_rng(3)
    advice = f"{shape.group_channels} channels of o_proj, side by side, make a group (Measured.grouped)"
    for part, unit, function, count, width in (
        ("ffn", "neuron", metric.neurons, shape.neurons, 1),
        ("attention", "key/value group", metric.groups, shape.kv_heads, shape.group_channels),
    ):
        order, before = generator.permutation(count), scorer.measure_layer(part, 0, range(len(SHARDS)))
        channels = (order[:, None] * width + np.arange(width)).ravel()
        arrays = {name: getattr(before, name)[channels] for name in _ARRAYS}
        facts = {name: values[channels] for name, values in before.facts.items()}
        _require_close(
            np.asarray(function(replace(before, **arrays, facts=facts))),
            np.asarray(function(before))[order],
            f"{case}: with its {unit}s in another order, a layer does not have the same scores in that order: a "
            f"score must not depend on the position of a {unit}; {advice}",
        )


def _require_close(actual: Array, expected: Array, message: str) -> None:
    scale = np.abs(expected).max()
    difference = float(np.abs(actual - expected).max())
    require(
        difference <= _TOLERANCE * scale,
        f"{message} (the scores differ by up to {difference:.3g}; the largest score is {scale:.3g})",
    )


def _check_on_scores(
    plugin: PluginInfo, method: Method, shape: ModelShape, retention: float, case: str, draws: bool
) -> None:
    def problem(*scores: UnitScores) -> Problem:
        return Problem(shape, retention, 0, scores=scores[: 2 if method.texts == "both" else 1])

    plain = problem(sample_scores(shape, 2), sample_scores(shape, 3))
    first = _decide_twice(plugin, method, plain, case)
    for power, description in ((12.0, "scores of many orders of magnitude"), (0.0, "equal scores")):
        scores = sample_scores(shape, 4, power)
        _decide_once(plugin, method, problem(scores, scores), f"{case}, {description}")
    if draws:
        return
    order = np.random.default_rng(6).permutation(shape.neurons)
    permuted = problem(*(replace(scores, ffn=scores.ffn[:, order]) for scores in plain.scores))
    require(
        np.array_equal(_decide_once(plugin, method, permuted, case).ffn, first.ffn[:, order]),
        f"{case}: with the neurons in another order the method keeps other neurons: a decision must not depend on the "
        "position of a neuron, unless the method draws (check_method(..., draws=True))",
    )


def _check_on_model(plugin: PluginInfo, method: Method, family: str, dtype: str, retention: float) -> None:
    import torch

    from gprune.models.tiny import tiny_decoder

    decoder = tiny_decoder(family, **_SIZES, dtype=getattr(torch, dtype))
    generator = np.random.default_rng(7)
    count = 2 if method.texts == "both" else 1
    tokens = tuple(generator.integers(3, 64, (8, 12)).astype(np.int32) for _ in range(count))
    scores = tuple(sample_scores(decoder.shape, seed) for seed in range(2, 2 + count))
    problem = Problem(decoder.shape, retention, 0, scores if method.needs == "both" else (), decoder.model, tokens)
    _decide_twice(plugin, method, problem, f"{family}, {dtype}, retention {retention}")


def _decide_twice(plugin: PluginInfo, method: Method, problem: Problem, case: str) -> PruningMasks:
    first, second = (_decide_once(plugin, method, problem, case) for _ in range(2))
    require(
        np.array_equal(first.ffn, second.ffn) and np.array_equal(first.heads, second.heads),
        f"{case}: the method decides differently for the same input: draw from np.random.default_rng(problem.seed) "
        "alone, and keep no state between calls",
    )
    return first


def _decide_once(plugin: PluginInfo, method: Method, problem: Problem, case: str) -> PruningMasks:
    with report_case(case):
        return decide(plugin, method, problem)


@dataclass(frozen=True, slots=True, eq=False)
class Text:
    """All activations of a text."""

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


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """The matrices of every layer by name, each of shape (layers, out, in)."""

    shape: ModelShape
    matrices: dict[str, Array]

    def layers(self) -> list[LayerWeights]:
        """Return the weights of every layer, as the metric's `weigh` receives them."""
        matrices = [dict(zip(self.matrices, layer, strict=True)) for layer in zip(*self.matrices.values(), strict=True)]
        return [LayerWeights(self.shape, layer, by_name.__getitem__) for layer, by_name in enumerate(matrices)]

    def norms(self) -> WeightNorms:
        """Return the norms that every metric receives."""
        down, out = (self.matrices[name].astype(np.float64) for name in ("down", "out"))
        return WeightNorms((down**2).sum(axis=1), abs(down).mean(axis=1), (out**2).sum(axis=1), abs(out).mean(axis=1))


def sample_text(shape: ModelShape, seed: int = 0) -> Text:
    """Return a random text whose channels differ in mean and variance, as in a model."""
    generator, inputs = np.random.default_rng(seed), []
    for width in (shape.neurons, shape.heads * shape.head_width):
        spreads = generator.gamma(2.0, 1.0, (shape.layers, 1, 1, width))
        inputs.append(generator.normal(0.4, 1.0, (shape.layers, SAMPLES, LENGTH, width)) * spreads)
    return Text(*inputs)


def extreme_text(shape: ModelShape) -> Text:
    """Return a text with the largest and the smallest values of float16, and channels that are always zero."""
    text = sample_text(shape, 5)
    for values in (text.ffn, text.attention):
        values[..., 0] = FLOAT16_MAX * np.sign(values[..., 0])
        # the smallest positive float16
        values[..., 1] = 6e-8
        values[..., 2] = 0.0
    return text


def sample_weights(shape: ModelShape, seed: int = 1, largest: float = 0.0) -> Weights:
    """Return random float32 weights.

    If `largest` is set, all weights of neuron 0 and channel 0 have this value, and those of neuron and channel 2 are 0.
    """
    generator, hidden = np.random.default_rng(seed), shape.hidden
    queries, keys = shape.heads * shape.head_width, shape.kv_heads * shape.head_width
    units = {"gate": shape.neurons, "up": shape.neurons, "query": queries, "key": keys, "value": keys}
    sizes = {name: (count, hidden) for name, count in units.items()}
    sizes |= {"down": (hidden, shape.neurons), "out": (hidden, queries)}
    matrices = {name: generator.normal(0, 0.3, (shape.layers, *size)) for name, size in sizes.items()}
    if largest:
        for name, values in matrices.items():
            rows = values.swapaxes(1, 2) if name in ("down", "out") else values
            rows[:, min(2, rows.shape[1] - 1)] = 0.0
            rows[:, 0] = largest
    return Weights(shape, {name: values.astype(np.float32) for name, values in matrices.items()})


def sample_scores(shape: ModelShape, seed: int = 2, power: float = 1.0) -> UnitScores:
    """Return random scores of every unit, raised to `power`, which increases their range; equal if it is 0."""
    generator = np.random.default_rng(seed)
    sizes = ((shape.layers, shape.neurons), (shape.layers, shape.kv_heads))
    ffn, groups = (generator.gamma(1.0, 1.0, size) ** power for size in sizes)
    channels = np.repeat(groups, shape.group_channels, axis=1)
    return UnitScores("made_up", "a made-up text", ffn, groups, channels)
