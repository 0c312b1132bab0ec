"""Check the contract of plug-ins of GPrune Studio, and the values of this metric."""

import numpy as np
from gprune_magnitude.method import ranking
from gprune_magnitude.metric import magnitude

from gprune.plugins.testing import SHAPES, check_method, check_metric, sample_weights


def test_the_metric_holds_the_contract():
    check_metric(magnitude)


def test_the_method_holds_the_contract():
    check_method(ranking)


def test_the_score_of_a_neuron_is_the_norm_of_its_weights():
    weights = sample_weights(SHAPES["multi-head attention"])
    layer = weights.layers()[0]
    facts = magnitude.weigh(layer)
    neuron_weights = np.concatenate([layer.gate[5], layer.up[5], layer.down[:, 5]]).astype(float)
    score = np.sqrt(facts.neurons["rows"][5] + weights.norms().down_column_square[0, 5])
    np.testing.assert_allclose(score, np.linalg.norm(neuron_weights), rtol=1e-6)
