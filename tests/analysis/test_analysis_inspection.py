"""A neuron's rank and its contexts."""

import numpy as np
import pytest
from made_records import a_partition

from gprune.analysis import inspection
from gprune.records import AdaptedScores, ModuleStatistics, StrongestPositions, Tokens
from gprune.system.errors import SettingsError


@pytest.mark.parametrize(
    ("typed", "unit"),
    [
        ("layer 5 neuron 688", {"layer": 5, "neuron": 688}),
        ("  Neuron 688 of Layer 5 ", {"layer": 5, "neuron": 688}),
        ("5/688", {"layer": 5, "neuron": 688}),
        ("5, 688", {"layer": 5, "neuron": 688}),
        ("module 3 of layer 2", {"layer": 2, "module": 3}),
        ("layer 2 · module 3 · neuron 7", {"layer": 2, "module": 3, "neuron": 7}),
        ("layer 0", {"layer": 0}),
        *((typed, {"layer": 5, "neuron": 688}) for typed in ("L5N688", "L5 N688", "l5n688", " L5, N 688 ")),
        ("N688 L5", {"layer": 5, "neuron": 688}),
        ("L5M3", {"layer": 5, "module": 3}),
        ("L5", {"layer": 5}),
        ("L5M3N688", {"layer": 5, "module": 3, "neuron": 688}),
    ],
)
def test_what_a_person_looks_for_is_read(typed, unit):
    assert inspection.parse_unit(typed) == unit


@pytest.mark.parametrize(
    "typed",
    ["neuron 5", "layer", "5", "layer 1 layer 2", "<b>", "layer -1", "٣/٤"]
    + ["N688", "L5L6", "L5N", "L", "L-1", "L5X3", "xL5N688", "L٣"],
)
def test_what_names_no_place_is_refused_with_an_example(typed):
    with pytest.raises(SettingsError, match="type, for example, layer 5 neuron 688, L5N688, 5/688"):
        inspection.parse_unit(typed)


def test_whiskers_are_the_range_over_halves_of_neighbouring_shards():
    parts = {0: [1.0, 2, 3], 1: [3.0, 2, 1], 2: [1.0, 2, 3], 3: [1.0, 3, 2]}
    requested = []

    def score(shards):
        requested.append(tuple(shards))
        return np.sum([parts[shard] for shard in shards], axis=0)

    result = inspection.rank_layer(np.array([1.0, 2, 3]), score, 4)
    assert requested == [(0, 1), (1, 2), (2, 3), (3, 0)]
    # (4, 4, 4), (4, 4, 4), (2, 5, 5), (2, 5, 5): equal scores share their rank
    np.testing.assert_array_equal(result.rank, [0, 0.5, 1])
    np.testing.assert_array_equal(result.low, [0, 0.5, 0.5])
    np.testing.assert_array_equal(result.high, [0.5, 0.75, 0.75])
    alone = inspection.rank_layer(np.array([1.0, 2, 3]), None, 0)
    assert alone.low is alone.rank and alone.high is alone.rank


def test_a_percentile_counts_equal_ones_by_half():
    values = np.array([1.0, 2, 2, 3, 4])
    assert [inspection.percentile(value, values) for value in values] == [0, 0.375, 0.375, 0.75, 1]
    assert inspection.percentile(1.0, np.array([1.0])) == 0


def test_modules_of_a_layer_say_what_rasa_did_and_how_much_is_kept():
    partition = a_partition([[0, 0, 1, 1], [1, 0, 0, 2]])
    about = np.array([2, 2, 2, 1, 1]), partition.module_layer, np.full(5, 0.2), np.full(5, 0.1)
    measured = ModuleStatistics(np.arange(5) / 10, np.arange(5.0), *about)
    chosen, source = np.array([0, 0, 1, 0, 1], bool), np.array([0, 0, 1, 0, 0], np.int8)
    adapted = AdaptedScores(np.zeros((2, 4)), chosen, source, 0.1, 1.0)
    table = inspection.module_table(partition, 1, measured, adapted, {"GPrune": np.array([1, 1, 0, 0])})
    assert table["size"].tolist() == [2, 1, 1] and table["drift"].tolist() == [0.2, 0.3, 0.4]
    assert table["RASA"].tolist() == ["adapted, re-scored", "unchanged", "adapted, not re-scored"]
    assert table["GPrune"].tolist() == [0.5, 1, 0]


def strongest(**changes):
    values = {"fingerprint": "f", "length": 5, "sequences": [[[1, 0]]], "positions": [[[4, 0]]]} | changes
    places = {name: np.array(values.pop(name), dtype=np.int16) for name in ("sequences", "positions")}
    return StrongestPositions("t", **values, **places, values=np.array([[[-3, 2]]], dtype=np.float32))


def test_contexts_are_cut_at_the_ends_of_their_sequence():
    tokens = Tokens("t", "f", np.arange(10, dtype=np.int32).reshape(2, 5), 2)
    first, second = inspection.strongest(strongest(), tokens, 0, 0, 2)
    assert (first.sequence, first.position, first.value) == (1, 4, -3) and first.ids == (7, 8, 9)
    assert first.ids[first.at] == 9
    assert second.ids == (0, 1, 2) and second.ids[second.at] == 0
    # the padding of a conversation is not shown
    flags = np.arange(10).reshape(2, 5) % 5 < 2
    padded = Tokens("t", "f", tokens.ids, 2, flags, flags)
    assert inspection.strongest(strongest(), padded, 0, 0, 2)[1].ids == (0, 1)
    with pytest.raises(ValueError, match="positions holds values outside 0 ... 4"):
        strongest(positions=[[[5, 0]]])
