"""The numbers behind the drift page, on arrays small enough to check by hand."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from gprune.analysis import drift, verdict
from gprune.pruning import neuron_embedding
from gprune.pruning.ranking import ranks
from gprune.records import ActivationStatistics, RankDrift, UnitScores
from gprune.system.errors import NumericsError, SettingsError


def a_drift(magnitude, resample=0.0, correlation=0.5):
    layers = len(magnitude)
    same = np.full(magnitude.shape, resample)
    rho = np.full(layers, correlation)
    return RankDrift(magnitude, magnitude, magnitude, same, same, magnitude, rho, rho, rho, rho)


def scores(values):
    heads = np.ones((len(values), 1))
    return UnitScores("flap", "text", values, heads, heads)


def test_shares_sum_to_one_hundred_and_the_last_bin_holds_one():
    shares = drift.shares(np.array([[0.0, 0.05, 0.5, 1.0]]), 10)
    np.testing.assert_allclose(shares, [50, 0, 0, 0, 0, 25, 0, 0, 0, 25])


def test_shares_by_bin_and_layer_and_joint_ranks_put_equal_orders_on_the_diagonal():
    curves = drift.distributions(a_drift(np.array([[0.0, 0.25, 0.75, 1.0]])), 4)
    table = drift.distribution_table(curves)
    np.testing.assert_allclose(table["drift from"], [0, 0.25, 0.5, 0.75])
    np.testing.assert_allclose(table["A | B, % of neurons"], [25, 25, 0, 50])
    np.testing.assert_allclose(table["A resampled, % of neurons"], [100, 0, 0, 0])
    record = a_drift(np.array([[0.0, 0.0], [1.0, 1.0]]))
    assert [curve.median for curve in drift.distributions(record, 5, layer=1)] == [1.0, 1.0, 0.0, 0.0]
    assert drift.distributions(record, 5)[0].median == 0.5
    assert drift.finite_median(np.array([np.nan, 0.2, 0.4])) == pytest.approx(0.3)
    assert np.isnan(drift.finite_median(np.array([np.nan])))
    matrix = drift.shares_by_layer(np.array([[0.0, 0.0, 0.9, 0.9], [0.1, 0.1, 0.1, 0.1]]), 2)
    np.testing.assert_allclose(matrix, [[50, 50], [100, 0]])
    values = np.array([3.0, 1.0, 2.0, 5.0])
    np.testing.assert_array_equal(drift.joint_ranks(values, values * 10, 4), np.eye(4))
    flipped = drift.joint_ranks(values, -values, 4)
    np.testing.assert_array_equal(flipped, np.eye(4)[::-1])
    assert drift.joint_ranks(np.array([2.0]), np.array([7.0]), 3).sum() == 1
    assert drift.joint_ranks(np.ones(5), np.ones(5), 3).max() == 5


def test_top_drifting_breaks_ties_by_layer_and_neuron():
    magnitude = np.array([[0.5, 0.9, 0.5], [0.9, 0.1, 0.5]])
    first, second = scores(np.array([[1.0, 2, 3], [6, 5, 4]])), scores(np.array([[3.0, 1, 2], [4, 5, 6]]))
    table = drift.top_drifting(a_drift(magnitude), first, second, 4)
    assert list(zip(table["layer"], table["neuron"], strict=True)) == [(0, 1), (1, 0), (0, 0), (0, 2)]
    np.testing.assert_allclose(table["rank on A"], ranks(first.ffn)[[0, 1, 0, 0], [1, 0, 0, 2]] / 2)
    np.testing.assert_allclose(table["score on B"], [1, 4, 3, 2])
    single = np.array([[0.0]])
    assert len(drift.top_drifting(a_drift(single), scores(single), scores(single), 50)) == 1
    table = drift.drift_by_layer(a_drift(np.array([[0.1, 0.3], [0.5, 0.5]]), resample=0.02))
    np.testing.assert_allclose(table["median drift A|B"], [0.2, 0.5])
    np.testing.assert_allclose(table["median drift, A resampled"], [0.02, 0.02])


@pytest.mark.parametrize(
    ("cross", "floor", "words"),
    [
        (0.4, 0.1, "4.0× more than resampling"),
        (0.1, 0.1, "slightly more"),
        (0.4, 0.0, "by 40.0% of the ranking (median)"),
    ],
)
def test_the_title_measures_against_the_floor(cross, floor, words):
    curves = drift.distributions(a_drift(np.full((2, 5), cross), floor), 10)
    assert words in verdict.drift_title(curves)


def measured(seed, shards=3, neurons=20, **changed):
    random = np.random.default_rng(seed)
    values = {}
    for part, width in (("ffn", neurons), ("attention", 4)):
        size = (shards, 2, width)
        values[f"{part}_mean"] = random.normal(size=size)
        values[f"{part}_moment"] = random.gamma(2.0, size=size) * 50
        values[f"{part}_energy"] = values[f"{part}_moment"] + 1
        values[f"{part}_released_fluctuation"] = np.zeros(size[1:])
    tokens = np.arange(10, 10 + shards)
    return ActivationStatistics("a", "f", np.ones(shards, dtype=np.int64), tokens, **(values | changed))


def test_behaviour_is_each_shards_mean_and_deviation_standardised_over_the_layer():
    texts, columns = [measured(1), measured(2)], []
    for text in texts:
        columns += [text.ffn_mean[shard, 1] for shard in range(3)]
        columns += [(text.ffn_moment[shard, 1] / text.shard_tokens[shard]) ** 0.5 for shard in range(3)]
    expected = np.array([(column - np.mean(column)) / np.std(column) for column in columns]).T
    assert np.allclose(neuron_embedding.behaviour_rows(texts, 1), expected)
    mean = measured(3).ffn_mean.copy()
    # 0.1 is no whole number of bits: its mean is off by a rounding error
    mean[0, 1] = 0.1
    rows = neuron_embedding.behaviour_rows([measured(3, ffn_mean=mean)], 1)
    assert not rows[:, 0].any() and rows[:, 1].std() == pytest.approx(1)


def test_components_are_those_of_a_singular_value_decomposition():
    rows = np.random.default_rng(0).normal(size=(60, 12)) * np.linspace(3, 0.2, 12)
    components = neuron_embedding.exact_components(rows, 50)
    left, singular, _ = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    assert np.allclose(np.abs(components.places), np.abs(left * singular), atol=1e-4)
    assert np.allclose(components.shares, singular**2 / (singular**2).sum())
    assert components.shares.sum() == pytest.approx(1)
    # the same neurons in another order give the same picture: no axis is turned round
    assert np.allclose(neuron_embedding.exact_components(rows[::-1], 50).places[::-1], components.places, atol=1e-5)
    assert neuron_embedding.exact_components(rows, 5).places.shape == (60, 5)


@pytest.mark.parametrize(("neurons", "words"), [(1, "there is one neuron"), (9, "all 9 neurons are equal")])
def test_neurons_that_are_all_alike_are_a_sentence(neurons, words):
    flat = {"ffn_mean": np.full((3, 2, neurons), 0.1), "ffn_moment": np.ones((3, 2, neurons))}
    with pytest.raises(NumericsError, match=f"in the behaviour of layer 1 {words}"):
        neuron_embedding.behaviour([measured(1, neurons=neurons, **flat)], 1)


def test_shared_neighbours_and_a_thinned_chart():
    random = np.random.default_rng(4)
    points, places = random.normal(size=(30, 5)), random.normal(size=(30, 2))

    def nearest(among, neuron):
        away = sorted((float(((among[neuron] - point) ** 2).sum()), index) for index, point in enumerate(among))
        return set([index for _, index in away if index != neuron][:4])

    expected = [len(nearest(points, point) & nearest(places, point)) / 4 for point in range(30)]
    assert neuron_embedding.shared_neighbours(points, places, 4) == pytest.approx(expected)
    assert (neuron_embedding.shared_neighbours(points, points, 4) == 1).all()
    assert neuron_embedding.select_neurons(50, 100).tolist() == list(range(50))
    actual = neuron_embedding.select_neurons(28_672, 12_000, 17)
    assert len(actual) == len(set(actual.tolist())) == 12_000 and 17 in actual
    assert actual[0] == 0 and actual[-1] == 28_671 and 1 <= np.diff(actual).min() <= np.diff(actual).max() <= 5
    with pytest.raises(SettingsError, match="needs 16 neurons; this layer has 8"):
        neuron_embedding.umap_layout(np.random.default_rng(0).normal(size=(8, 3)), 0)


def test_any_seed_of_a_study_lays_neurons_out(monkeypatch):
    seeds, points = [], np.random.default_rng(0).normal(size=(20, 3))

    def umap(random_state, **_):
        seeds.append(random_state)
        return SimpleNamespace(fit_transform=lambda rows: rows[:, :2])

    monkeypatch.setitem(sys.modules, "umap", SimpleNamespace(UMAP=umap))
    for seed in (7, 2**32 - 1, 5_000_000_000, 2**63 - 1):
        assert neuron_embedding.umap_layout(points, seed)[0].shape == (20, 2)
        np.random.RandomState(seeds[-1])
    assert seeds[:2] == [7, 2**32 - 1]
