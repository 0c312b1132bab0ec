"""How important is each unit? Base importance metrics, from activation statistics and weight norms alone.

The metrics are the base scores of section 4 ("GPrune-LLM with FLAP, Wanda-sp, ..."). None of them needs the
model or another forward pass: a text, any half of it or any other subset of its shards is scored in
milliseconds. To add a metric, add a file with a function of the form ``Metric`` and a line in ``METRICS``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gprune.pruning.scoring import flap, wanda_sp
from gprune.records import ActivationStatistics, Array, ModelShape, UnitScores, WeightNorms
from gprune.study import CalibrationSettings
from gprune.system.errors import ModelError, SettingsError

Metric = Callable[[ActivationStatistics, WeightNorms, ModelShape, CalibrationSettings], UnitScores]
"""Scores statistics that have been merged into one shard."""

METRICS: dict[str, Metric] = {"flap": flap.score, "wanda_sp": wanda_sp.score}


def score(
    metric: str,
    statistics: ActivationStatistics,
    norms: WeightNorms,
    shape: ModelShape,
    settings: CalibrationSettings,
    shards: Array | Sequence[int] | None = None,
) -> UnitScores:
    """Importance scores of a calibration set, or of some of its shards.

    Args:
        metric: name in ``METRICS``.
        statistics: of the whole calibration set, per shard.
        norms: column norms of down_proj and o_proj.
        shape: the dense model.
        settings: which form of FLAP is wanted.
        shards: indices of the shards to score; all by default. The released form of FLAP's fluctuation
            depends on the order of all samples and has no value on a part of them: parts are then scored by
            the plain token variance.

    Returns:
        Scores of every neuron and key/value group; higher is more important.

    Raises:
        SettingsError: the metric is unknown, or no shard is chosen.
        ModelError: the statistics or norms belong to a model of another shape.
    """
    if metric not in METRICS:
        raise SettingsError(f"no metric is called {metric!r}: choose one of {', '.join(METRICS)}")
    if shards is not None and len(shards) == 0:
        raise SettingsError("no shard was chosen to score (got an empty list): choose at least one")
    _require_fit(statistics, norms, shape)
    merged = statistics.merge(None if shards is None else list(shards))
    whole = shards is None or len(set(shards)) == statistics.shards
    return METRICS[metric](merged, norms, shape, settings if whole else flap.plain(settings))


def _require_fit(statistics: ActivationStatistics, norms: WeightNorms, shape: ModelShape) -> None:
    expected = {
        "ffn_mean": (shape.layers, shape.neurons),
        "attention_mean": (shape.layers, shape.heads * shape.head_width),
    }
    for name, size in expected.items():
        actual = getattr(statistics, name).shape[1:]
        if actual != size:
            raise ModelError(
                f"the statistics' {name} covers {actual} layers and channels, but the model has {size}: "
                "collect them again with this model"
            )
    for name, size in (
        ("down_column_square", expected["ffn_mean"]),
        ("out_column_square", expected["attention_mean"]),
    ):
        actual = getattr(norms, name).shape
        if actual != size:
            raise ModelError(
                f"the weight norms' {name} is {actual}, but the model has {size}: compute them again"
            )
