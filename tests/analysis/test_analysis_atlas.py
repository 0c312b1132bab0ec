"""Two masks module by module: held against loops over neurons."""

import numpy as np
import pytest
from made_records import a_partition

from gprune.analysis import mask_map
from gprune.records import Array, PruningMasks, UnitScores


def some_masks(ffn: Array, heads: Array) -> PruningMasks:
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
            assert found.first[row] == pytest.approx(first) and found.change[row] == pytest.approx(
                first - second
            )
            assert found.differs[row] == pytest.approx(differs / len(members))
            row += 1
    assert row == len(found.change)
    assert found.neurons == sum(a != b for a, b in zip(one.ffn.ravel(), other.ffn.ravel(), strict=True)) / 120
    assert (
        found.groups == sum(a != b for a, b in zip(one.heads.ravel(), other.heads.ravel(), strict=True)) / 12
    )


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
