"""Neurons as points: their behaviour against loops, their components against another decomposition."""

from typing import Any

import numpy as np
import pytest

from gprune.pruning import neuron_embedding
from gprune.records import ActivationStatistics, Array
from gprune.system.errors import NumericsError, SettingsError


def measured(seed: int, shards: int = 3, neurons: int = 20, **changed: Array) -> ActivationStatistics:
    random = np.random.default_rng(seed)
    values: dict[str, Any] = {}
    for part, width in (("ffn", neurons), ("attention", 4)):
        size = (shards, 2, width)
        values[f"{part}_mean"] = random.normal(size=size)
        values[f"{part}_moment"] = random.gamma(2.0, size=size) * 50
        values[f"{part}_energy"] = values[f"{part}_moment"] + 1
        values[f"{part}_released_fluctuation"] = np.zeros(size[1:])
    tokens = np.arange(10, 10 + shards)
    return ActivationStatistics("a", "f", np.ones(shards, dtype=np.int64), tokens, **(values | changed))


def test_behaviour_is_each_shards_mean_and_deviation_standardised_over_the_layer():
    texts, layer = [measured(1), measured(2)], 1
    columns = []
    for text in texts:
        for shard in range(3):
            columns.append([text.ffn_mean[shard, layer, neuron] for neuron in range(20)])
        for shard in range(3):
            tokens = text.shard_tokens[shard]
            columns.append([(text.ffn_moment[shard, layer, neuron] / tokens) ** 0.5 for neuron in range(20)])
    expected = np.array([(np.array(one) - np.mean(one)) / np.std(one) for one in columns]).T
    assert np.allclose(neuron_embedding.behaviour_rows(texts, layer), expected)
    text = measured(3)
    mean = text.ffn_mean.copy()
    # 0.1 is no whole number of bits: its mean is off by a rounding error
    mean[0, 1] = 0.1
    rows = neuron_embedding.behaviour_rows([measured(3, ffn_mean=mean)], 1)
    assert not rows[:, 0].any() and rows[:, 1].std() == pytest.approx(1)


def test_components_are_those_of_a_singular_value_decomposition():
    rows = np.random.default_rng(0).normal(size=(60, 12)) * np.linspace(3, 0.2, 12)
    found = neuron_embedding.principal(rows, 50)
    left, singular, _ = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    assert np.allclose(np.abs(found.places), np.abs(left * singular), atol=1e-4)
    assert np.allclose(
        found.shares, singular**2 / (singular**2).sum()
    ) and found.shares.sum() == pytest.approx(1)
    # the same neurons in another order give the same picture: no axis is turned round
    assert np.allclose(neuron_embedding.principal(rows[::-1], 50).places[::-1], found.places, atol=1e-5)
    assert neuron_embedding.principal(rows, 5).places.shape == (60, 5)


@pytest.mark.parametrize(("neurons", "words"), [(1, "there is one neuron"), (9, "all 9 neurons are equal")])
def test_neurons_that_are_all_alike_are_a_sentence(neurons, words):
    flat = {"ffn_mean": np.full((3, 2, neurons), 0.1), "ffn_moment": np.ones((3, 2, neurons))}
    with pytest.raises(NumericsError, match=f"in the behaviour of layer 1 {words}"):
        neuron_embedding.behaviour([measured(1, neurons=neurons, **flat)], 1)


def test_shared_neighbours_and_a_thinned_chart():
    random = np.random.default_rng(4)
    points, places = random.normal(size=(30, 5)), random.normal(size=(30, 2))

    def nearest(among: Array, neuron: int) -> set[int]:
        away = sorted((float(((among[neuron] - one) ** 2).sum()), place) for place, one in enumerate(among))
        return set([place for _, place in away if place != neuron][:4])

    expected = [len(nearest(points, one) & nearest(places, one)) / 4 for one in range(30)]
    assert neuron_embedding.shared_neighbours(points, places, 4) == pytest.approx(expected)
    assert (neuron_embedding.shared_neighbours(points, points, 4) == 1).all()
    assert neuron_embedding.shown(50, 100).tolist() == list(range(50))
    found = neuron_embedding.shown(28_672, 12_000, 17)
    assert len(found) == len(set(found.tolist())) == 12_000 and 17 in found
    assert found[0] == 0 and found[-1] == 28_671 and 1 <= np.diff(found).min() <= np.diff(found).max() <= 5
    with pytest.raises(SettingsError, match="needs 16 neurons; this layer has 8"):
        neuron_embedding.laid_out(np.random.default_rng(0).normal(size=(8, 3)), 0)
