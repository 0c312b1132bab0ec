"""Units kept by both of two masks and by one only, against loops, and what chance gives."""

from dataclasses import replace

import numpy as np
import pytest

from gprune.analysis import kept_units
from gprune.analysis.kept_units import GROUPS, NEURONS
from gprune.records import PruningMasks


def masks(seed: int, share: float, layers: int = 3, neurons: int = 40, groups: int = 4) -> PruningMasks:
    random = np.random.default_rng(seed)
    ffn, heads = (random.random((layers, width)) < share for width in (neurons, groups))
    return PruningMasks("flap", ffn, heads, share, share)


@pytest.mark.parametrize("kind", [NEURONS, GROUPS])
def test_counts_and_jaccard_equal_the_loop(kind):
    first, second = masks(0, 0.5), masks(1, 0.7)
    found = kept_units.overlap(first, second, kind)
    one, other = (
        [set(np.flatnonzero(row)) for row in (mask.ffn if kind == NEURONS else mask.heads)]
        for mask in (first, second)
    )
    assert found.both.tolist() == [len(a & b) for a, b in zip(one, other, strict=True)]
    assert found.first.tolist() == [len(a - b) for a, b in zip(one, other, strict=True)]
    assert found.second.tolist() == [len(b - a) for a, b in zip(one, other, strict=True)]
    both = sum(len(a & b) for a, b in zip(one, other, strict=True))
    either = sum(len(a | b) for a, b in zip(one, other, strict=True))
    assert found.jaccard == pytest.approx(both / either)
    by_layer = [len(a & b) / len(a | b) for a, b in zip(one, other, strict=True)]
    np.testing.assert_allclose(found.layers[0], by_layer)


def test_chance_is_what_shuffled_masks_share():
    first, second = masks(0, 0.3, neurons=400), masks(1, 0.6, neurons=400)
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


def test_equal_empty_and_named_units():
    same = kept_units.overlap(masks(0, 0.5), masks(0, 0.5), NEURONS)
    assert same.jaccard == 1.0 and not same.first.any() and not same.second.any()
    none = kept_units.overlap(masks(0, 0.0), masks(1, 0.0), NEURONS)
    assert np.isnan(none.jaccard) and np.isnan(none.chance) and np.isnan(none.layers[0]).all()
    found = kept_units.overlap(masks(0, 0.5), masks(1, 0.7), NEURONS)
    (line,) = kept_units.total_table({NEURONS: found}, "FLAP", "GPrune").to_dict("records")
    assert line["units"] == "FFN neurons" and line["both"] == found.both.sum()
    table = kept_units.layer_table(found, "FLAP", "GPrune")
    assert table["only GPrune"].sum() == line["only GPrune"] == found.second.sum()
    assert table["layer"].tolist() == [0, 1, 2]
