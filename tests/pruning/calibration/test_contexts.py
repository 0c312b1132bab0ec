"""Context clusters against principal components and assignments computed plainly in float64."""

import numpy as np
import pytest
import torch
from calibration.texts_and_families import tokens
from scipy.optimize import linear_sum_assignment, linprog

from gprune.models.tiny import tiny_decoder
from gprune.pruning.calibration.clusters import balanced_clusters, balanced_labels, bounded_clusters, bounded_labels
from gprune.pruning.calibration.contexts import ContextLookup, fit_contexts, project_inputs
from gprune.pruning.calibration.principal import _exact_directions, principal_components
from gprune.records import Tokens
from gprune.study.settings import ContextSettings
from gprune.system.errors import SettingsError


def fit(decoder, calibration=None, batch=4, seed=0, **changes):
    chosen = ContextSettings(**({"count": 3, "dimensions": 4, "tokens": 60} | changes))
    return fit_contexts(project_inputs(decoder, calibration or tokens(), chosen, batch), chosen, seed)


@torch.no_grad()
def ffn_inputs(decoder, ids):
    """(layers, tokens, hidden) float64 inputs of up_proj, one sequence at a time."""
    inputs, layers = [], range(decoder.shape.layers)
    keep = lambda _, arguments: inputs.append(arguments[0][0].double().numpy())  # noqa: E731
    handles = [decoder.up_proj(layer).register_forward_pre_hook(keep) for layer in layers]
    for row in ids:
        decoder.hidden_states(torch.tensor(row[None].astype(np.int64)))
    for handle in handles:
        handle.remove()
    return np.stack([np.concatenate(inputs[layer :: len(layers)]) for layer in layers])


@pytest.mark.parametrize(
    ("kind", "batch"),
    [({}, 1), ({}, 64), ({"family": "qwen3", "kv_heads": 2, "neurons": 13, "hidden": 12, "head_width": 4}, 3)],
)
def test_components_are_the_principal_directions(kind, batch):
    decoder = tiny_decoder(**kind)
    contexts = fit(decoder, batch=batch)
    for layer, x in enumerate(ffn_inputs(decoder, tokens().ids)):
        np.testing.assert_allclose(contexts.mean[layer], x.mean(axis=0), rtol=1e-5, atol=1e-6)
        expected = np.linalg.svd(x - x.mean(axis=0))[2][:4]
        actual = contexts.components[layer]
        np.testing.assert_allclose(actual @ actual.T, np.eye(4), atol=1e-5)
        np.testing.assert_allclose(np.abs((actual * expected).sum(axis=1)), 1, atol=1e-4)
        assert (np.take_along_axis(actual, np.abs(actual).argmax(axis=1)[:, None], axis=1) > 0).all()


@pytest.mark.parametrize(("dimensions", "samples", "width"), [(64, 10, 8), (5, 10, 5), (64, 1, 5)])
def test_dimensions_are_clamped_to_the_hidden_width_and_the_tokens(dimensions, samples, width):
    contexts = fit(tiny_decoder(), tokens(samples), dimensions=dimensions)
    assert contexts.components.shape == (2, width, 8)
    assert contexts.centroids.shape == (2, 3, width)


@pytest.mark.parametrize(("limit", "used"), [(60, 10), (1000, 10), (18, 3), (19, 4), (12, 2)])
def test_only_the_first_sequences_are_run(limit, used):
    decoder, calibration = tiny_decoder(), tokens()
    contexts = fit(decoder, calibration, tokens=limit)
    assert contexts.tokens == used * 6
    assert (decoder.forward_tokens, decoder.backward_tokens) == (used * 6, 0)
    changed = calibration.ids.copy()
    changed[used:] = 0
    again = fit(decoder, Tokens("a text", "fingerprint", changed, 10), tokens=limit)
    np.testing.assert_array_equal(again.centroids, contexts.centroids)


@pytest.mark.parametrize("kind", [{}, {"family": "qwen2", "kv_heads": 1, "hidden": 12, "head_width": 2}], ids=str)
def test_a_token_belongs_to_the_nearest_centroid(kind):
    decoder = tiny_decoder(**kind)
    contexts = fit(decoder)
    other = tokens(20, 5, seed=9)
    lookup = ContextLookup(decoder, contexts)
    for layer, x in enumerate(ffn_inputs(decoder, other.ids)):
        projected = (x - contexts.mean[layer]) @ contexts.components[layer].T.astype(float)
        distance = np.linalg.norm(projected[:, None] - contexts.centroids[layer], axis=-1)
        actual = lookup.labels(layer, torch.tensor(x, dtype=torch.float32))
        np.testing.assert_array_equal(actual, distance.argmin(axis=1))
        assert len(set(actual.tolist())) > 1


def test_equal_tokens_have_contexts_without_distance_and_too_few_tokens_are_refused():
    equal = Tokens("same", "f", np.full((5, 1), 7, dtype=np.int32), 5)
    contexts = fit(tiny_decoder(), equal, count=2)
    np.testing.assert_allclose(contexts.centroids, 0, atol=1e-6)
    assert np.isfinite(contexts.distances).all()
    with pytest.raises(SettingsError, match=r"'a text' gives 12 tokens for 7 contexts.*contexts.count"):
        fit(tiny_decoder(), tokens(2), count=7)
    assert fit(tiny_decoder(), tokens(2), count=6).tokens == 12


@pytest.mark.parametrize(("points", "count"), [(14, 7), (17, 7), (100, 3), (9, 2), (5, 5)])
def test_clusters_are_of_equal_size_and_their_centroids_means(points, count):
    generator = np.random.default_rng(points)
    # most points in one heap, so that nearest centroids alone would be far from balanced
    x = generator.normal(size=(points, 3)) * np.where(np.arange(points) % 5 == 0, 10, 0.1)[:, None]
    labels, centroids = balanced_clusters(x, count, generator)
    sizes = np.bincount(labels, minlength=count)
    assert sizes.max() - sizes.min() <= 1 and sizes.sum() == points
    for cluster in range(count):
        np.testing.assert_allclose(centroids[cluster], x[labels == cluster].mean(axis=0), rtol=1e-12)


@pytest.mark.parametrize("points", [2, 9, 40])
def test_two_clusters_are_balanced_at_the_least_cost(points):
    cost = np.random.default_rng(points).normal(size=(points, 2))
    labels = balanced_labels(cost)
    sizes = np.bincount(labels, minlength=2)
    slots = np.repeat([0, 1], sizes)
    rows, columns = linear_sum_assignment(cost[:, slots])
    assert cost[np.arange(points), labels].sum() == pytest.approx(cost[rows, slots[columns]].sum(), rel=1e-12)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("low", "high"), [(3, 7), (5, 6), (1, 20), (5, 40)])
def test_sizes_within_bounds_cost_little_more_than_a_linear_program_finds(seed, low, high):
    generator = np.random.default_rng(seed)
    points = generator.normal(size=(29, 3)) ** 3
    centroids = generator.normal(size=(5, 3)) * [[3], [1], [1], [0.1], [0.1]]
    cost = ((points[:, None] - centroids) ** 2).sum(axis=2)
    labels = bounded_labels(cost, low, high)
    sizes = np.bincount(labels, minlength=5)
    assert sizes.min() >= low and sizes.max() <= high and sizes.sum() == 29
    each, counts = np.kron(np.eye(29), np.ones(5)), np.kron(np.ones(29), np.eye(5))
    bounds = np.concatenate([np.full(5, high), np.full(5, -low)])
    least = linprog(cost.ravel(), np.concatenate([counts, -counts]), bounds, each, np.ones(29)).fun
    assert least - 1e-9 <= cost[np.arange(29), labels].sum() <= 1.1 * least
    nearest = np.bincount(cost.argmin(axis=1), minlength=5)
    if nearest.min() >= low and nearest.max() <= high:
        np.testing.assert_array_equal(labels, cost.argmin(axis=1))


def test_bounded_clusters_are_the_tightest_of_their_starts_and_near_an_even_size():
    points = np.random.default_rng(0).normal(size=(70, 4)) * [4, 1, 1, 1]
    points[:50] += [6, 0, 0, 0]

    def spread(labels):
        return sum(((points[labels == c] - points[labels == c].mean(axis=0)) ** 2).sum() for c in range(7))

    labels, centroids = bounded_clusters(points, 7, np.random.default_rng(1), 0.4, 5)
    generator = np.random.default_rng(1)
    alone = [spread(bounded_clusters(points, 7, generator, 0.4, 1)[0]) for _ in range(5)]
    assert spread(labels) == pytest.approx(min(alone)) and min(alone) < max(alone)
    sizes = np.bincount(labels, minlength=7)
    assert sizes.min() >= 6 and sizes.max() <= 14 and np.ptp(sizes) > 1
    for cluster, centroid in enumerate(centroids):
        np.testing.assert_allclose(centroid, points[labels == cluster].mean(axis=0))
    balanced, _ = balanced_clusters(points, 7, np.random.default_rng(1))
    assert spread(labels) < spread(balanced)


def points(count, width, power, seed=0, kinds=7, distance=3.0):
    """(count, width) of mean zero in a few kinds; variances fall by a power of their index."""
    generator = torch.Generator().manual_seed(seed)
    spread = torch.arange(1, width + 1).float() ** -power
    turned = torch.linalg.qr(torch.randn(width, width, generator=generator)).Q
    centres = distance * torch.randn(kinds, width, generator=generator) * spread
    labels = torch.randint(kinds, (count,), generator=generator)
    sample = (torch.randn(count, width, generator=generator) * spread + centres[labels]) @ turned
    return sample - sample.mean(0)


def captured(x, rows):
    return float((x.double() @ rows.double().T).square().sum())


@pytest.mark.parametrize("power", [0.25, 1.0])
@pytest.mark.parametrize(
    ("count", "width", "dimensions"),
    [pytest.param(900, 1000, 64, marks=pytest.mark.long), (400, 800, 25), (60, 900, 40)],
)
def test_nearly_all_of_the_variance_is_captured(count, width, dimensions, power):
    x = points(count, width, power)
    components, projected = principal_components(x, dimensions)
    assert components.shape == (dimensions, width) and components.dtype == torch.float32
    np.testing.assert_allclose((components @ components.T).numpy(), np.eye(dimensions), atol=2e-5)
    torch.testing.assert_close(projected, x @ components.T)
    exact = captured(x, _exact_directions(x, dimensions))
    assert (1 - 1e-5) * exact <= captured(x, components) <= (1 + 1e-5) * exact
    variances = projected.square().sum(0)
    assert (variances[1:] <= variances[:-1] * (1 + 1e-4)).all()


def test_narrow_points_are_taken_apart_exactly_and_signs_are_fixed():
    x = points(200, 96, 0.5)
    components, _ = principal_components(x, 8)
    exact = _exact_directions(x, 8)
    np.testing.assert_allclose((components * exact.float()).sum(1).abs().numpy(), 1, atol=1e-6)
    assert (components.gather(1, components.abs().argmax(1, keepdim=True)) > 0).all()
