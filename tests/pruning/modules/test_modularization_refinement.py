"""The optimisation of the centroids, and the admission rule of the direction of drift."""

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from gprune.pruning.modules.direction import admits_direction, below_boundary, boundary_mixing, drift_variation
from gprune.pruning.modules.refinement import refine, renumber_labels, standardize_profile
from gprune.pruning.ranking import ranks
from gprune.study import ModularizationSettings
from gprune.system.errors import NumericsError


def layer(neurons=96, width=24, modules=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    rows = normalize(torch.randn(neurons, width, generator=generator), dim=1)
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(neurons) % modules).astype(np.int32)
    return rows, labels, rng.beta(1, 3, (2, neurons))


@pytest.mark.parametrize("temperature", [1.0, 0.05])
@pytest.mark.parametrize("coordinates", [1, 2])
def test_total_loss_decreases(temperature, coordinates):
    rows, labels, profile = layer()
    settings = ModularizationSettings(temperature=temperature, steps=60)
    refined, history = refine(rows, labels, profile[:coordinates], settings)
    assert history.shape == (60, 5)
    assert (np.diff(history[:10, 4]) < 0).all()
    assert history[-1, 4] < history[0, 4] - 1e-3
    np.testing.assert_allclose(
        history[:, 4], history[:, 0] + 0.1 * history[:, 1] + 0.1 * history[:, 2] + history[:, 3], rtol=1e-5
    )
    assert refined.shape == labels.shape and refined.dtype == np.int32


def test_no_steps_assign_to_the_mean_directions():
    rows, labels, profile = layer()
    refined, history = refine(rows, labels, profile, ModularizationSettings(steps=0))
    directions = normalize(torch.stack([rows[torch.tensor(labels == k)].sum(0) for k in range(6)]), dim=1)
    np.testing.assert_array_equal(refined, renumber_labels((rows @ directions.T).argmax(1).numpy()))
    assert history.shape == (0, 5)


def test_refinement_repeats_itself_and_ignores_gradient_mode():
    rows, labels, profile = layer()
    settings = ModularizationSettings(steps=20)
    first = refine(rows, labels, profile, settings)
    with torch.no_grad():
        second = refine(rows, labels, profile, settings)
    for actual, expected in zip(first, second, strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_constant_drift_is_left_out():
    rows, labels, _ = layer()
    constant = np.full((1, 96), 0.1)
    _, history = refine(rows, labels, constant, ModularizationSettings(steps=3))
    np.testing.assert_array_equal(history[:, 3], 0)
    varied = np.stack([np.full(96, 0.1), np.linspace(0, 1, 96)])
    scaled = standardize_profile(varied)
    assert scaled.shape == (96, 1)
    assert scaled.mean() == pytest.approx(0, abs=1e-12) and scaled.var() == pytest.approx(1, rel=1e-12)


def test_gaps_are_closed_in_order_and_losses_that_are_not_finite_are_refused():
    np.testing.assert_array_equal(renumber_labels(np.array([7, 2, 7, 5])), [2, 0, 2, 1])
    rows, labels, profile = layer()
    rows[3, 2] = float("nan")
    with pytest.raises(NumericsError, match=r"inner loss .* is nan at step 0"):
        refine(rows, labels, profile, ModularizationSettings(steps=2))


def test_mixing_and_variation_equal_the_definitions():
    rng = np.random.default_rng(0)
    labels = np.stack([rng.permutation(np.arange(41) % 5) for _ in range(3)])
    first, second = rng.integers(0, 30, (2, 3, 41))
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
    assert admits_direction(np.array(mixing), np.array(variation)) is expected
