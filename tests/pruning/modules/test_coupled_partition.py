"""Refinement that starts from modules that are there already (twFLAP's order of steps)."""

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from gprune.pruning.modules.partition import modularize
from gprune.pruning.ranking import ranks
from gprune.records import RankDrift, UnitScores
from gprune.study import ModularizationSettings

LAYERS, NEURONS, WIDTH = 2, 64, 12


def settings(**changes):
    return ModularizationSettings(**({"candidates": (4, 6), "restarts": 2, "steps": 10} | changes))


def inputs(seed=0, metric="twflap"):
    rows = normalize(torch.randn(LAYERS, NEURONS, WIDTH, generator=torch.Generator().manual_seed(0)), dim=2)
    generator = np.random.default_rng(seed)
    first, second = generator.random((2, LAYERS, NEURONS))
    signed = (ranks(first) - ranks(second)) / (NEURONS - 1)
    magnitude = np.abs(signed)
    scaled = signed * (magnitude.std(1) / signed.std(1))[:, None]
    zeros, none, heads = np.zeros_like(signed), np.zeros(LAYERS), np.zeros((LAYERS, 1))
    drift = RankDrift(magnitude, signed, scaled, zeros, zeros, zeros, none, none, none, none)
    texts = [UnitScores(metric, name, s, heads, heads) for name, s in (("a", first), ("b", second))]
    return (lambda layer: rows[layer]), drift, *texts


def chunks(sizes):
    """(layers, neurons) modules of consecutive neurons."""
    return np.stack([np.arange(NEURONS) * size // NEURONS for size in sizes])


@pytest.mark.parametrize("direction", ["auto", "preset", "magnitude"])
def test_the_own_initialization_gives_the_same_refinement(direction):
    arguments = inputs()
    whole = modularize(*arguments, settings(direction=direction), seed=0)
    initial = modularize(*arguments, settings(kind="initialization"), seed=0).labels
    # the seed serves clustering only, which does not take place
    coupled = modularize(*arguments, settings(direction=direction), seed=9, initial=initial)
    np.testing.assert_array_equal(coupled.labels, whole.labels)
    np.testing.assert_array_equal(coupled.history, whole.history)
    np.testing.assert_array_equal(coupled.mixing, whole.mixing)
    np.testing.assert_array_equal(coupled.variation, whole.variation)
    assert coupled.profile == whole.profile


@pytest.mark.parametrize("kind", ["initialization", "random"])
def test_what_is_not_refined_stays_as_given(kind):
    def unused(layer):
        raise RuntimeError("no weights are needed")

    initial = chunks((3, 8))
    partition = modularize(unused, *inputs()[1:], settings(kind=kind), seed=0, initial=initial)
    np.testing.assert_array_equal(partition.labels, initial)
    np.testing.assert_array_equal(partition.counts, [3, 8])
    assert partition.kind == kind and partition.history.shape == (LAYERS, 0, 5)


def test_modules_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"initial modules of shape \(1, 64\)"):
        modularize(*inputs(), settings(), seed=0, initial=chunks((4,)))
    gaps = chunks((4, 4))
    gaps[1][gaps[1] == 2] = 3
    with pytest.raises(ValueError, match=r"layer 1: initial labels \[0 1 3\]"):
        modularize(*inputs(), settings(), seed=0, initial=gaps)
