"""What the parts of a run do, against plain loops; and what is said where one does next to nothing."""

import math

import numpy as np
import pytest
import tiny_study
from made_records import a_partition

from gprune import pipeline
from gprune.analysis import ablation_effect, changed_answers
from gprune.analysis.ablation_effect import explained_share
from gprune.analysis.changed_answers import ACC, ACC_NORM, EITHER, GAINED, LOST, AnswerCounts
from gprune.pipeline import stages
from gprune.pruning.modules.replacement import permute_labels
from gprune.records import Answers, Questions
from gprune.records.answers import OPTION_CHARACTERS, QUESTION_CHARACTERS
from gprune.store import Store
from gprune.study import from_dict

GENERATOR = np.random.default_rng(0)


def share_of_a_loop(drift, labels):
    total = sum((value - row.mean()) ** 2 for row in drift for value in row)
    rows = [
        (row, row[members == label].mean()) for row, members in zip(drift, labels, strict=True) for label in members
    ]
    return sum((mean - row.mean()) ** 2 for row, mean in rows) / total


def test_the_share_explained_is_that_of_a_loop_and_of_drawn_modules():
    drift = GENERATOR.random((3, 21)) * [[1.0], [0.2], [3.0]]
    labels = np.stack([GENERATOR.permutation(np.arange(21) % count) for count in (2, 5, 7)])
    shares = explained_share(drift, a_partition(labels), a_partition(np.zeros((3, 21))))
    assert shares.modules == pytest.approx(share_of_a_loop(drift, labels))
    assert shares.initialization == pytest.approx(0.0, abs=1e-12)
    assert explained_share(drift, a_partition(np.tile(np.arange(21), (3, 1)))).modules == pytest.approx(1.0)
    assert np.isnan(explained_share(np.ones((3, 21)), a_partition(labels)).modules)
    drift = GENERATOR.gamma(1, 1, (2, 30)) * [[1.0], [4.0]]
    labels = np.stack([np.repeat([0, 1, 2], [20, 7, 3]), np.repeat([0, 1, 2, 3, 4], 6)])
    permuted_shares = [share_of_a_loop(drift, permute_labels(labels, seed)) for seed in range(1000)]
    assert explained_share(drift, a_partition(labels)).random == pytest.approx(np.mean(permuted_shares), rel=0.03)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("diagnostics")
    values = tiny_study.made(folder, third=True, methods=["dense", "gprune"])
    values["sparsity"]["learning_rate"] = 0.5
    values["reliability"] = {"drift_quantile": 0.3, "score_quantile": 0.9}
    study, store = from_dict(values), Store(folder / "cache")
    opened = pipeline.opened(study, store)
    assert not ablation_effect.has_results(opened)
    pipeline.run(study, store, lambda *_: None)
    return pipeline.opened(study, store)


@pytest.mark.slow
def test_a_real_run_is_diagnosed_from_its_results_alone(results):
    diagnosis = ablation_effect.diagnose(results)
    drift, modules = results.get(stages.drift).magnitude, results.get(stages.partition)
    start = results.get(stages.partition, kind="initialization")
    assert diagnosis.drift_explained.modules == pytest.approx(share_of_a_loop(drift, modules.labels))
    assert diagnosis.drift_explained.initialization == pytest.approx(share_of_a_loop(drift, start.labels))
    assert diagnosis.decisions_changed["MSL"] > 0 and diagnosis.decisions_changed["BCM"] > 0
    assert set(diagnosis.decisions_changed) == {"BCM", "RASA", "MSL"}


@pytest.mark.slow
def test_rasa_changes_nothing_where_it_is_off_and_msl_nothing_where_it_takes_no_step(results):
    study = results.graph.study.with_settings({"reliability.selection": "none", "sparsity.epochs": 0})
    pipeline.run(study, results.store, lambda *_: None, until="masks")
    diagnosis = ablation_effect.diagnose(pipeline.opened(study, results.store))
    assert diagnosis.decisions_changed["RASA"] == diagnosis.decisions_changed["MSL"] == 0.0


def answers_of(*questions, lengths=None):
    """Answers of questions, each the likelihoods of its options and the right one."""
    flat = [value for values, _ in questions for value in values]
    counts = [len(values) for values, _ in questions]
    sizes = np.array(lengths or [1] * len(flat), dtype=np.int32)
    right = np.array([answer for _, answer in questions], dtype=np.int32)
    return Answers("t", len(counts), np.array(flat, np.float32), sizes, np.array(counts, np.int32), right)


def test_the_highest_likelihood_is_chosen_and_of_equal_ones_the_first():
    answers = answers_of(([-2.0, -1.0, -1.0], 2), ([-3.0, -4.0], 0), ([-1.0], 0))
    choices = changed_answers.choices(answers, ACC)
    assert choices.option.tolist() == [1, 0, 0] and choices.hit.tolist() == [False, True, True]
    assert choices.margin[:2].tolist() == [0.0, 1.0]
    # per character the long option wins: -6 / 4 against -2 / 1
    longer = answers_of(([-2.0, -6.0], 1), lengths=[1, 4])
    assert [int(changed_answers.choices(longer, rule).option[0]) for rule in (ACC, ACC_NORM)] == [0, 1]


def test_flips_are_counted_and_listed_by_how_far_they_moved():
    values = (
        (([0, -1], 0), ([0, -1], 0), ([0, -9], 1), ([0, -1], 0), ([0, -1], 1)),
        (([-2, 0], 0), ([-7, 0], 0), ([-1, 0], 1), ([0, -5], 0), ([0, -2], 1)),
    )
    base, other = (changed_answers.choices(answers_of(*questions), ACC) for questions in values)
    assert changed_answers.counts(base, other) == AnswerCounts(both=1, lost=2, gained=1, neither=1)
    assert changed_answers.flips(base, other, EITHER).tolist() == [2, 1, 0]
    assert changed_answers.flips(base, other, LOST).tolist() == [1, 0]
    assert changed_answers.flips(base, other, GAINED).tolist() == [2]
    assert changed_answers.margin_shift(base, other)[[0, 2]].tolist() == [-3.0, 10.0]


@pytest.mark.parametrize(("lost", "gained"), [(0, 0), (1, 0), (8, 1), (5, 5), (2, 14)])
def test_the_probability_is_that_of_a_coin_at_least_as_uneven(lost, gained):
    flips = lost + gained
    chance = [math.comb(flips, heads) / 2**flips for heads in range(flips + 1)]
    expected = sum(probability for probability in chance if probability <= chance[lost] * (1 + 1e-9))
    assert AnswerCounts(3, lost, gained, 4).p_value == pytest.approx(min(1.0, expected), rel=1e-12)


def test_the_finding_names_both_ways_and_whether_chance_does_as_much():
    for lost, gained, words in (
        (14, 2, "FLAP loses 14 of the dense model’s right answers and gains 2 others: more than"),
        (14, 2, "p = 0.004"),
        (3, 2, "which can be due to chance"),
        (40, 2, "p < 0.001"),
        (0, 0, "answers every question as"),
    ):
        assert words in changed_answers.answers_title(AnswerCounts(10, lost, gained, 5), "FLAP", "the dense model")


def test_a_question_has_a_row_an_option_and_a_column_a_model():
    dense, flap = answers_of(([-2.0, -1.0], 1), ([-3.0, -4.0], 0)), answers_of(([0, -8], 1), ([-1, -2], 0))
    table = changed_answers.question_table({"dense": dense, "flap": flap}, ACC, 1)
    likelihoods = {"dense": [-3.0, -4.0], "flap": [-1.0, -2.0]}
    assert table.to_dict("list") == {"option": ["A", "B"], "right": [True, False]} | likelihoods
    assert changed_answers.letter(25) == "Z" and changed_answers.letter(26) == "27"


def test_questions_are_kept_cut_and_records_fit_together():
    long = "x" * 2000 + "end"
    questions = Questions.of("t", [("first ü 🤖", ["a", "b" * 500]), (long, ["", "c"])])
    assert questions.question_at(0) == ("first ü 🤖", ["a", "b" * (OPTION_CHARACTERS - 1) + "…"])
    question, options = questions.question_at(1)
    assert len(question) == QUESTION_CHARACTERS and question[0] == "…" and question.endswith("end")
    assert options == ["", "c"]
    assert Questions.of("t", [("\ud83d", ["a", "b"])]).question_at(0) == ("?", ["a", "b"])
    with pytest.raises(ValueError, match="does not add up"):
        Answers("t", 1, np.zeros(3, np.float32), np.ones(3, np.int32), np.array([2]), np.array([0]))
    with pytest.raises(ValueError, match="names options that are not there"):
        answers_of(([-1.0, -2.0], 2))
    single = Questions.of("t", [("q", ["a", "b"])])
    with pytest.raises(ValueError, match="does not divide"):
        Questions("t", single.text, single.ends[::-1], single.counts)
