"""k-means, silhouette and split against scikit-learn and brute force."""

from operator import itemgetter

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, silhouette_samples, silhouette_score
from torch.nn.functional import normalize

from gprune.pruning.modules import k_means
from gprune.pruning.modules.initialization import Clustering, cluster, module_counts, split, two_means
from gprune.pruning.modules.k_means import ITERATIONS, Search, advance, kmeans_plus_plus, module_sums, start_searches


def unit_rows(neurons, width, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return normalize(torch.randn(neurons, width, generator=generator, dtype=dtype), dim=1)


def grouped_rows(groups, size, width, noise=0.3, seed=0):
    """Rows around `groups` orthogonal directions, `size` neurons each, in order."""
    rows = torch.eye(width, dtype=torch.float64)[:groups].repeat_interleave(size, dim=0)
    return normalize(rows + noise * unit_rows(groups * size, width, seed), dim=1)


def searched(rows, starts):
    """One search from given centroids, run to its end: labels and exact products."""
    search = Search(rows, rows @ starts.T)
    advance(rows, [search], ITERATIONS)
    return search.labels, search.finish(rows)


def own_silhouette(rows, labels, count):
    labels = torch.as_tensor(labels)
    projection = rows @ module_sums(rows, labels, count).T
    return k_means.silhouette(projection, rows.square().sum(1), labels)


def test_silhouette_is_scikit_learns_and_zero_for_singletons():
    rows = unit_rows(40, 8)
    labels = np.minimum(np.arange(40), 5)
    actual = own_silhouette(rows, labels, 6).numpy()
    np.testing.assert_array_equal(actual[:5], 0)
    expected = silhouette_samples(rows.numpy(), labels, metric="cosine")
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("candidates", "neurons", "expected"),
    [
        ((16, 24, 32, 40, 48), 11008, [16, 24, 32, 40, 48]),
        ((16, 24, 32, 40, 48), 256, [16, 24, 32, None, None]),
        ((16, 24), 128, [16, None]),
        ((16, 24), 40, [5, None]),
        ((48, 16), 13, [2, None]),
        ((16, 24), 4, [2, None]),
        ((16, 24), 3, [1, None]),
        ((16,), 1, [1]),
    ],
)
def test_candidates_are_clamped_to_the_width(candidates, neurons, expected):
    assert module_counts(candidates, neurons) == expected


def test_cluster_reports_the_silhouette_of_its_labels():
    rows = unit_rows(200, 24)
    result = cluster(rows, (4, 8, 16), 2, np.random.default_rng(0))
    expected = silhouette_score(rows.numpy(), result.labels, metric="cosine")
    assert result.silhouette.max() == pytest.approx(expected, abs=1e-12)
    assert result.count == (4, 8, 16)[int(result.silhouette.argmax())]
    assert sorted(set(result.labels.tolist())) == list(range(result.count))


def test_cluster_depends_on_the_seed_alone_and_k_means_ends_in_a_fixed_point():
    rows = unit_rows(150, 16)
    first, same, other = (cluster(rows, (12,), 1, np.random.default_rng(seed)) for seed in (5, 5, 6))
    np.testing.assert_array_equal(first.labels, same.labels)
    assert (first.labels != other.labels).any()
    rows = unit_rows(160, 12)
    labels, projection = searched(rows, rows[:6])
    sums = module_sums(rows, labels, 6)
    torch.testing.assert_close(projection, rows @ sums.T, rtol=1e-12, atol=1e-12)
    assert torch.equal((rows @ normalize(sums, dim=1).T).argmax(1), labels)


def test_greedy_seeds_leave_neurons_nearer_to_a_centroid():
    rows = grouped_rows(groups=9, size=30, width=24, noise=1.0)
    left = [
        [float((1 - rows @ rows[start].T).amin(1).sum()) for start in kmeans_plus_plus(rows, 9, 20, rng, trials)]
        for trials, rng in ((1, np.random.default_rng(0)), (5, np.random.default_rng(0)))
    ]
    assert np.mean(left[1]) < np.mean(left[0]) - 3 * np.std(left[0]) / 20**0.5


def test_searches_side_by_side_are_those_of_each_alone():
    rows = unit_rows(300, 20)
    searches = start_searches(rows, (4, 7, 12), 2, np.random.default_rng(0))
    advance(rows, [search for starts in searches for search in starts], ITERATIONS)
    starts_of = kmeans_plus_plus(rows, 12, 2, np.random.default_rng(0))
    for count, group in zip((4, 7, 12), searches, strict=True):
        for search, start in zip(group, starts_of, strict=True):
            labels, projection = searched(rows, rows[start[:count]])
            assert torch.equal(search.labels, labels)
            # sums that have followed the movers are those of the modules
            torch.testing.assert_close(rows @ search.sums.T, projection, rtol=1e-10, atol=1e-12)


def test_fast_products_are_a_gpus_and_end_with_the_search():
    before = torch.get_float32_matmul_precision()
    for device, inside in (("cpu", before), ("cuda", "high")):
        with k_means._fast_products(torch.device(device)):
            assert torch.get_float32_matmul_precision() == inside
        assert torch.get_float32_matmul_precision() == before


def test_screened_starts_are_about_as_good_as_all_of_them_run_to_their_end():
    screened, best, same = [], [], 0
    for seed in range(20):
        rows = grouped_rows(groups=12, size=30, width=48, noise=1.6, seed=seed)
        result = cluster(rows, (8,), 3, np.random.default_rng(seed), True)
        screened.append(result.silhouette[0])
        starts = kmeans_plus_plus(rows, 8, 3, np.random.default_rng(seed), 4)
        tried = [searched(rows, rows[start])[0] for start in starts]
        score, labels = max(((float(own_silhouette(rows, each, 8).mean()), each) for each in tried), key=itemgetter(0))
        best.append(score)
        if score - screened[-1] < 1e-12:
            same += 1
            assert adjusted_rand_score(labels.numpy(), result.labels) >= 0.99
        # what is found is one of the starts, run to its end
        assert any(torch.equal(each, torch.from_numpy(result.labels)) for each in tried)
    assert same >= 15 and np.mean(best) - np.mean(screened) <= np.std(best) / len(best) ** 0.5


def test_ties_and_tiny_layers():
    result = cluster(unit_rows(3, 4), (16, 24), 2, np.random.default_rng(0))
    assert isinstance(result, Clustering) and result.count == 1
    assert result.labels.tolist() == [0, 0, 0] and np.isnan(result.silhouette).all()
    rows = unit_rows(1, 6).repeat(40, 1)
    result = cluster(rows, (5,), 1, np.random.default_rng(0))
    assert sorted(set(result.labels.tolist())) == [0, 1, 2, 3, 4]
    values = np.array([0.1, 0.1, 0.1, 0.4, 0.4])
    assert two_means(values).tolist() == [False, False, False, True, True]
    assert not two_means(np.full(7, 0.1)).any()
    assert not two_means(np.array([0.3])).any()
    labels = np.array([[0, 0, 0, 1, 1, 1]])
    drift = np.array([[0.1, 0.1, 0.1, 0.2, 0.2, 0.7]])
    np.testing.assert_array_equal(split(labels, drift, 1.0), [[0, 0, 0, 1, 1, 2]])
    similarity = torch.tensor([[0.9, 0.1, 0.0], [0.2, 0.1, 0.0], [0.8, 0.1, 0.0], [0.3, 0.1, 0.0]])
    labels = k_means.fill_empty(similarity)
    assert sorted(labels[[1, 3]].tolist()) == [1, 2]
    assert labels[[0, 2]].tolist() == [0, 0]


def inertia(*parts):
    return sum(((part - part.mean()) ** 2).sum() for part in parts)


@pytest.mark.parametrize("seed", range(12))
def test_two_means_beats_every_cut(seed):
    rng = np.random.default_rng(seed)
    values = rng.beta(0.5, 2, rng.integers(2, 60)) + seed
    upper, ordered = two_means(values), np.sort(values)
    actual = inertia(values[upper], values[~upper])
    assert actual == pytest.approx(min(inertia(*np.split(ordered, [j])) for j in range(1, len(values))), 1e-9, 1e-12)
    assert values[upper].min() > values[~upper].max()
    reference = KMeans(2, n_init=20, random_state=0).fit(values[:, None]).inertia_
    assert actual <= reference * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("fraction", [0.1, 0.2, 0.5, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_split_is_that_of_the_loop(seed, fraction):
    rng = np.random.default_rng(seed)
    labels = np.stack([rng.permutation(np.arange(40) % count) for count in (5, 8, 3)])
    drift = rng.beta(1, 3, labels.shape)
    # Eq. 13 for every module of every layer, then the best cut in two of those with the largest
    sigmas = {}
    for layer in range(3):
        for k in range(labels[layer].max() + 1):
            d = [drift[layer, i] for i in range(40) if labels[layer, i] == k]
            sigmas[layer, k] = (_squares(d) / len(d)) ** 0.5
    chosen = sorted(sigmas, key=lambda module: -sigmas[module])[: int(fraction * len(sigmas) + 0.5)]
    parts = {}
    for layer, k in sigmas:
        members = [i for i in range(40) if labels[layer, i] == k]
        ordered = sorted(members, key=lambda i: drift[layer, i])
        cut = len(ordered)
        if (layer, k) in chosen:
            cuts = range(1, len(ordered))
            cut = min(cuts, key=lambda j: sum(_squares(drift[layer, part]) for part in (ordered[:j], ordered[j:])))
        parts[layer, k] = {frozenset(part) for part in (ordered[:cut], ordered[cut:]) if part}
    actual = split(labels, drift, fraction)
    for layer in range(3):
        expected = set().union(*(part for (at, _), part in parts.items() if at == layer))
        modules = {frozenset(np.flatnonzero(actual[layer] == k)) for k in range(actual[layer].max() + 1)}
        assert modules == expected


def _squares(values):
    return sum((value - sum(values) / len(values)) ** 2 for value in values)
