"""Scores of neurons alone are those of the whole units, bit for bit."""

from itertools import combinations

import numpy as np
import pytest

from gprune.pruning import scoring
from gprune.pruning.scoring import neuron_scorer
from gprune.records import ActivationStatistics, ModelShape, WeightNorms
from gprune.study import CalibrationSettings

SHAPE = ModelShape(layers=3, neurons=37, heads=4, kv_heads=2, head_width=2, hidden=8)
SHARDS = 6


def measured():
    generator = np.random.default_rng(0)
    ffn, attention = (SHARDS, 3, 37), (SHARDS, 3, 8)
    moments = {
        f"{part}_{kind}": generator.lognormal(0, 3, size)
        for part, size in (("ffn", ffn), ("attention", attention))
        for kind in ("mean", "moment", "energy")
    }
    released = {
        f"{part}_released_fluctuation": generator.random((3, n))
        for part, n in (("ffn", 37), ("attention", 8))
    }
    tokens = generator.integers(50, 90, SHARDS)
    statistics = ActivationStatistics("t", "f", tokens // 5, tokens, **moments, **released)
    squares = [generator.lognormal(0, 1, (3, n)) for n in (37, 37, 8, 8)]
    return statistics, WeightNorms(*squares)


@pytest.mark.parametrize("metric", scoring.METRICS)
def test_every_choice_of_shards_is_scored_as_the_units_are(metric):
    statistics, norms = measured()
    settings = CalibrationSettings(flap_variant="released")
    score = neuron_scorer(metric, statistics, norms)
    for count in (1, 3, 5):
        for shards in combinations(range(SHARDS), count):
            whole = scoring.score(metric, statistics, norms, SHAPE, settings, shards)
            np.testing.assert_array_equal(score(shards), whole.ffn)
