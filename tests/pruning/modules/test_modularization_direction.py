"""The admission rule of the drift's direction against loops over the appendix's definitions."""

import numpy as np
import pytest

from gprune.pruning.modules.direction import (
    admits,
    below_boundary,
    boundary_mixing,
    drift_variation,
    profiles_to_refine,
)
from gprune.pruning.ranking import ranks
from gprune.study import ModularizationSettings


def example(layers=3, neurons=41, modules=5, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.stack([rng.permutation(np.arange(neurons) % modules) for _ in range(layers)])
    return labels, rng.integers(0, 30, (layers, neurons)), rng.integers(0, 30, (layers, neurons))


def test_mixing_and_variation_equal_the_definitions():
    labels, first, second = example()
    a, b = ranks(first) / 40, ranks(second) / 40
    magnitude = np.abs(a - b)
    mixing = variation = 0.0
    for layer in range(3):
        for k in range(5):
            members = [i for i in range(41) if labels[layer, i] == k]
            q = sum((a[layer, i] + b[layer, i]) / 2 < 0.5 for i in members) / len(members)
            mixing += 2 * len(members) * min(q, 1 - q) / labels.size
            variation += len(members) * np.std([magnitude[layer, i] for i in members]) / labels.size
    below = below_boundary(first, second)
    assert boundary_mixing(labels, below) == pytest.approx(mixing, rel=1e-12)
    assert drift_variation(labels, magnitude) == pytest.approx(variation, rel=1e-12)


@pytest.mark.parametrize(
    ("mixing", "variation", "expected"),
    [
        ((0.8, 0.6), (0.10, 0.12), True),  # 25 % gain, 20 % growth
        ((0.8, 0.7), (0.10, 0.12), False),  # 12.5 % gain, 20 % growth
        ((0.8, 0.7), (0.10, 0.09), True),  # gain, no growth
        ((0.8, 0.8), (0.10, 0.09), False),  # no gain
        ((0.8, 0.9), (0.10, 0.09), False),  # worse
        ((0.0, 0.0), (0.10, 0.10), False),  # nothing to gain
        ((0.8, 0.7), (0.0, 0.0), True),  # no variation at all
        ((0.8, 0.7), (0.0, 0.1), False),  # growth from nothing is infinite
        ((0.5, 0.25), (0.50, 0.75), False),  # equal shares are not above
    ],
)
def test_admission_rule(mixing, variation, expected):
    assert admits(np.array(mixing), np.array(variation)) is expected


@pytest.mark.parametrize(
    ("direction", "metric", "expected"),
    [
        ("auto", "flap", ("magnitude", "direction")),
        ("preset", "flap", ("magnitude",)),
        ("preset", "wanda_sp", ("magnitude",)),
        ("preset", "twflap", ("direction",)),
        ("magnitude", "twflap", ("magnitude",)),
        ("direction", "flap", ("direction",)),
    ],
)
def test_profiles_to_refine(direction, metric, expected):
    assert profiles_to_refine(ModularizationSettings(direction=direction), metric) == expected
