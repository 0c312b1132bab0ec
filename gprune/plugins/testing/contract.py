"""The contract of importance metrics and pruning methods."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gprune.plugins import Method, Metric, Problem
from gprune.plugins.calls import MetricScorer, decide, weigh_layers
from gprune.plugins.registry import PluginInfo
from gprune.plugins.testing import samples
from gprune.plugins.testing.samples import ContractError, describe_checked, report_case, require
from gprune.records import Array, ModelShape, PruningMasks, UnitScores

RETENTIONS = (0.4, 0.6, 0.85)
_MODELS = {"llama, float32": ("llama", "float32"), "qwen2, float16": ("qwen2", "float16")}
_SIZES = {"layers": 2, "hidden": 16, "neurons": 61, "heads": 4, "kv_heads": 2, "head_width": 4}
_TOLERANCE = 1e-9
"""relative difference that another order of summation may make"""


def check_metric(metric: Metric) -> None:
    """Check the scores of a metric as a run uses them.

    Shapes, finite scores from 0, the same scores when asked again, neurons and key/value groups in another order,
    any split of the text into batches and shards, parts of it, grouped-query attention, odd widths, values as
    large and as small as float16 has, channels that are always zero, one token.

    Args:
        metric: the object that the entry point names.

    Raises:
        ContractError: the metric fails a check; the message says which, and on what input.
    """
    if not isinstance(metric, Metric):
        raise ContractError(f"a metric is a gprune.plugins.Metric (got {type(metric).__name__})")
    describe_checked(metric)
    for case, shape in samples.SHAPES.items():
        with report_case(case):
            _check_scores(metric, shape, case)
            _check_order(metric, shape, case)
            _check_splits(metric, shape, case)
    for case, shape in list(samples.SHAPES.items())[:2]:
        with report_case(f"{case}, activations and weights as large and as small as float16 has"):
            _scorer(metric, samples.extreme(shape), samples.weights(shape, largest=samples.HALF)).units()
        with report_case(f"{case}, one token"):
            text = samples.text(shape)
            token = samples.Text(text.ffn[:, :1, :1], text.attention[:, :1, :1])
            _scorer(metric, token, samples.weights(shape), [[0]]).units()


def check_method(method: Method, *, draws: bool = False) -> None:
    """Check the decisions of a method as a run uses them.

    Shapes and types, a unit of each kind in every layer, the retention, the same decision when asked again; on
    scores that differ by many orders of magnitude and on equal scores; with neurons in another order. A method
    that gets the model is checked on small random ones, in float16 too.

    Args:
        method: the object that the entry point names.
        draws: True for a method that draws random numbers, so that the order of neurons changes its decision.

    Raises:
        ContractError: the method fails a check; the message says which, and on what input.
    """
    if not isinstance(method, Method):
        raise ContractError(f"a method is a gprune.plugins.Method (got {type(method).__name__})")
    plugin = describe_checked(method)
    if method.needs == "scores":
        for case, shape in samples.WIDER.items():
            for retention in RETENTIONS:
                _check_on_scores(plugin, method, shape, retention, f"{case}, retention {retention}", draws)
        return
    for case, (family, dtype) in _MODELS.items():
        for retention in RETENTIONS[1:]:
            _check_on_model(plugin, method, family, dtype, retention, f"{case}, retention {retention}")


def _scorer(
    metric: Metric, text: samples.Text, weights: samples.Weights, split: Sequence[Sequence[int]] = samples.SHARDS
) -> MetricScorer:
    plugin = describe_checked(metric)
    facts = None
    if metric.weigh is not None:
        facts = weigh_layers(plugin, metric, weights.layers(), lambda *_: None)
    return MetricScorer(plugin, metric, text.statistics(split), weights.norms(), weights.shape, facts)


def _check_scores(metric: Metric, shape: ModelShape, case: str) -> None:
    scorer = _scorer(metric, samples.text(shape), samples.weights(shape))
    first = scorer.units()
    scorer.units([0, 2])
    for again in (scorer.units(), _scorer(metric, samples.text(shape), samples.weights(shape)).units()):
        require(
            np.array_equal(first.ffn, again.ffn) and np.array_equal(first.heads, again.heads),
            f"{case}: asked twice for the same scores, the metric answers differently: it must draw from no "
            "random numbers and keep nothing between calls",
        )
    for layer, row in enumerate(first.ffn):
        require(
            np.ptp(row) > 0,
            f"{case}: all neurons of layer {layer} have one score, though they differ in activations and weights",
        )


def _check_order(metric: Metric, shape: ModelShape, case: str) -> None:
    generator, text, weights = np.random.default_rng(3), samples.text(shape), samples.weights(shape)
    neurons, groups = generator.permutation(shape.neurons), generator.permutation(shape.kv_heads)
    before = _scorer(metric, text, weights).units()
    channels = samples.spread(groups, shape.group_channels)
    after = _scorer(metric, text.permuted(neurons, channels), weights.permuted(neurons, groups)).units()
    _require_close(
        after.ffn,
        before.ffn[:, neurons],
        f"{case}: with its neurons in another order, a layer does not have the same scores in that order: a "
        "score may not depend on a neuron's place",
    )
    _require_close(
        after.heads,
        before.heads[:, groups],
        f"{case}: with its key/value groups in another order, a layer does not have the same scores in that "
        f"order: {shape.group_channels} channels of o_proj, side by side, make a group (Measured.grouped)",
    )


def _check_splits(metric: Metric, shape: ModelShape, case: str) -> None:
    text, weights = samples.text(shape), samples.weights(shape)
    scorer = _scorer(metric, text, weights)
    for name, split in samples.SPLITS.items():
        message = f"{case}: the text split otherwise ({name}) has other scores: only its tokens may decide"
        _require_same(_scorer(metric, text, weights, split).units(), scorer.units(), message)
    message = f"{case}: a part of the text has other scores than the same sequences as a text of their own"
    for shards in ([0, 2], [3]):
        sequences = [sequence for shard in shards for sequence in samples.SHARDS[shard]]
        alone = _scorer(metric, text.part(sequences), weights, [list(range(len(sequences)))])
        _require_same(scorer.units(shards), alone.units(), message)


def _require_same(actual: UnitScores, expected: UnitScores, message: str) -> None:
    _require_close(actual.ffn, expected.ffn, message)
    _require_close(actual.heads, expected.heads, message)


def _require_close(actual: Array, expected: Array, message: str) -> None:
    scale = np.abs(expected).max()
    difference = float(np.abs(actual - expected).max())
    require(
        difference <= _TOLERANCE * scale,
        f"{message} (they differ by up to {difference:.3g}, of scores up to {scale:.3g})",
    )


def _check_on_scores(
    plugin: PluginInfo, method: Method, shape: ModelShape, retention: float, case: str, draws: bool
) -> None:
    def problem(*scores: UnitScores) -> Problem:
        return Problem(shape, retention, 0, scores=scores[: 2 if method.texts == "both" else 1])

    plain = problem(samples.scores(shape, 2), samples.scores(shape, 3))
    first = _decide_twice(plugin, method, plain, case)
    steep = samples.scores(shape, 4, power=12.0)
    _decide(plugin, method, problem(steep, steep), f"{case}, scores of many orders of magnitude")
    equal = samples.scores(shape, 2, power=0.0)
    _decide(plugin, method, problem(equal, equal), f"{case}, equal scores")
    if draws:
        return
    order = np.random.default_rng(6).permutation(shape.neurons)
    permuted = problem(*(replace(scores, ffn=scores.ffn[:, order]) for scores in plain.scores))
    require(
        np.array_equal(_decide(plugin, method, permuted, case).ffn, first.ffn[:, order]),
        f"{case}: with the neurons in another order the method keeps others: a decision may not depend on a "
        "neuron's place, unless the method draws (check_method(..., draws=True))",
    )


def _check_on_model(plugin: PluginInfo, method: Method, family: str, dtype: str, retention: float, case: str) -> None:
    import torch

    from gprune.models.tiny import tiny_decoder

    decoder = tiny_decoder(family, **_SIZES, dtype=getattr(torch, dtype))
    generator = np.random.default_rng(7)
    count = 2 if method.texts == "both" else 1
    tokens = tuple(generator.integers(3, 64, (8, 12)).astype(np.int32) for _ in range(count))
    scores = tuple(samples.scores(decoder.shape, seed) for seed in range(2, 2 + count))
    problem = Problem(decoder.shape, retention, 0, scores if method.needs == "both" else (), decoder.model, tokens)
    _decide_twice(plugin, method, problem, case)


def _decide_twice(plugin: PluginInfo, method: Method, problem: Problem, case: str) -> PruningMasks:
    first, second = (_decide(plugin, method, problem, case) for _ in range(2))
    require(
        np.array_equal(first.ffn, second.ffn) and np.array_equal(first.heads, second.heads),
        f"{case}: asked twice, the method decides differently: draw from np.random.default_rng(problem.seed) "
        "alone, and keep nothing between calls",
    )
    return first


def _decide(plugin: PluginInfo, method: Method, problem: Problem, case: str) -> PruningMasks:
    with report_case(case):
        return decide(plugin, method, problem)
