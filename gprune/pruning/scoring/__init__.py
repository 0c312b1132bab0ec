"""Base importance metrics of units, from activation statistics and weight norms alone.

The metrics are the base scores of section 4 ("GPrune-LLM with FLAP, Wanda-sp, ..."). None of them needs the
model or another forward pass: a text, any half of it or any other subset of its shards is scored in
milliseconds. To add a metric, add a file with a function of the form ``Metric`` and a line in ``METRICS``.

A baseline scores its units from two texts at once by `combine` (appendix, multi-dataset calibration): scores,
or ranks within the layer, are averaged unit by unit. Pooling averages nothing: it scores the statistics of
both texts as one, and is not done in this module.

`neuron_scorer` is for what RASA and the resampling control ask for hundreds of times: attention, whose
merging takes time, is left out, and nothing is merged but what the metric reads. A layer at a time, so that
all it takes stays in a core's own cache. The numbers are those of `score` bit for bit.
"""

from collections.abc import Callable, Sequence

import numpy as np

from gprune.pruning.ranking import ranks
from gprune.pruning.scoring import flap, wanda_sp
from gprune.records import ActivationStatistics, Array, ModelShape, UnitScores, WeightNorms
from gprune.study import CalibrationSettings

Metric = Callable[[ActivationStatistics, WeightNorms, ModelShape, CalibrationSettings], UnitScores]
"""Scores statistics that have been merged into one shard."""

METRICS: dict[str, Metric] = {"flap": flap.score, "wanda_sp": wanda_sp.score}

SUMMED = ("wanda_sp",)
"""metrics whose key/value group sums its channels' scores; that of the others is their mean"""


def score(
    metric: str,
    statistics: ActivationStatistics,
    norms: WeightNorms,
    shape: ModelShape,
    settings: CalibrationSettings,
    shards: Array | Sequence[int] | None = None,
) -> UnitScores:
    """Return importance scores of neurons and key/value groups from a calibration set or some `shards` of it.

    Higher is more important. The released form of FLAP's fluctuation depends on the order of all samples and
    has no value on a part of them: parts are then scored by the plain token variance.

    Statistics and norms are those of one model.
    """
    merged = statistics.merge(None if shards is None else list(shards))
    is_complete = shards is None or len(set(shards)) == statistics.shards
    return METRICS[metric](merged, norms, shape, settings if is_complete else flap.plain(settings))


def combine_scores(scoring: str, primary: UnitScores, auxiliary: UnitScores, shape: ModelShape) -> UnitScores:
    """Average the scores of two texts by score_average, or by rank_average: ranks in the layer from 0.

    A key/value group follows from the averaged o_proj channels by the metric's own rule. Both scores are by one
    metric on one model.
    """
    ffn, channels = (
        _average(scoring, getattr(primary, part), getattr(auxiliary, part)) for part in ("ffn", "channels")
    )
    grouped = channels.reshape(shape.layers, shape.kv_heads, shape.group_channels)
    heads = grouped.sum(axis=-1) if primary.metric in SUMMED else grouped.mean(axis=-1)
    return UnitScores(primary.metric, f"{primary.text} + {auxiliary.text}", ffn, heads, channels)


def _average(scoring: str, first: Array, second: Array) -> Array:
    """Return (layers, units) mean of two score arrays or of their ranks."""
    if scoring == "rank_average":
        first, second = ranks(first), ranks(second)
    # halved before adding, so that no sum of large scores overflows
    return 0.5 * first + 0.5 * second


Parts = Callable[[Sequence[int]], Array]
"""(layers, neurons) scores of the shards of given indices."""

_LAYERS = {"flap": flap.flap_neurons, "wanda_sp": wanda_sp.wanda_sp_neurons}


def neuron_scorer(metric: str, statistics: ActivationStatistics, norms: WeightNorms) -> Parts:
    """Return a function that scores the neurons of chosen shards by a metric of ``METRICS``.

    The released form of FLAP has no value on a part of a text: parts are scored by the plain token variance.
    """
    score = _LAYERS[metric]

    def scored(shards: Sequence[int]) -> Array:
        index, scores = np.asarray(shards), np.empty(statistics.ffn_mean.shape[1:])
        for layer in range(len(scores)):
            scores[layer] = score(statistics, norms, index, layer)
        return scores

    return scored


def layer_scorer(metric: str, statistics: ActivationStatistics, norms: WeightNorms, layer: int) -> Parts:
    """Return a function that gives one layer's (neurons,) scores on the shards of given indices."""
    score = _LAYERS[metric]
    return lambda shards: score(statistics, norms, np.asarray(shards), layer)
