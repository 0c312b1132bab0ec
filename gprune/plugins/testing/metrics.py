"""The contract of an importance metric."""

from collections.abc import Sequence

import numpy as np

from gprune.plugins import Metric
from gprune.plugins.calls import MetricScorer, weigh_layers
from gprune.plugins.testing import samples
from gprune.plugins.testing.samples import ContractError, describe_checked, report_case, require
from gprune.records import Array, ModelShape, UnitScores

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
            _score(metric, samples.extreme(shape), samples.weights(shape, largest=samples.HALF))
        with report_case(f"{case}, one token"):
            text = samples.text(shape)
            token = samples.Text(text.ffn[:, :1, :1], text.attention[:, :1, :1])
            _score(metric, token, samples.weights(shape), [[0]])


def _score(
    metric: Metric,
    text: samples.Text,
    weights: samples.Weights,
    split: Sequence[Sequence[int]] = samples.SHARDS,
    shards: Sequence[int] | None = None,
) -> UnitScores:
    return _scorer(metric, text, weights, split).units(shards)


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
    for again in (scorer.units(), _score(metric, samples.text(shape), samples.weights(shape))):
        require(
            np.array_equal(first.ffn, again.ffn) and np.array_equal(first.heads, again.heads),
            f"{case}: asked twice for the same scores, the metric answers differently: it must draw from no "
            "random numbers and keep nothing between calls",
        )
    constant = [layer for layer, row in enumerate(first.ffn) if np.ptp(row) == 0]
    require(
        not constant,
        f"{case}: all neurons of layer {constant[0] if constant else 0} have one score, though they differ in "
        "activations and weights",
    )


def _check_order(metric: Metric, shape: ModelShape, case: str) -> None:
    generator, text, weights = np.random.default_rng(3), samples.text(shape), samples.weights(shape)
    neurons, groups = generator.permutation(shape.neurons), generator.permutation(shape.kv_heads)
    same_neurons, same_groups = np.arange(shape.neurons), np.arange(shape.kv_heads)
    before = _score(metric, text, weights)
    same_channels = samples.spread(same_groups, shape.group_channels)
    after = _score(metric, text.permuted(neurons, same_channels), weights.permuted(neurons, same_groups))
    _require_close(
        after.ffn,
        before.ffn[:, neurons],
        f"{case}: with its neurons in another order, a layer does not have the same scores in that order: a "
        "score may not depend on a neuron's place",
    )
    channels = samples.spread(groups, shape.group_channels)
    after = _score(metric, text.permuted(same_neurons, channels), weights.permuted(same_neurons, groups))
    _require_close(
        after.heads,
        before.heads[:, groups],
        f"{case}: with its key/value groups in another order, a layer does not have the same scores in that "
        f"order: {shape.group_channels} channels of o_proj, side by side, make a group (Measured.grouped)",
    )


def _check_splits(metric: Metric, shape: ModelShape, case: str) -> None:
    text, weights = samples.text(shape), samples.weights(shape)
    expected = _score(metric, text, weights)
    for name, split in samples.SPLITS.items():
        message = f"{case}: the text split otherwise ({name}) has other scores: only its tokens may decide"
        _require_same(_score(metric, text, weights, split), expected, message)
    message = f"{case}: a part of the text has other scores than the same sequences as a text of their own"
    for shards in ([0, 2], [3]):
        sequences = [sequence for shard in shards for sequence in samples.SHARDS[shard]]
        expected = _score(metric, text.part(sequences), weights, [list(range(len(sequences)))])
        _require_same(_score(metric, text, weights, shards=shards), expected, message)


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
