"""Questions that flip: what a model chooses, the exact test, and the order of the list."""

import math

import numpy as np
import pytest

from gprune.analysis import changed_answers
from gprune.analysis.changed_answers import ACC, ACC_NORM, EITHER, GAINED, LOST, Counts
from gprune.records import Answers, Questions
from gprune.records.answers import OPTION_CHARACTERS, QUESTION_CHARACTERS


def given(*questions: tuple[list[float], int], lengths: list[int] | None = None) -> Answers:
    """Answers of questions, each the likelihoods of its options and the right one."""
    flat = [value for values, _ in questions for value in values]
    counts = [len(values) for values, _ in questions]
    sizes = np.array(lengths or [1] * len(flat), dtype=np.int32)
    right = np.array([one for _, one in questions], dtype=np.int32)
    return Answers("t", len(counts), np.array(flat, np.float32), sizes, np.array(counts, np.int32), right)


def test_the_highest_likelihood_is_chosen_and_of_equal_ones_the_first():
    one = given(([-2.0, -1.0, -1.0], 2), ([-3.0, -4.0], 0), ([-1.0], 0))
    found = changed_answers.choices(one, ACC)
    assert found.option.tolist() == [1, 0, 0] and found.hit.tolist() == [False, True, True]
    assert found.margin[:2].tolist() == [0.0, 1.0]
    # per character the long option wins: -6 / 4 against -2 / 1
    longer = given(([-2.0, -6.0], 1), lengths=[1, 4])
    assert [int(changed_answers.choices(longer, rule).option[0]) for rule in (ACC, ACC_NORM)] == [0, 1]


def test_flips_are_counted_and_listed_by_how_far_they_moved():
    base = changed_answers.choices(
        given(([0, -1], 0), ([0, -1], 0), ([0, -9], 1), ([0, -1], 0), ([0, -1], 1)), ACC
    )
    other = changed_answers.choices(
        given(([-2, 0], 0), ([-7, 0], 0), ([-1, 0], 1), ([0, -5], 0), ([0, -2], 1)), ACC
    )
    assert changed_answers.counts(base, other) == Counts(both=1, lost=2, gained=1, neither=1)
    assert changed_answers.flips(base, other, EITHER).tolist() == [2, 1, 0]
    assert changed_answers.flips(base, other, LOST).tolist() == [1, 0]
    assert changed_answers.flips(base, other, GAINED).tolist() == [2]
    assert changed_answers.moved(base, other)[[0, 2]].tolist() == [-3.0, 10.0]


@pytest.mark.parametrize(("lost", "gained"), [(0, 0), (1, 0), (8, 1), (5, 5), (2, 14)])
def test_the_probability_is_that_of_a_coin_at_least_as_uneven(lost, gained):
    flips = lost + gained
    chance = [math.comb(flips, heads) / 2**flips for heads in range(flips + 1)]
    expected = sum(one for one in chance if one <= chance[lost] * (1 + 1e-9))
    assert Counts(3, lost, gained, 4).chance == pytest.approx(min(1.0, expected), rel=1e-12)


def test_the_finding_names_both_ways_and_whether_chance_does_as_much():
    said = changed_answers.headline(Counts(10, 14, 2, 5), "FLAP", "the dense model")
    assert said.startswith("FLAP loses 14 of the dense model’s right answers and gains 2 others: more than")
    assert said.endswith("p = 0.004")
    assert "which chance alone can do" in changed_answers.headline(
        Counts(10, 3, 2, 5), "FLAP", "the dense model"
    )
    assert "p < 0.001" in changed_answers.headline(Counts(10, 40, 2, 5), "FLAP", "the dense model")
    assert "answers every question as" in changed_answers.headline(
        Counts(10, 0, 0, 5), "FLAP", "the dense model"
    )


def test_a_question_has_a_row_an_option_and_a_column_a_model():
    known = {"dense": given(([-2.0, -1.0], 1), ([-3.0, -4.0], 0)), "flap": given(([0, -8], 1), ([-1, -2], 0))}
    table = changed_answers.of_question(known, ACC, 1)
    assert table.to_dict("list") == {
        "option": ["A", "B"],
        "right": [True, False],
        "dense": [-3.0, -4.0],
        "flap": [-1.0, -2.0],
    }
    assert changed_answers.letter(25) == "Z" and changed_answers.letter(26) == "27"


def test_questions_are_kept_cut_and_records_fit_together():
    long = "x" * 2000 + "end"
    asked = Questions.of("t", [("first ü 🤖", ["a", "b" * 500]), (long, ["", "c"])])
    assert asked.asked(0) == ("first ü 🤖", ["a", "b" * (OPTION_CHARACTERS - 1) + "…"])
    question, options = asked.asked(1)
    assert len(question) == QUESTION_CHARACTERS and question[0] == "…" and question.endswith("end")
    assert options == ["", "c"]
    assert Questions.of("t", [("\ud83d", ["a", "b"])]).asked(0) == ("?", ["a", "b"])
    with pytest.raises(ValueError, match="does not add up"):
        Answers("t", 1, np.zeros(3, np.float32), np.ones(3, np.int32), np.array([2]), np.array([0]))
    with pytest.raises(ValueError, match="names options that are not there"):
        given(([-1.0, -2.0], 2))
    whole = Questions.of("t", [("q", ["a", "b"])])
    with pytest.raises(ValueError, match="does not divide"):
        Questions("t", whole.text, whole.ends[::-1], whole.counts)
