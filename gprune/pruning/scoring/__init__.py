"""Compute base importance scores of units from activation statistics and weight norms.

The metrics are the base scores of section 4 ("GPrune-LLM with FLAP, Wanda-sp, ..."). None of them needs the
model or another forward pass, so a text, a half of it or any other subset of its shards is scored in milliseconds.

A metric is a module with these two functions; its label is in ``gprune.study.methods``:

    score(statistics, norms, shape, settings) -> UnitScores    from statistics merged into one shard
    score_neurons(statistics, norms, shards, layer) -> Array   (neurons,) scores of one layer on some shards

`combine_scores` scores the units of a baseline from two texts (appendix, multi-dataset calibration): it averages
scores, or ranks within the layer. Pooled scores come from the merged statistics of both texts instead.

`neuron_scorer` is a faster `score` for RASA and the resampling control, which score hundreds of subsets: it skips
attention and merges only the statistics that the metric reads, one layer at a time to stay in the CPU cache. The
numbers are equal bit for bit.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from gprune.pruning.ranking import ranks
from gprune.pruning.scoring import flap
from gprune.records import ActivationStatistics, Array, ModelShape, UnitScores, WeightNorms
from gprune.study import CalibrationSettings
from gprune.study.methods import BUILT_IN_METRICS, TWFLAP

METRICS: dict[str, Any] = {name: import_module(f"{__name__}.{name}") for name in BUILT_IN_METRICS if name != TWFLAP}
"""module of each metric except token-weighted FLAP, which needs statistics by context"""

SUMMED_METRICS = ("wanda_sp",)
"""metrics for which a key/value group's score is the sum over its channels; for the others it is the mean"""


def score(
    metric: str,
    statistics: ActivationStatistics,
    norms: WeightNorms,
    shape: ModelShape,
    settings: CalibrationSettings,
    shards: Array | Sequence[int] | None = None,
) -> UnitScores:
    """Return importance scores of neurons and key/value groups from a calibration set or some `shards` of it.

    Higher is more important. `shards` are indices; None: all. The released form of FLAP's fluctuation depends on the
    order of all samples and is not defined on a subset, so subsets are scored by the plain token variance. Statistics
    and norms must be of the same model.
    """
    merged = statistics.merge(None if shards is None else list(shards))
    is_complete = shards is None or len(set(shards)) == statistics.shards
    return METRICS[metric].score(merged, norms, shape, settings if is_complete else flap.plain(settings))


def combine_scores(scoring: str, primary: UnitScores, auxiliary: UnitScores, shape: ModelShape) -> UnitScores:
    """Return the mean of the scores of two texts (`score_average`) or of their ranks in the layer (`rank_average`).

    The score of a key/value group is computed from the averaged o_proj channels by the metric's rule. Both scores
    must be of the same metric and model.
    """
    ffn, channels = (
        _average_scores(scoring, getattr(primary, part), getattr(auxiliary, part)) for part in ("ffn", "channels")
    )
    grouped = channels.reshape(shape.layers, shape.kv_heads, shape.group_channels)
    heads = grouped.sum(axis=-1) if primary.metric in SUMMED_METRICS else grouped.mean(axis=-1)
    return UnitScores(primary.metric, f"{primary.text} + {auxiliary.text}", ffn, heads, channels)


def _average_scores(scoring: str, first: Array, second: Array) -> Array:
    """Return (layers, units) mean of two score arrays or of their ranks."""
    if scoring == "rank_average":
        first, second = ranks(first), ranks(second)
    # halved before they are added, so that sums of large scores do not overflow
    return 0.5 * first + 0.5 * second


ShardScorer = Callable[[Sequence[int]], Array]
"""indices of shards -> (layers, neurons) or (neurons,) scores"""


def neuron_scorer(metric: str, statistics: ActivationStatistics, norms: WeightNorms) -> ShardScorer:
    """Return a function from shard indices to (layers, neurons) scores by a metric of ``METRICS``.

    FLAP always uses the plain token variance, because the released form is not defined on a subset of a text.
    """
    score = METRICS[metric].score_neurons

    def score_shards(shards: Sequence[int]) -> Array:
        index, scores = np.asarray(shards), np.empty(statistics.ffn_mean.shape[1:])
        for layer in range(len(scores)):
            scores[layer] = score(statistics, norms, index, layer)
        return scores

    return score_shards


def layer_scorer(metric: str, statistics: ActivationStatistics, norms: WeightNorms, layer: int) -> ShardScorer:
    """Return a function from shard indices to the (neurons,) scores of one layer."""
    score = METRICS[metric].score_neurons
    return lambda shards: score(statistics, norms, np.asarray(shards), layer)
