"""Two masks module by module and unit by unit: held against loops over neurons."""

from dataclasses import replace

import numpy as np
import pytest
from made_records import a_partition

from gprune.analysis import decisions, kept_units, mask_map, verdict
from gprune.analysis.kept_units import GROUPS, NEURONS
from gprune.records import PruningMasks, UnitScores


def some_masks(ffn, heads):
    return PruningMasks("flap", ffn, heads, 0.5, 0.5)


def test_every_module_is_what_counting_its_neurons_gives():
    random = np.random.default_rng(5)
    labels = [random.permutation(np.arange(40) % count).tolist() for count in (3, 5, 2)]
    partition = a_partition(labels)
    one, other = (some_masks(random.random((3, 40)) < 0.5, random.random((3, 4)) < 0.5) for _ in range(2))
    found = mask_map.compare(partition, one, other)
    row = 0
    for layer, own in enumerate(labels):
        for module in range(max(own) + 1):
            members = [number for number, label in enumerate(own) if label == module]
            first = sum(bool(one.ffn[layer, number]) for number in members) / len(members)
            second = sum(bool(other.ffn[layer, number]) for number in members) / len(members)
            differs = sum(one.ffn[layer, number] != other.ffn[layer, number] for number in members)
            assert (found.layer[row], found.module[row], found.size[row]) == (layer, module, len(members))
            assert found.first[row] == pytest.approx(first) and found.change[row] == pytest.approx(first - second)
            assert found.differs[row] == pytest.approx(differs / len(members))
            row += 1
    assert row == len(found.change)
    assert found.neurons == sum(a != b for a, b in zip(one.ffn.ravel(), other.ffn.ravel(), strict=True)) / 120
    assert found.groups == sum(a != b for a, b in zip(one.heads.ravel(), other.heads.ravel(), strict=True)) / 12


def test_equal_retention_can_hide_that_every_neuron_is_another():
    partition = a_partition([[0, 0, 1, 1]])
    heads = np.ones((1, 1), dtype=bool)
    one = some_masks(np.array([[True, False, True, False]]), heads)
    other = some_masks(np.array([[False, True, True, False]]), heads)
    found = mask_map.compare(partition, one, other)
    assert found.change.tolist() == [0, 0] and found.differs.tolist() == [1, 0] and found.neurons == 0.5


def test_modules_stand_by_number_or_from_stable_to_unstable():
    partition = a_partition([[0, 1, 2, 2], [1, 0, 0, 0]])
    drift = np.array([[0.5, 0.1, 0.2, 0.4], [0.3, 0.1, 0.1, 0.1]])
    assert mask_map.columns(partition, None).tolist() == [0, 1, 2, 0, 1]
    # means 0.5, 0.1, 0.3 in layer 0 and 0.1, 0.3 in layer 1
    assert mask_map.columns(partition, drift).tolist() == [2, 0, 1, 0, 1]
    heads = np.ones((2, 1), dtype=bool)
    kept = some_masks(np.array([[True, False, False, False], [True, False, False, False]]), heads)
    none = some_masks(np.zeros((2, 4), dtype=bool), heads)
    cells = mask_map.grid(
        found := mask_map.compare(partition, kept, none), found.change, mask_map.columns(partition, drift)
    )
    assert cells[0].tolist() == [0, 0, 1] and cells[1, :2].tolist() == [0, 1] and np.isnan(cells[1, 2])
    assert found.largest == 0


def test_the_table_of_groups_tells_scores_and_who_keeps_them():
    heads = np.array([[1.0, 3.0], [5.0, 5.0]])
    scores = [
        UnitScores("flap", text, np.ones((2, 3)), heads * factor, np.ones((2, 4)))
        for text, factor in (("a", 1), ("b", -1))
    ]
    masks = {"FLAP": some_masks(np.ones((2, 3), dtype=bool), np.array([[True, False], [True, True]]))}
    table = mask_map.group_table(masks, *scores)
    assert table["group"].tolist() == [0, 1, 0, 1] and table["score on B"].tolist() == [-1, -3, -5, -5]
    # a layer of equal scores has no deviations
    assert table["standard score on A"].tolist() == pytest.approx([-(0.5**0.5), 0.5**0.5, 0, 0])
    assert table["kept, FLAP"].tolist() == [True, False, True, True]


def drawn_masks(seed, share, layers=3, neurons=40, groups=4):
    random = np.random.default_rng(seed)
    ffn, heads = (random.random((layers, width)) < share for width in (neurons, groups))
    return PruningMasks("flap", ffn, heads, share, share)


@pytest.mark.parametrize("kind", [NEURONS, GROUPS])
def test_counts_and_jaccard_equal_the_loop(kind):
    first, second = drawn_masks(0, 0.5), drawn_masks(1, 0.7)
    found = kept_units.overlap(first, second, kind)
    one, other = (
        [set(np.flatnonzero(row)) for row in (mask.ffn if kind == NEURONS else mask.heads)] for mask in (first, second)
    )
    assert found.both.tolist() == [len(a & b) for a, b in zip(one, other, strict=True)]
    assert found.first.tolist() == [len(a - b) for a, b in zip(one, other, strict=True)]
    assert found.second.tolist() == [len(b - a) for a, b in zip(one, other, strict=True)]
    both = sum(len(a & b) for a, b in zip(one, other, strict=True))
    either = sum(len(a | b) for a, b in zip(one, other, strict=True))
    assert found.jaccard == pytest.approx(both / either)
    by_layer = [len(a & b) / len(a | b) for a, b in zip(one, other, strict=True)]
    np.testing.assert_allclose(found.layers[0], by_layer)


def test_chance_is_what_shuffled_masks_share_and_equal_empty_and_named_units():
    first, second = drawn_masks(0, 0.3, neurons=400), drawn_masks(1, 0.6, neurons=400)
    ffn = second.ffn.copy()
    ffn[0] = np.arange(400) < 20
    second = replace(second, ffn=ffn)
    found, random = kept_units.overlap(first, second, NEURONS), np.random.default_rng(2)
    drawn = []
    for _ in range(200):
        mixed = np.array([random.permutation(row) for row in second.ffn])
        drawn.append((first.ffn & mixed).sum() / (first.ffn | mixed).sum())
    assert found.chance == pytest.approx(np.mean(drawn), abs=0.002)
    # r1 r2 / (r1 + r2 - r1 r2) in every layer
    r1, r2 = first.ffn.mean(axis=1), second.ffn.mean(axis=1)
    np.testing.assert_allclose(found.layers[1], r1 * r2 / (r1 + r2 - r1 * r2))
    same = kept_units.overlap(drawn_masks(0, 0.5), drawn_masks(0, 0.5), NEURONS)
    assert same.jaccard == 1.0 and not same.first.any() and not same.second.any()
    none = kept_units.overlap(drawn_masks(0, 0.0), drawn_masks(1, 0.0), NEURONS)
    assert np.isnan(none.jaccard) and np.isnan(none.chance) and np.isnan(none.layers[0]).all()
    found = kept_units.overlap(drawn_masks(0, 0.5), drawn_masks(1, 0.7), NEURONS)
    (line,) = kept_units.total_table({NEURONS: found}, "FLAP", "GPrune").to_dict("records")
    assert line["units"] == "FFN neurons" and line["both"] == found.both.sum()
    table = kept_units.layer_table(found, "FLAP", "GPrune")
    assert table["only GPrune"].sum() == line["only GPrune"] == found.second.sum()
    assert table["layer"].tolist() == [0, 1, 2]


def kept_by(ffn, retention=0.5):
    return PruningMasks("gprune", ffn.astype(bool), np.ones((len(ffn), 1), dtype=bool), retention, retention)


def reference_bins(drift, labels, ours, base, bins):
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
    found = decisions.compare(drift, a_partition(labels), kept_by(ours), kept_by(base), bins)
    kept, kept_base, jaccard = reference_bins(drift, labels, ours, base, bins)
    np.testing.assert_allclose(found.ours, kept, rtol=1e-12)
    np.testing.assert_allclose(found.base, kept_base, rtol=1e-12)
    np.testing.assert_allclose(found.jaccard, jaccard, rtol=1e-12)
    np.testing.assert_allclose(found.shares.sum(axis=0), 100)
    assert found.neurons.sum() == labels.size


def test_few_modules_and_empty_choices_and_chance_level_is_the_papers_and_met_by_independent_masks():
    labels = np.stack([np.arange(13) % 13] * 2).astype(np.int32)
    drift = np.random.default_rng(0).random(labels.shape)
    counts = np.bincount(decisions.module_bins(drift, a_partition(labels), 5))
    assert counts.tolist() == [6, 5, 5, 5, 5]
    labels = np.zeros((1, 4), dtype=np.int32)
    kept = np.array([[1, 1, 0, 0]])
    found = decisions.compare(np.zeros((1, 4)), a_partition(labels), kept_by(kept), kept_by(kept), 5)
    assert found.names == ["0–100 %"] and found.jaccard.tolist() == [1.0]
    labels = np.array([[0, 0, 1, 1]], dtype=np.int32)
    kept = np.array([[0, 0, 1, 1]])
    found = decisions.compare(np.array([[0.0, 0, 1, 1]]), a_partition(labels), kept_by(kept), kept_by(kept), 2)
    assert np.isnan(found.jaccard[0]) and np.isnan(found.chance[0]) and found.jaccard[1] == 1.0
    # retentions of the most unstable bin in Fig. 3a
    assert decisions.chance_jaccard(np.array([0.349]), np.array([0.437]))[0] == pytest.approx(0.241, abs=5e-4)
    assert decisions.chance_jaccard(np.array([0.5]), np.array([0.5]))[0] == pytest.approx(1 / 3)
    random = np.random.default_rng(1)
    labels = np.zeros((1, 200_000), dtype=np.int32)
    ours, base = random.random(labels.shape) < 0.35, random.random(labels.shape) < 0.44
    found = decisions.compare(np.zeros(labels.shape), a_partition(labels), kept_by(ours), kept_by(base), 1)
    assert found.jaccard[0] == pytest.approx(found.chance[0], abs=0.005)


def bins(ours, base):
    """Bins of these retentions; 10 neurons in the first, 30 in each other."""
    none = np.zeros(len(ours))
    sizes = np.array([10] + [30] * (len(ours) - 1))
    names = decisions.bin_names(len(ours))
    return decisions.Bins(names, none, sizes, np.array(ours), np.array(base), none, none, np.zeros((4, len(ours))))


def test_headlines_follow_the_signs():
    title = verdict.budget_title(bins([0.6, 0.3, 0.6], [0.5, 0.5, 0.5]), "FLAP")
    assert title == "Retention against FLAP: +0.100 in the most unstable modules, −0.125 in the others"
    alike = verdict.budget_title(bins([0.501, 0.499], [0.5, 0.5]), "FLAP")
    assert alike == "GPrune spreads the budget over stable and unstable modules as FLAP does"
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
    ours, base = (
        kept_by(np.array([[1, 1, 0, 0], [0, 0, 0, 0]])),
        kept_by(np.array([[1, 0, 0, 0], [0, 0, 0, 0]])),
    )
    np.testing.assert_allclose(decisions.layer_retention(ours)[0], [0.5, 0.0])
    np.testing.assert_allclose(decisions.layer_jaccard(ours, base), [0.5, np.nan])
    table = decisions.layer_table({"GPrune": ours, "FLAP": base})
    assert table["neurons, FLAP"].tolist() == [0.25, 0.0] and list(table["layer"]) == [0, 1]
    labels = np.array([[0, 0, 1, 1]], dtype=np.int32)
    kept = kept_by(np.array([[1, 0, 1, 0]]))
    result = decisions.compare(np.zeros((1, 4)), a_partition(labels), kept, kept, 2)
    table = decisions.bin_table(result, "Wanda-sp")
    assert table["retained, Wanda-sp"].tolist() == [0.5, 0.5] and len(table) == 2
