"""Numbers about the calibration sets, against loops that follow their definitions."""

import math

import numpy as np
import pytest
from scipy.stats import rankdata, spearmanr

from gprune.analysis import agreement, calibration, verdict
from gprune.pipeline.stages.rasa import COMPARISONS, SWAP
from gprune.records import Agreement, RankDrift, Tokens


def a_text(ids, name="text", available=9):
    return Tokens(name, "0123456789abcdef" * 4, np.array(ids, dtype=np.int32), available)


def naive_distance(first, second):
    pairs = zip(first / first.sum(), second / second.sum(), strict=True)
    terms = [0.5 * x * math.log2(x / ((a + b) / 2)) for a, b in pairs for x in (a, b) if x > 0]
    return math.sqrt(sum(terms))


@pytest.mark.parametrize("seed", range(3))
def test_token_distance_is_the_root_of_the_divergence_in_bits(seed):
    random = np.random.default_rng(seed)
    first, second = random.integers(0, 9, 40), random.integers(0, 4, 40)
    distance = calibration.token_distance(first, second)
    assert distance == pytest.approx(naive_distance(first, second), rel=1e-12)
    assert distance == pytest.approx(calibration.token_distance(second, 7 * first), rel=1e-12)


def test_token_distance_runs_from_none_to_one_and_the_texts_side_by_side():
    first_counts, second_counts = np.array([3, 1, 0, 0]), np.array([0, 0, 5, 2])
    assert calibration.token_distance(first_counts, 2 * first_counts) == 0
    assert calibration.token_distance(first_counts, second_counts) == pytest.approx(1, rel=1e-12)
    apart, equal = np.array([[0, 1], [2, 3], [1, 0], [3, 2]]), np.array([[0, 1], [1, 0]])
    assert calibration.half_distance(apart, apart, 4) == 1 == calibration.half_distance(equal, apart, 4)
    assert calibration.half_distance(equal, equal, 2) == 0 == calibration.half_distance(apart, equal, 4)
    texts = {"A": a_text([[0, 1], [2, 3]]), "B": a_text([[0, 1], [0, 1]])}
    table = calibration.distances(texts)
    counts = np.array([1, 1, 1, 1]), np.array([2, 2, 0, 0])
    assert table.loc["A", "B"] == table.loc["B", "A"] == pytest.approx(naive_distance(*counts))
    assert table.loc["A", "A"] == 1 and table.loc["B", "B"] == 0
    texts = {"A": a_text([[0, 0, 0, 1], [0, 2, 2, 5]], "one"), "B": a_text([[2, 2, 2, 2]], "two", 4)}
    table = calibration.text_table(texts, 8).set_index("text")
    assert table.loc["A", ["sequences", "tokens each", "tokens", "available"]].tolist() == [2, 4, 8, 9]
    assert table["distinct tokens"].tolist() == [4, 1]
    assert table["% of vocabulary"].tolist() == [50, 12.5]
    assert table["% in 10 most frequent tokens"].tolist() == [100, 100]
    assert table.loc["A", "% of distinct also in B"] == 25 and table.loc["B", "% of distinct also in A"] == 100
    assert math.isnan(table.loc["A", "% of distinct also in A"])
    assert table.loc["A", "content"] == "01234567"
    table = calibration.text_table({"A": a_text([list(range(40))])})
    assert table["% in 10 most frequent tokens"].tolist() == [25]
    assert math.isnan(table["% of vocabulary"][0])


def test_rank_levels_follow_the_definitions_and_a_record_gives_both_diagonals():
    random = np.random.default_rng(0)
    first, second = random.random((3, 13)), random.integers(0, 4, (3, 13)).astype(float)
    correlation, drift = calibration.correlation_and_drift(first, second)
    rows = zip(first, second, strict=True)
    assert correlation == pytest.approx(np.median([spearmanr(a, b).statistic for a, b in rows]), rel=1e-12)
    moved = np.abs(rankdata(first, axis=1) - rankdata(second, axis=1)) / 12
    assert drift == pytest.approx(np.median(moved), rel=1e-12)
    first = np.array([[1.0, 1, 1], [1, 2, 3]])
    assert calibration.correlation_and_drift(first, first)[0] == 1
    values = np.full((2, 3), 0.25)
    levels = [np.array([value, np.nan]) for value in (0.5, 0.6, 0.7, 0.8)]
    drift = RankDrift(values, values, values, values / 5, values / 2.5, values, *levels)
    recorded = calibration.recorded_rank_shifts("A", "C", drift)
    assert recorded == {("A", "C"): (0.5, 0.25), ("A", "A"): (0.7, 0.05), ("C", "C"): (0.8, 0.1)}


def test_the_square_is_symmetric_and_leaves_gaps():
    table = calibration.square({("A", "B"): 0.25, ("B", "B"): 0.75, ("A", "C"): 0.5})
    assert list(table) == list(table.index) == ["A", "B", "C"]
    assert table.loc["B", "A"] == table.loc["A", "B"] == 0.25
    assert math.isnan(table.loc["B", "C"]) and math.isnan(table.loc["A", "A"])
    assert calibration.finding(table) == "0.25 to 0.50 between texts, 0.75 within one"
    assert calibration.finding(calibration.square({})) == ""


NAMES = ("ab_ac", "ab_bc", "other_seed")
TITLES = ["B replaced by C", "A replaced by C", "control: same texts, another seed"]


def a_record():
    ari = np.array([[0.2, 0.4], [0.4, 0.8], [0.9, 0.9]])
    return Agreement(NAMES, ari, ari + 0.1)


def test_means_and_tables_are_over_layers_and_leave_out_controls():
    assert agreement.mean_substitution(a_record()) == pytest.approx((0.45, 0.15))
    record = Agreement(NAMES[2:], np.array([[0.9]]), np.array([[0.9]]))
    assert agreement.mean_substitution(record) is None
    assert verdict.agreement_title(record) == "Mean ARI of the modules: 0.90 when only the seed changes"
    assert agreement.mean_std(np.array([0.4])) == (0.4, 0.0)
    table = agreement.agreement_by_layer(a_record())
    assert len(table) == 6 and table["layer"].tolist() == [0, 1] * 3
    assert table["comparison"].tolist() == [title for title in TITLES for _ in range(2)]
    assert table["ARI"].tolist() == [0.2, 0.4, 0.4, 0.8, 0.9, 0.9]
    assert "0.45 when one calibration text is replaced" in verdict.agreement_title(a_record())
    assert "0.90 when only the seed changes" in verdict.agreement_title(a_record())
    ari = np.array([[0.5, 0.7], [0.2, 0.4], [0.0, 0.0]])
    record = Agreement(("initialization", "other_seed", "fang_other_seed"), ari, ari)
    assert agreement.controls(record) == (pytest.approx(0.3), pytest.approx(0.6))


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
    ending = "0.90 when only the seed changes and 0.15 for FANG’s groups of A and B"
    assert verdict.agreement_title(record).endswith(ending)
    alone = Agreement(names[4:5], ari[4:5], ari[4:5])
    assert verdict.agreement_title(alone) == "Mean ARI of the modules: 0.15 for FANG’s groups of A and B"


def test_the_largest_count_ratio_and_its_layer_are_returned():
    assert agreement.largest_count_ratio(np.array([4, 10, 3]), np.array([4, 4, 6])) == (2.5, 1)
    assert agreement.largest_count_ratio(np.array([1]), np.array([1])) == (1.0, 0)
