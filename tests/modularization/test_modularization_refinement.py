"""The optimisation of the centroids: decreases, is deterministic, copes with degenerate layers."""

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from gprune.errors import NumericsError
from gprune.modularization.refinement import refine, standardized, without_gaps
from gprune.study import ModularizationSettings


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
        history[:, 4],
        history[:, 0] + 0.1 * history[:, 1] + 0.1 * history[:, 2] + history[:, 3],
        rtol=1e-5,
    )
    assert refined.shape == labels.shape and refined.dtype == np.int32


def test_a_wide_layer_moves_as_steadily_as_a_narrow_one():
    """The first step must not throw the centroids about, whatever the number of coordinates."""
    for width in (12, 3000):
        rows, labels, profile = layer(neurons=48, width=width)
        _, history = refine(rows, labels, profile[:1], ModularizationSettings(temperature=0.05, steps=5))
        assert (np.diff(history[:, 4]) < 0).all()


def test_consistency_pulls_neurons_of_like_drift_together():
    rows, labels, profile = layer(neurons=200, width=20, modules=4)
    variation = []
    for weight in (0.0, 10.0):
        settings = ModularizationSettings(consistency_weight=weight, temperature=0.1, steps=80)
        refined, _ = refine(rows, labels, profile[:1], settings)
        variation.append(np.mean([profile[0][refined == k].var() for k in range(refined.max() + 1)]))
    assert variation[1] < 0.9 * variation[0]


def test_repulsion_keeps_centroids_apart():
    rows, labels, profile = layer()
    apart = [
        refine(rows, labels, profile[:1], ModularizationSettings(repulsion_weight=weight))[1][-1, 2]
        for weight in (0.0, 1.0)
    ]
    assert apart[1] < 0.5 * apart[0]


def test_no_steps_assign_to_the_mean_directions():
    rows, labels, profile = layer()
    refined, history = refine(rows, labels, profile, ModularizationSettings(steps=0))
    directions = normalize(torch.stack([rows[torch.tensor(labels == k)].sum(0) for k in range(6)]), dim=1)
    np.testing.assert_array_equal(refined, without_gaps((rows @ directions.T).argmax(1).numpy()))
    assert history.shape == (0, 5)


def test_refinement_repeats_itself_and_ignores_gradient_mode():
    rows, labels, profile = layer()
    settings = ModularizationSettings(steps=20)
    first = refine(rows, labels, profile, settings)
    with torch.no_grad():
        second = refine(rows, labels, profile, settings)
    np.testing.assert_array_equal(first[0], second[0])
    np.testing.assert_array_equal(first[1], second[1])


def test_one_module_stays_one():
    rows, _, profile = layer()
    refined, history = refine(rows, np.zeros(96, np.int32), profile, ModularizationSettings(steps=5))
    assert not refined.any()
    np.testing.assert_array_equal(history[:, 2], 0)
    np.testing.assert_allclose(history[:, 3], 1, rtol=1e-5)


@pytest.mark.parametrize("neurons", [1, 2, 13])
def test_tiny_layers(neurons):
    rows, labels, profile = layer(neurons=neurons, width=5, modules=min(neurons, 2))
    refined, history = refine(rows, labels, profile, ModularizationSettings(steps=5))
    assert sorted(set(refined.tolist())) == list(range(int(refined.max()) + 1))
    assert np.isfinite(history).all()


def test_identical_neurons_leave_no_empty_module():
    rows, labels, profile = layer()
    refined, history = refine(rows[:1].repeat(96, 1), labels, profile, ModularizationSettings(steps=5))
    assert sorted(set(refined.tolist())) == list(range(int(refined.max()) + 1))
    assert np.isfinite(history).all()


def test_constant_drift_is_left_out():
    rows, labels, _ = layer()
    constant = np.full((1, 96), 0.1)
    _, history = refine(rows, labels, constant, ModularizationSettings(steps=3))
    np.testing.assert_array_equal(history[:, 3], 0)
    varied = np.stack([np.full(96, 0.1), np.linspace(0, 1, 96)])
    scaled = standardized(varied)
    assert scaled.shape == (96, 1)
    assert scaled.mean() == pytest.approx(0, abs=1e-12) and scaled.var() == pytest.approx(1, rel=1e-12)


def test_losses_that_are_not_finite_are_refused():
    rows, labels, profile = layer()
    rows[3, 2] = float("nan")
    with pytest.raises(NumericsError, match=r"inner loss .* is nan at step 0"):
        refine(rows, labels, profile, ModularizationSettings(steps=2))


def test_without_gaps_keeps_the_order():
    np.testing.assert_array_equal(without_gaps(np.array([7, 2, 7, 5])), [2, 0, 2, 1])
