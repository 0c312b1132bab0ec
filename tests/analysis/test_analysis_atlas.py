"""Two masks module by module and unit by unit: held against loops over neurons."""

from dataclasses import replace

import numpy as np
import pytest
from made_records import a_partition

from gprune.analysis import decisions, mask_map
from gprune.analysis.decisions import GROUPS, NEURONS
from gprune.records import PruningMasks, UnitScores


def some_masks(ffn, heads):
    return PruningMasks("flap", ffn, heads, 0.5, 0.5)


def test_every_module_is_what_counting_its_neurons_gives():
    random = np.random.default_rng(5)
    labels = [random.permutation(np.arange(40) % count).tolist() for count in (3, 5, 2)]
    mask, second_mask = drawn_masks(0, 0.5), drawn_masks(1, 0.5)
    actual = mask_map.compare_modules(a_partition(labels), mask, second_mask)
    modules = [(layer, module) for layer, row in enumerate(labels) for module in range(max(row) + 1)]
    for row, (layer, module) in enumerate(modules):
        members = [number for number, label in enumerate(labels[layer]) if label == module]
        first, second = (sum(m.ffn[layer, n] for n in members) / len(members) for m in (mask, second_mask))
        differs = sum(mask.ffn[layer, number] != second_mask.ffn[layer, number] for number in members)
        assert (actual.layer[row], actual.module[row], actual.size[row]) == (layer, module, len(members))
        assert actual.first[row] == pytest.approx(first) and actual.change[row] == pytest.approx(first - second)
        assert actual.differs[row] == pytest.approx(differs / len(members))
    assert len(modules) == len(actual.change)
    assert actual.neurons == np.mean(mask.ffn != second_mask.ffn)
    assert actual.groups == np.mean(mask.heads != second_mask.heads)


def test_modules_stand_from_stable_to_unstable():
    partition = a_partition([[0, 1, 2, 2], [1, 0, 0, 0]])
    drift = np.array([[0.5, 0.1, 0.2, 0.4], [0.3, 0.1, 0.1, 0.1]])
    # means 0.5, 0.1, 0.3 in layer 0 and 0.1, 0.3 in layer 1
    assert mask_map.module_columns(partition, drift).tolist() == [2, 0, 1, 0, 1]
    heads = np.ones((2, 1), dtype=bool)
    masks = some_masks(np.array([[True, False, False, False], [True, False, False, False]]), heads)
    none = some_masks(np.zeros((2, 4), dtype=bool), heads)
    modules = mask_map.compare_modules(partition, masks, none)
    cells = mask_map.arrange_grid(modules, modules.change, mask_map.module_columns(partition, drift))
    assert cells[0].tolist() == [0, 0, 1] and cells[1, :2].tolist() == [0, 1] and np.isnan(cells[1, 2])
    assert modules.largest == 0


def test_the_table_of_groups_tells_scores_and_who_keeps_them():
    heads = np.array([[1.0, 3.0], [5.0, 5.0]])
    scores = [UnitScores("flap", "t", np.ones((2, 3)), values, np.ones((2, 4))) for values in (heads, -heads)]
    masks = {"FLAP": some_masks(np.ones((2, 3), dtype=bool), np.array([[True, False], [True, True]]))}
    table = mask_map.group_table(masks, *scores)
    assert table["group"].tolist() == [0, 1, 0, 1] and table["score on B"].tolist() == [-1, -3, -5, -5]
    # a layer of equal scores has no deviations
    assert table["standard score on A"].tolist() == pytest.approx([-(0.5**0.5), 0.5**0.5, 0, 0])
    assert table["kept, FLAP"].tolist() == [True, False, True, True]


def drawn_masks(seed, share, neurons=40):
    random = np.random.default_rng(seed)
    return some_masks(*(random.random((3, width)) < share for width in (neurons, 4)))


@pytest.mark.parametrize("kind", [NEURONS, GROUPS])
def test_counts_and_jaccard_equal_the_loop(kind):
    first, second = drawn_masks(0, 0.5), drawn_masks(1, 0.7)
    actual = decisions.count_shared(first, second, kind)
    rows = ([set(np.flatnonzero(row)) for row in (m.ffn if kind == NEURONS else m.heads)] for m in (first, second))
    pairs = list(zip(*rows, strict=True))
    assert actual.both.tolist() == [len(a & b) for a, b in pairs]
    assert actual.first.tolist() == [len(a - b) for a, b in pairs]
    assert actual.second.tolist() == [len(b - a) for a, b in pairs]
    shared = sum(len(a & b) for a, b in pairs)
    assert actual.jaccard == pytest.approx(shared / sum(len(a | b) for a, b in pairs))


def test_chance_is_what_shuffled_masks_share_and_equal_empty_and_named_units():
    first, second = drawn_masks(0, 0.3, neurons=400), drawn_masks(1, 0.6, neurons=400)
    ffn = second.ffn.copy()
    ffn[0] = np.arange(400) < 20
    second = replace(second, ffn=ffn)
    overlap, random = decisions.count_shared(first, second, NEURONS), np.random.default_rng(2)
    shares = []
    for _ in range(200):
        mixed = np.array([random.permutation(row) for row in second.ffn])
        shares.append((first.ffn & mixed).sum() / (first.ffn | mixed).sum())
    assert overlap.chance == pytest.approx(np.mean(shares), abs=0.002)
    same = decisions.count_shared(drawn_masks(0, 0.5), drawn_masks(0, 0.5), NEURONS)
    assert same.jaccard == 1.0 and not same.first.any() and not same.second.any()
    none = decisions.count_shared(drawn_masks(0, 0.0), drawn_masks(1, 0.0), NEURONS)
    assert np.isnan(none.jaccard) and np.isnan(none.chance)


def kept_by(ffn, retention=0.5):
    return PruningMasks("gprune", ffn.astype(bool), np.ones((len(ffn), 1), dtype=bool), retention, retention)


def reference_bins(drift, labels, retained, base_retained, bins):
    """Figure 3 as its caption says it: sort modules by mean drift, cut into equal bins, pool the neurons."""
    labelled = [(layer, label) for layer in range(len(labels)) for label in range(labels[layer].max() + 1)]
    modules = [[(layer, i) for i in np.flatnonzero(labels[layer] == label)] for layer, label in labelled]
    modules.sort(key=lambda members: np.mean([drift[neuron] for neuron in members]))
    results = []
    for part in np.array_split(np.arange(len(modules)), bins):
        neurons = [neuron for index in part for neuron in modules[index]]
        first, second = ({neuron for neuron in neurons if mask[neuron]} for mask in (retained, base_retained))
        shared = len(first & second) / len(first | second)
        results.append((len(first) / len(neurons), len(second) / len(neurons), shared))
    return zip(*results, strict=True)


@pytest.mark.parametrize("bins", [1, 3, 5, 7])
def test_bins_equal_the_loop(bins):
    random = np.random.default_rng(3)
    labels = np.stack([random.permutation(np.arange(31) % 6) for _ in range(3)]).astype(np.int32)
    drift = random.random(labels.shape)
    retained, base_retained = random.random(labels.shape) < 0.6, random.random(labels.shape) < 0.4
    actual = decisions.compare(drift, a_partition(labels), kept_by(retained), kept_by(base_retained), bins)
    expected = reference_bins(drift, labels, retained, base_retained, bins)
    for values, reference in zip((actual.gprune, actual.base, actual.jaccard), expected, strict=True):
        np.testing.assert_allclose(values, reference, rtol=1e-12)
    np.testing.assert_allclose(actual.shares.sum(axis=0), 100)
    assert actual.neurons.sum() == labels.size


def test_few_modules_and_empty_choices_and_chance_level_is_the_papers_and_met_by_independent_masks():
    labels = np.stack([np.arange(13) % 13] * 2).astype(np.int32)
    drift = np.random.default_rng(0).random(labels.shape)
    counts = np.bincount(decisions.module_bins(drift, a_partition(labels), 5))
    assert counts.tolist() == [6, 5, 5, 5, 5]
    labels = np.zeros((1, 4), dtype=np.int32)
    mask = np.array([[1, 1, 0, 0]])
    bins = decisions.compare(np.zeros((1, 4)), a_partition(labels), kept_by(mask), kept_by(mask), 5)
    assert bins.names == ["0–100%"] and bins.jaccard.tolist() == [1.0]
    labels = np.array([[0, 0, 1, 1]], dtype=np.int32)
    mask = np.array([[0, 0, 1, 1]])
    bins = decisions.compare(np.array([[0.0, 0, 1, 1]]), a_partition(labels), kept_by(mask), kept_by(mask), 2)
    assert np.isnan(bins.jaccard[0]) and np.isnan(bins.chance[0]) and bins.jaccard[1] == 1.0
    # retentions of the most unstable bin in Fig. 3a
    assert decisions.chance_jaccard(np.array([0.349]), np.array([0.437]))[0] == pytest.approx(0.241, abs=5e-4)
    assert decisions.chance_jaccard(np.array([0.5]), np.array([0.5]))[0] == pytest.approx(1 / 3)
    random = np.random.default_rng(1)
    labels = np.zeros((1, 200_000), dtype=np.int32)
    first, second = random.random(labels.shape) < 0.35, random.random(labels.shape) < 0.44
    bins = decisions.compare(np.zeros(labels.shape), a_partition(labels), kept_by(first), kept_by(second), 1)
    assert bins.jaccard[0] == pytest.approx(bins.chance[0], abs=0.005)


def test_tables_of_layers_and_bins():
    first, second = (kept_by(np.array([row, [0, 0, 0, 0]])) for row in ([1, 1, 0, 0], [1, 0, 0, 0]))
    np.testing.assert_allclose(decisions.layer_retention(first)[0], [0.5, 0.0])
    table = decisions.layer_table({"GPrune": first, "FLAP": second})
    assert table["neurons, FLAP"].tolist() == [0.25, 0.0] and list(table["layer"]) == [0, 1]
    labels = np.array([[0, 0, 1, 1]], dtype=np.int32)
    ratios = kept_by(np.array([[1, 0, 1, 0]]))
    result = decisions.compare(np.zeros((1, 4)), a_partition(labels), ratios, ratios, 2)
    table = decisions.bin_table(result, "Wanda-sp")
    assert table["retained, Wanda-sp"].tolist() == [0.5, 0.5] and len(table) == 2
