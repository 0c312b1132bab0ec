"""The contract that GPrune Studio asks of every plug-in, and what this one is about."""

import numpy as np
from gprune_magnitude.method import ranking
from gprune_magnitude.metric import magnitude

from gprune.plugins.testing import SHAPES, check_method, check_metric, sample_weights


def test_the_metric_holds_the_contract():
    check_metric(magnitude)


def test_the_method_holds_the_contract():
    check_method(ranking)


def test_a_neuron_is_as_large_as_all_of_its_weights():
    weights = sample_weights(SHAPES["multi-head attention"])
    layer = weights.layers()[0]
    facts = magnitude.weigh(layer)
    whole = np.concatenate([layer.gate[5], layer.up[5], layer.down[:, 5]]).astype(float)
    found = np.sqrt(facts.neurons["rows"][5] + weights.norms().down_column_square[0, 5])
    np.testing.assert_allclose(found, np.linalg.norm(whole), rtol=1e-6)
