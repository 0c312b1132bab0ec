"""Context clusters against principal components and assignments computed plainly in float64."""

import numpy as np
import pytest
import torch
from calibration.texts_and_families import tokens
from scipy.optimize import linear_sum_assignment, linprog

from gprune.models.tiny import tiny_decoder
from gprune.pruning.calibration.clusters import (
    balanced_clusters,
    balanced_labels,
    bounded_clusters,
    bounded_labels,
)
from gprune.pruning.calibration.contexts import Lookup, fit_contexts, project_inputs
from gprune.pruning.calibration.principal import _exact, principal
from gprune.records import Tokens
from gprune.study.settings import ContextSettings
from gprune.system.errors import ModelError, SettingsError


def settings(**changes):
    return ContextSettings(**({"count": 3, "dimensions": 4, "tokens": 60} | changes))


def fit(decoder, calibration=None, batch=4, seed=0, **changes):
    chosen = settings(**changes)
    return fit_contexts(project_inputs(decoder, calibration or tokens(), chosen, batch), chosen, seed)


@torch.no_grad()
def ffn_inputs(decoder, ids):
    """(layers, tokens, hidden) float64 inputs of up_proj, one sequence at a time."""
    seen = [[] for _ in range(decoder.shape.layers)]
    handles = [
        decoder.up_proj(layer).register_forward_pre_hook(
            lambda _, arguments, layer=layer: seen[layer].append(arguments[0][0].double().numpy())
        )
        for layer in range(decoder.shape.layers)
    ]
    for row in ids:
        decoder.hidden_states(torch.tensor(row[None].astype(np.int64)))
    for handle in handles:
        handle.remove()
    return np.stack([np.concatenate(rows) for rows in seen])


@pytest.mark.parametrize("kind", [{}, {"family": "qwen3", "kv_heads": 2, "neurons": 13, "hidden": 12, "head_width": 4}])
def test_components_are_the_principal_directions(kind):
    decoder = tiny_decoder(**kind)
    contexts = fit(decoder)
    for layer, x in enumerate(ffn_inputs(decoder, tokens().ids)):
        np.testing.assert_allclose(contexts.mean[layer], x.mean(axis=0), rtol=1e-5, atol=1e-6)
        expected = np.linalg.svd(x - x.mean(axis=0))[2][:4]
        actual = contexts.components[layer]
        np.testing.assert_allclose(actual @ actual.T, np.eye(4), atol=1e-5)
        np.testing.assert_allclose(np.abs((actual * expected).sum(axis=1)), 1, atol=1e-4)
        assert (np.take_along_axis(actual, np.abs(actual).argmax(axis=1)[:, None], axis=1) > 0).all()


@pytest.mark.parametrize(("asked", "samples", "given"), [(64, 10, 8), (5, 10, 5), (64, 1, 5)])
def test_dimensions_are_clamped_to_the_hidden_width_and_the_tokens(asked, samples, given):
    contexts = fit(tiny_decoder(), tokens(samples), dimensions=asked)
    assert contexts.components.shape == (2, given, 8)
    assert contexts.centroids.shape == (2, 3, given)


@pytest.mark.parametrize(("asked", "used"), [(60, 10), (1000, 10), (18, 3), (19, 4), (12, 2)])
def test_only_the_first_sequences_are_run(asked, used):
    decoder, calibration = tiny_decoder(), tokens()
    contexts = fit(decoder, calibration, tokens=asked)
    assert contexts.tokens == used * 6
    assert (decoder.forward_tokens, decoder.backward_tokens) == (used * 6, 0)
    changed = calibration.ids.copy()
    changed[used:] = 0
    again = fit(decoder, Tokens("a text", "fingerprint", changed, 10), tokens=asked)
    np.testing.assert_array_equal(again.centroids, contexts.centroids)


def test_equal_tokens_have_contexts_without_distance():
    same = Tokens("same", "f", np.full((5, 1), 7, dtype=np.int32), 5)
    contexts = fit(tiny_decoder(), same, count=2)
    np.testing.assert_allclose(contexts.centroids, 0, atol=1e-6)
    assert np.isfinite(contexts.distances).all()


@pytest.mark.parametrize("batch", [1, 3, 64])
def test_the_batch_size_changes_nothing(batch):
    decoder = tiny_decoder(kv_heads=2)
    expected, actual = fit(decoder, batch=4), fit(decoder, batch=batch)
    np.testing.assert_allclose(actual.components, expected.components, atol=1e-4)
    np.testing.assert_allclose(actual.centroids, expected.centroids, atol=1e-4)


@pytest.mark.parametrize("kind", [{}, {"family": "qwen2", "kv_heads": 1, "hidden": 12, "head_width": 2}])
def test_a_token_belongs_to_the_nearest_centroid(kind):
    decoder = tiny_decoder(**kind)
    contexts = fit(decoder)
    other = tokens(20, 5, seed=9)
    lookup = Lookup(decoder, contexts)
    for layer, x in enumerate(ffn_inputs(decoder, other.ids)):
        projected = (x - contexts.mean[layer]) @ contexts.components[layer].T.astype(float)
        distance = np.linalg.norm(projected[:, None] - contexts.centroids[layer], axis=-1)
        actual = lookup.labels(layer, torch.tensor(x, dtype=torch.float32))
        np.testing.assert_array_equal(actual, distance.argmin(axis=1))
        assert len(set(actual.tolist())) > 1


def test_too_few_tokens_and_contexts_of_another_model_are_refused():
    with pytest.raises(SettingsError, match=r"'a text' gives 12 tokens for 7 contexts.*contexts.count"):
        fit(tiny_decoder(), tokens(2), count=7)
    assert fit(tiny_decoder(), tokens(2), count=6).tokens == 12
    contexts = fit(tiny_decoder(layers=3))
    with pytest.raises(ModelError, match=r"\(3, 8\) layers and channels.*\(2, 8\)"):
        Lookup(tiny_decoder(), contexts)


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


def cheapest(cost, low, high):
    """The least total cost under the bounds."""
    return program(cost, low, high).fun


def assigned(cost, low, high):
    """The labels of least total cost under the bounds."""
    return program(cost, low, high).x.reshape(cost.shape).argmax(axis=1)


def program(cost, low, high):
    """The assignment within the bounds as a linear program: its corners are whole numbers."""
    points, count = cost.shape
    each = np.kron(np.eye(points), np.ones(count))
    sizes = np.kron(np.ones(points), np.eye(count))
    bounds = np.concatenate([np.full(count, high), np.full(count, -low)])
    return linprog(cost.ravel(), np.concatenate([sizes, -sizes]), bounds, each, np.ones(points))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("low", "high"), [(3, 7), (5, 6), (1, 20), (5, 40)])
def test_sizes_within_bounds_cost_little_more_than_the_least(seed, low, high):
    generator = np.random.default_rng(seed)
    points = generator.normal(size=(29, 3)) ** 3
    centroids = generator.normal(size=(5, 3)) * [[3], [1], [1], [0.1], [0.1]]
    cost = ((points[:, None] - centroids) ** 2).sum(axis=2)
    labels = bounded_labels(cost, low, high)
    sizes = np.bincount(labels, minlength=5)
    assert sizes.min() >= low and sizes.max() <= high and sizes.sum() == 29
    found, least = cost[np.arange(29), labels].sum(), cheapest(cost, low, high)
    assert least - 1e-9 <= found <= 1.1 * least
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


def test_the_released_clustering_is_a_choice_of_the_study():
    equal, released = (fit(tiny_decoder(), clustering=form) for form in ("balanced", "released"))
    np.testing.assert_array_equal(equal.components, released.components)
    assert np.abs(equal.centroids - released.centroids).max() > 1e-3


def crowded():
    """A text most of whose tokens are of a few kinds, so that bounds on the sizes have something to do."""
    generator = np.random.default_rng(1)
    few, many = generator.integers(0, 2, (10, 6)), generator.integers(0, 64, (10, 6))
    ids = np.where(generator.random((10, 6)) < 0.7, few, many).astype(np.int32)
    return Tokens("a crowded text", "fingerprint", ids, 10)


def projected(decoder, contexts, layer):
    """(tokens, dimensions) FFN inputs of a layer in the space in which the contexts are found."""
    x = ffn_inputs(decoder, crowded().ids)[layer]
    return (x - contexts.mean[layer]) @ contexts.components[layer].astype(np.float64).T


def test_released_contexts_are_the_best_of_ten_starts_within_two_fifths_of_an_even_size():
    decoder = tiny_decoder()
    contexts = fit(decoder, crowded(), clustering="released", seed=5)
    for layer in range(decoder.shape.layers):
        points = projected(decoder, contexts, layer)

        def centres(slack, starts, points=points, layer=layer):
            found = bounded_clusters(points, 3, np.random.default_rng([5, layer]), slack, starts)[1]
            return found[found[:, 0].argsort()]

        # equal tokens make ties between starts, so the order of the clusters may differ
        ours = contexts.centroids[layer]
        np.testing.assert_allclose(ours[ours[:, 0].argsort()], centres(0.4, 10), atol=1e-4)
        for other in ((0.3, 10), (0.5, 10), (0.4, 1)):
            assert np.abs(centres(*other) - centres(0.4, 10)).max() > 1e-3, other


def lloyd_by_linear_programs(points, low, high, starts, seed):
    """The least spread of several starts: exact assignments within the bounds, means, and again."""
    generator, best = np.random.default_rng(seed), np.inf
    for _ in range(starts):
        centres, last = points[generator.choice(len(points), 3, replace=False)], np.inf
        while True:
            cost = ((points[:, None] - centres) ** 2).sum(axis=2)
            labels = assigned(cost, low, high)
            centres = np.stack([points[labels == c].mean(axis=0) for c in range(3)])
            spread = ((points - centres[labels]) ** 2).sum()
            if spread >= last - 1e-9:
                break
            last = spread
        best = min(best, last)
    return best


def test_released_contexts_are_as_tight_as_those_of_exact_assignments():
    decoder = tiny_decoder()
    contexts = fit(decoder, crowded(), clustering="released")
    for layer in range(decoder.shape.layers):
        points = projected(decoder, contexts, layer)
        labels, centres = bounded_clusters(points, 3, np.random.default_rng([0, layer]), 0.4, 10)
        sizes = np.bincount(labels, minlength=3)
        assert sizes.min() >= 12 and sizes.max() <= 28 and sizes.sum() == 60
        exact = lloyd_by_linear_programs(points, 12, 28, 10, seed=layer)
        assert ((points - centres[labels]) ** 2).sum() <= 1.02 * exact


def points(count, width, power, seed=0, kinds=7, apart=3.0):
    """(count, width) of mean zero in a few kinds; variances fall by a power of their index."""
    generator = torch.Generator().manual_seed(seed)
    spread = torch.arange(1, width + 1).float() ** -power
    turned = torch.linalg.qr(torch.randn(width, width, generator=generator)).Q
    centres = apart * torch.randn(kinds, width, generator=generator) * spread
    own = torch.randint(kinds, (count,), generator=generator)
    drawn = (torch.randn(count, width, generator=generator) * spread + centres[own]) @ turned
    return drawn - drawn.mean(0)


def captured(x, rows):
    return float((x.double() @ rows.double().T).square().sum())


@pytest.mark.parametrize("power", [0.25, 1.0])
@pytest.mark.parametrize(
    ("count", "width", "dimensions"),
    [pytest.param(900, 1000, 64, marks=pytest.mark.long), (400, 800, 25), (60, 900, 40)],
)
def test_nearly_all_of_the_variance_is_captured(count, width, dimensions, power):
    x = points(count, width, power)
    found, projected = principal(x, dimensions)
    assert found.shape == (dimensions, width) and found.dtype == torch.float32
    np.testing.assert_allclose((found @ found.T).numpy(), np.eye(dimensions), atol=2e-5)
    torch.testing.assert_close(projected, x @ found.T)
    exact = captured(x, _exact(x, dimensions))
    assert (1 - 1e-5) * exact <= captured(x, found) <= (1 + 1e-5) * exact
    variances = projected.square().sum(0)
    assert (variances[1:] <= variances[:-1] * (1 + 1e-4)).all()


def test_narrow_points_are_taken_apart_exactly_and_signs_are_fixed():
    x = points(200, 96, 0.5)
    found, _ = principal(x, 8)
    exact = _exact(x, 8)
    np.testing.assert_allclose((found * exact.float()).sum(1).abs().numpy(), 1, atol=1e-6)
    assert (found.gather(1, found.abs().argmax(1, keepdim=True)) > 0).all()
