"""What every importance metric must hold to, whatever it computes."""

from collections.abc import Sequence

import numpy as np

from gprune.plugins import Metric
from gprune.plugins.calls import Asked, weighed
from gprune.plugins.discovery import Plugin
from gprune.plugins.testing import samples as made
from gprune.plugins.testing.samples import ContractError, declares, on, require
from gprune.records import Array, ModelShape, UnitScores

_CLOSE = 1e-9
"""relative difference that other orders of adding up may make"""


def check_metric(metric: Metric) -> None:
    """Checks a metric as its results will be used.

    Shapes, finite scores from 0, the same again, neurons and key/value groups in another order, any split of
    the text into batches and shards, parts of it, grouped-query attention, odd widths, values as large and as
    small as float16 has, channels that are always zero, one token.

    Args:
        metric: what the entry point names.

    Raises:
        ContractError: it does not hold; the message says what, and on what.
    """
    if not isinstance(metric, Metric):
        raise ContractError(f"a metric is a gprune.plugins.Metric (got {type(metric).__name__})")
    declares("metric", label=metric.label, allocation=metric.allocation)
    for case, shape in made.SHAPES.items():
        with on(case):
            _check_scores(metric, shape, case)
            _check_order(metric, shape, case)
            _check_splits(metric, shape, case)
    for case, shape in list(made.SHAPES.items())[:2]:
        words = f"{case}, activations and weights as large and as small as float16 has"
        with on(words):
            _score(metric, made.extreme(shape), made.weights(shape, largest=made.HALF))
        with on(f"{case}, one token"):
            one = made.text(shape).part([0])
            one = made.Text(one.ffn[:, :, :1], one.attention[:, :, :1])
            _score(metric, one, made.weights(shape), [[0]])


def _score(
    metric: Metric,
    text: made.Text,
    weights: made.Weights,
    split: Sequence[Sequence[int]] = made.SHARDS,
    shards: Sequence[int] | None = None,
) -> UnitScores:
    """The scores that a run would get."""
    return _asked(metric, text, weights, split).units(shards)


def _asked(
    metric: Metric, text: made.Text, weights: made.Weights, split: Sequence[Sequence[int]] = made.SHARDS
) -> Asked:
    plugin = Plugin("metric", "checked", metric.label, "this package", "0")
    facts = None
    if metric.weigh is not None:
        facts = weighed(plugin, metric, weights.layers(), lambda *_: None)
    return Asked(plugin, metric, text.statistics(split), weights.norms(), weights.shape, facts)


def _check_scores(metric: Metric, shape: ModelShape, case: str) -> None:
    """Shapes and values, the same again, and no score for all."""
    asked = _asked(metric, made.text(shape), made.weights(shape))
    first = asked.units()
    asked.units([0, 2])
    for again in (asked.units(), _score(metric, made.text(shape), made.weights(shape))):
        same = first.ffn.tobytes() == again.ffn.tobytes() and first.heads.tobytes() == again.heads.tobytes()
        require(
            same,
            f"{case}: asked twice for the same scores, the metric answers differently: it must draw from no "
            "random numbers and keep nothing between calls",
        )
    alike = [layer for layer, row in enumerate(first.ffn) if np.ptp(row) == 0]
    require(
        not alike,
        f"{case}: all neurons of layer {alike[0] if alike else 0} have one score, though they differ in "
        "activations and weights",
    )


def _check_order(metric: Metric, shape: ModelShape, case: str) -> None:
    """Units in another order have their scores in that order."""
    generator, text, weights = np.random.default_rng(3), made.text(shape), made.weights(shape)
    neurons, groups = generator.permutation(shape.neurons), generator.permutation(shape.kv_heads)
    same_neurons, same_groups = np.arange(shape.neurons), np.arange(shape.kv_heads)
    before = _score(metric, text, weights)
    after = _score(
        metric,
        text.moved(neurons, made.spread(same_groups, shape.group_channels)),
        weights.moved(neurons, same_groups),
    )
    _require_close(
        after.ffn,
        before.ffn[:, neurons],
        f"{case}: with its neurons in another order, a layer does not have the same scores in that order: a "
        "score may not depend on a neuron's place",
    )
    channels = made.spread(groups, shape.group_channels)
    _require_close(
        _score(metric, text.moved(same_neurons, channels), weights.moved(same_neurons, groups)).heads,
        before.heads[:, groups],
        f"{case}: with its key/value groups in another order, a layer does not have the same scores in that "
        f"order: {shape.group_channels} channels of o_proj, side by side, make a group (Measured.grouped)",
    )


def _check_splits(metric: Metric, shape: ModelShape, case: str) -> None:
    """However a text was split, and whichever part of it is scored, the tokens decide."""
    text, weights = made.text(shape), made.weights(shape)
    whole = _score(metric, text, weights)
    for name, split in made.SPLITS.items():
        found = _score(metric, text, weights, split)
        words = f"{case}: the text split otherwise ({name}) has other scores: only its tokens may decide"
        _require_close(found.ffn, whole.ffn, words)
        _require_close(found.heads, whole.heads, words)
    for shards in ([0, 2], [3]):
        samples = [sample for shard in shards for sample in made.SHARDS[shard]]
        alone = _score(metric, text.part(samples), weights, [list(range(len(samples)))])
        found = _score(metric, text, weights, shards=shards)
        words = f"{case}: a part of the text has other scores than the same sequences as a text of their own"
        _require_close(found.ffn, alone.ffn, words)
        _require_close(found.heads, alone.heads, words)


def _require_close(actual: Array, expected: Array, words: str) -> None:
    scale = np.abs(expected).max()
    worst = float(np.abs(actual - expected).max())
    require(worst <= _CLOSE * scale, f"{words} (they differ by up to {worst:.3g}, of scores up to {scale:.3g})")
