"""Summaries of module agreement."""

import numpy as np
import pytest

from gprune.analysis import agreement
from gprune.pipeline.stages.comparisons import COMPARISONS, SWAP
from gprune.records import Agreement

NAMES = ("ab_ac", "ab_bc", "other_seed")
TITLES = ["A-B against A-C", "A-B against B-C", "control: A-B, another seed"]


def a_record() -> Agreement:
    ari = np.array([[0.2, 0.4], [0.4, 0.8], [0.9, 0.9]])
    return Agreement(NAMES, ari, ari + 0.1)


def test_means_and_tables_are_over_layers_and_leave_out_controls():
    assert agreement.mean_substitution(a_record()) == pytest.approx((0.45, 0.15))
    record = Agreement(NAMES[2:], np.array([[0.9]]), np.array([[0.9]]))
    assert agreement.mean_substitution(record) is None
    assert agreement.headline(record) == "Agreement of the modules, layer by layer"
    table = agreement.summary(a_record())
    assert table["comparison"].tolist() == TITLES
    np.testing.assert_allclose(table["mean ARI"], [0.3, 0.6, 0.9])
    np.testing.assert_allclose(table["s.d. of ARI"], [0.1, 0.2, 0.0], atol=1e-12)
    np.testing.assert_allclose(table["mean overlap"], [0.4, 0.7, 1.0])
    assert agreement.spread(np.array([0.4])) == (0.4, 0.0)
    table = agreement.layer_table(a_record())
    assert len(table) == 6 and table["layer"].tolist() == [0, 1] * 3
    assert table["comparison"].tolist() == [title for title in TITLES for _ in range(2)]
    assert table["ARI"].tolist() == [0.2, 0.4, 0.4, 0.8, 0.9, 0.9]
    assert "0.45 when one calibration text is replaced" in agreement.headline(a_record())
    assert "0.90 when only the seed changes" in agreement.headline(a_record())
    ari = np.array([[0.5, 0.7], [0.2, 0.4], [0.0, 0.0]])
    record = Agreement(("initialization", "other_seed", "fang_other_seed"), ari, ari)
    assert agreement.controls(record) == (pytest.approx(0.3), pytest.approx(0.6))


def test_every_comparison_has_a_kind_and_two_sides_of_their_own():
    kinds = [comparison.kind for comparison in COMPARISONS.values()]
    assert kinds == ["substitution"] * 3 + ["control"] * 2 + ["swap"] + ["FANG"] * 3 + ["control"]
    sides = {side for made in COMPARISONS.values() for side in (made.first, made.second)}
    assert len({side.label for side in sides}) == len(sides) == 11
    assert all(made.name == name and made.first != made.second for name, made in COMPARISONS.items())
    # a kind stands at the beginning of the title, but that of substitutions
    for made in COMPARISONS.values():
        assert made.title.startswith(f"{made.kind}: ") or made.kind == "substitution"


def test_only_what_says_something_is_drawn_at_first():
    names = tuple(COMPARISONS)
    chosen = agreement.default_choice(names, "flap")
    assert set(names) - set(chosen) == {"swap", "fang_ac", "fang_bc", "initialization", "fang_other_seed"}
    assert chosen == [name for name in names if name in chosen]
    assert COMPARISONS["swap"].kind == SWAP
    assert "swap" in agreement.default_choice(names, "twflap")


def test_fang_enters_neither_the_modules_mean_nor_their_controls():
    names = (*NAMES, "swap", "fang_ab", "fang_other_seed")
    ari = np.vstack([a_record().ari, [[0.99, 0.99], [0.1, 0.2], [0.0, 0.0]]])
    record = Agreement(names, ari, ari)
    assert agreement.mean_substitution(record) == pytest.approx((0.45, 0.15))
    assert agreement.controls(record) == (pytest.approx(0.9), None)
    assert agreement.headline(record).endswith(
        "when only the seed changes; FANG's groups of one text alone agree with another's at 0.15"
    )
    alone = Agreement(names[4:5], ari[4:5], ari[4:5])
    assert agreement.headline(alone) == "FANG's groups of two texts agree at a mean ARI of 0.15"


def test_confusion_puts_the_best_match_on_the_diagonal_and_gathers_the_rest():
    counts = np.array([[0, 9, 1], [5, 0, 0], [1, 2, 3], [0, 0, 7]])
    found = agreement.confusion(counts, 24)
    assert found.rows == ("0", "3", "1", "2") and found.columns == ("1", "2", "0")
    assert found.counts.tolist() == [[9, 1, 0], [0, 7, 0], [0, 0, 5], [2, 3, 1]]
    np.testing.assert_allclose(found.shares.sum(axis=1), 1)
    assert found.shares[0].tolist() == [0.9, 0.1, 0.0]
    counts = np.diag([1, 2, 3, 4, 5]) + 1
    found = agreement.confusion(counts, 2)
    assert found.rows == found.columns == ("4", "3", "+3")
    assert found.counts.tolist() == [[6, 1, 3], [1, 5, 3], [3, 3, 15]]
    assert found.counts.sum() == counts.sum()
    # one module more than fits is shown by itself
    assert agreement.confusion(counts, 4).rows == ("4", "3", "2", "1", "0")
    assert agreement.widest_gap(np.array([4, 10, 3]), np.array([4, 4, 6])) == (2.5, 1)
    assert agreement.widest_gap(np.array([1]), np.array([1])) == (1.0, 0)
