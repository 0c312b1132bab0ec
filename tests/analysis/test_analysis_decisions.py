"""Figure 3 against a loop over modules and neurons."""

import numpy as np
import pytest
from made_records import a_partition

from gprune.analysis import decisions
from gprune.records import PruningMasks


def masks(ffn: np.ndarray, retention: float = 0.5) -> PruningMasks:
    return PruningMasks("gprune", ffn.astype(bool), np.ones((len(ffn), 1), dtype=bool), retention, retention)


def reference_bins(
    drift: np.ndarray, labels: np.ndarray, ours: np.ndarray, base: np.ndarray, bins: int
) -> tuple[list[float], list[float], list[float]]:
    """Figure 3 as its caption says it: sort modules by mean drift, cut into equal bins, pool the neurons."""
    modules = []
    for layer in range(len(labels)):
        for label in range(labels[layer].max() + 1):
            members = [(layer, i) for i in range(labels.shape[1]) if labels[layer, i] == label]
            modules.append((float(np.mean([drift[m] for m in members])), members))
    modules.sort(key=lambda module: module[0])
    kept, kept_base, jaccard = [], [], []
    for part in np.array_split(np.arange(len(modules)), bins):
        neurons = [n for index in part for n in modules[index][1]]
        first, second = [bool(ours[n]) for n in neurons], [bool(base[n]) for n in neurons]
        both = sum(a and b for a, b in zip(first, second, strict=True))
        either = sum(a or b for a, b in zip(first, second, strict=True))
        kept.append(sum(first) / len(neurons))
        kept_base.append(sum(second) / len(neurons))
        jaccard.append(both / either if either else float("nan"))
    return kept, kept_base, jaccard


@pytest.mark.parametrize("bins", [1, 3, 5, 7])
def test_bins_equal_the_loop(bins):
    random = np.random.default_rng(3)
    labels = np.stack([random.permutation(np.arange(31) % 6) for _ in range(3)]).astype(np.int32)
    drift = random.random(labels.shape)
    ours, base = random.random(labels.shape) < 0.6, random.random(labels.shape) < 0.4
    found = decisions.compare(drift, a_partition(labels), masks(ours), masks(base), bins)
    kept, kept_base, jaccard = reference_bins(drift, labels, ours, base, bins)
    np.testing.assert_allclose(found.ours, kept, rtol=1e-12)
    np.testing.assert_allclose(found.base, kept_base, rtol=1e-12)
    np.testing.assert_allclose(found.jaccard, jaccard, rtol=1e-12)
    np.testing.assert_allclose(found.shares.sum(axis=0), 100)
    assert found.neurons.sum() == labels.size


def test_few_modules_and_empty_choices():
    labels = np.stack([np.arange(13) % 13] * 2).astype(np.int32)
    drift = np.random.default_rng(0).random(labels.shape)
    counts = np.bincount(decisions.module_bins(drift, a_partition(labels), 5))
    assert counts.tolist() == [6, 5, 5, 5, 5]
    labels = np.zeros((1, 4), dtype=np.int32)
    kept = np.array([[1, 1, 0, 0]])
    found = decisions.compare(np.zeros((1, 4)), a_partition(labels), masks(kept), masks(kept), 5)
    assert found.names == ["0–100 %"] and found.jaccard.tolist() == [1.0]
    labels = np.array([[0, 0, 1, 1]], dtype=np.int32)
    kept = np.array([[0, 0, 1, 1]])
    found = decisions.compare(np.array([[0.0, 0, 1, 1]]), a_partition(labels), masks(kept), masks(kept), 2)
    assert np.isnan(found.jaccard[0]) and np.isnan(found.chance[0]) and found.jaccard[1] == 1.0


def test_chance_level_is_the_papers_and_met_by_independent_masks():
    # retentions of the most unstable bin in Fig. 3a
    assert decisions.chance_jaccard(np.array([0.349]), np.array([0.437]))[0] == pytest.approx(0.241, abs=5e-4)
    assert decisions.chance_jaccard(np.array([0.5]), np.array([0.5]))[0] == pytest.approx(1 / 3)
    random = np.random.default_rng(1)
    labels = np.zeros((1, 200_000), dtype=np.int32)
    ours, base = random.random(labels.shape) < 0.35, random.random(labels.shape) < 0.44
    found = decisions.compare(np.zeros(labels.shape), a_partition(labels), masks(ours), masks(base), 1)
    assert found.jaccard[0] == pytest.approx(found.chance[0], abs=0.005)


def bins(ours: list[float], base: list[float]) -> decisions.Bins:
    """Bins of these retentions; 10 neurons in the first, 30 in each other."""
    none = np.zeros(len(ours))
    sizes = np.array([10] + [30] * (len(ours) - 1))
    names = decisions.bin_names(len(ours))
    return decisions.Bins(
        names, none, sizes, np.array(ours), np.array(base), none, none, np.zeros((4, len(ours)))
    )


def test_headlines_follow_the_signs():
    every = decisions.headline(bins([0.4, 0.4, 0.6], [0.5, 0.5, 0.5]), "FLAP")
    assert every.endswith(
        "more neurons of the most unstable modules than FLAP (+0.100) and fewer of the others (−0.100)"
    )
    some = decisions.headline(bins([0.6, 0.3, 0.6], [0.5, 0.5, 0.5]), "FLAP")
    assert some.endswith("and fewer of the others on average (−0.125)")
    words = decisions.headline(bins([0.4, 0.4, 0.501], [0.5, 0.5, 0.5]), "FLAP")
    assert (
        "about as many neurons of the most unstable modules as FLAP (+0.001) and fewer of the others" in words
    )
    result = bins([0.8, 0.2], [0.4, 0.6])
    assert decisions.pooled(result) == pytest.approx((0.35, 0.55))
    words = decisions.total_sentence(result, "FLAP")
    assert "GPrune 35.0 %, FLAP 55.0 %" in words and "FFN and attention differently" in words
    # Fig. 3a: the most unstable bin falls from 0.437 to 0.349, the others gain
    assert decisions.direction_sentence(bins([0.55, 0.349], [0.5, 0.437])) == ""
    words = decisions.direction_sentence(bins([0.4, 0.6], [0.5, 0.5]))
    assert "opposite of the paper's Fig. 3a" in words and "+0.100 and the others by −0.100" in words
    assert decisions.direction_sentence(bins([0.4], [0.5])) == ""


def test_tables_of_layers_and_bins():
    ours, base = masks(np.array([[1, 1, 0, 0], [0, 0, 0, 0]])), masks(np.array([[1, 0, 0, 0], [0, 0, 0, 0]]))
    np.testing.assert_allclose(decisions.layer_retention(ours)[0], [0.5, 0.0])
    np.testing.assert_allclose(decisions.layer_jaccard(ours, base), [0.5, np.nan])
    table = decisions.layer_table({"GPrune": ours, "FLAP": base})
    assert table["neurons, FLAP"].tolist() == [0.25, 0.0] and list(table["layer"]) == [0, 1]
    labels = np.array([[0, 0, 1, 1]], dtype=np.int32)
    kept = masks(np.array([[1, 0, 1, 0]]))
    result = decisions.compare(np.zeros((1, 4)), a_partition(labels), kept, kept, 2)
    table = decisions.bin_table(result, "Wanda-sp")
    assert table["retained, Wanda-sp"].tolist() == [0.5, 0.5] and len(table) == 2
