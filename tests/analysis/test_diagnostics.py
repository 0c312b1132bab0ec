"""What the parts of a run do, against plain loops; and what is said where one does next to nothing."""

import math
from dataclasses import replace

import numpy as np
import pytest
import tiny_study
from made_records import a_partition

from gprune import pipeline
from gprune.analysis import ablation_effect, changed_answers
from gprune.analysis.ablation_effect import AblationEffect, Explained, explained
from gprune.analysis.changed_answers import ACC, ACC_NORM, EITHER, GAINED, LOST, Counts
from gprune.pipeline import stages
from gprune.pruning.modules.replacement import permuted
from gprune.records import Answers, Questions
from gprune.records.answers import OPTION_CHARACTERS, QUESTION_CHARACTERS
from gprune.store import Store
from gprune.study import from_dict

GENERATOR = np.random.default_rng(0)


def share_of_a_loop(drift, labels):
    between = total = 0.0
    for row, own in zip(drift, labels, strict=True):
        for value, label in zip(row, own, strict=True):
            total += (value - row.mean()) ** 2
            between += (row[own == label].mean() - row.mean()) ** 2
    return between / total


def test_the_share_explained_is_that_of_a_loop_and_of_drawn_modules():
    drift = GENERATOR.random((3, 21)) * [[1.0], [0.2], [3.0]]
    labels = np.stack([GENERATOR.permutation(np.arange(21) % count) for count in (2, 5, 7)])
    found = explained(drift, a_partition(labels), a_partition(np.zeros((3, 21))))
    assert found.modules == pytest.approx(share_of_a_loop(drift, labels))
    assert found.initialization == pytest.approx(0.0, abs=1e-12)
    assert explained(drift, a_partition(np.tile(np.arange(21), (3, 1)))).modules == pytest.approx(1.0)
    assert np.isnan(explained(np.ones((3, 21)), a_partition(labels)).modules)
    drift = GENERATOR.gamma(1, 1, (2, 30)) * [[1.0], [4.0]]
    labels = np.stack([np.repeat([0, 1, 2], [20, 7, 3]), np.repeat([0, 1, 2, 3, 4], 6)])
    drawn = [share_of_a_loop(drift, permuted(labels, seed)) for seed in range(2000)]
    assert explained(drift, a_partition(labels)).random == pytest.approx(np.mean(drawn), rel=0.03)


def acting(**changes):
    shares = {"BCM": 0.2, "RASA": 0.05, "MSL": 0.02}
    plain = AblationEffect(Explained(0.23, 0.02, 0.13), shares, (0.5, 0.4), (0.9, 0.1))
    return replace(plain, **changes)


def test_a_part_that_acts_on_less_than_two_of_a_hundred_decisions_is_warned_of_by_name():
    assert acting().warnings == ()
    (sentence,) = acting(decisions_changed={"BCM": 0.2, "RASA": 0.009, "MSL": 0.02}).warnings
    assert sentence.startswith("RASA acts on 0.9 % of the decisions on neurons")
    (sentence,) = acting(drift_explained=Explained(0.13, 0.02, 0.23)).warnings
    assert "13 %" in sentence and "23 %" in sentence and "2 %" in sentence and "gives up" in sentence
    layers = acting(below_score_line=(0.0, 0.5, 0.0))
    assert layers.left_out == (0, 2) and "layers 0, 2:" in layers.warnings[0]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("diagnostics")
    texts = tiny_study.write_texts(folder / "texts")
    model = tiny_study.write_model(folder / "model", texts)
    values = tiny_study.settings(model, texts, methods=["dense", "gprune"], substitute=texts[2])
    values["sparsity"]["learning_rate"] = 0.5
    values["reliability"] = {"drift_quantile": 0.3, "score_quantile": 0.9}
    study, store = from_dict(values), Store(folder / "cache")
    opened = pipeline.opened(study, store)
    assert not ablation_effect.ready(opened)
    pipeline.run(study, store, lambda *_: None)
    return pipeline.opened(study, store)


@pytest.mark.slow
def test_a_real_run_is_diagnosed_from_its_results_alone(results):
    found, kept = ablation_effect.diagnose(results), results.get(stages.masks).ffn
    drift, modules = results.get(stages.drift).magnitude, results.get(stages.partition)
    start = results.get(stages.partition, kind="initialization")
    assert found.drift_explained.modules == pytest.approx(share_of_a_loop(drift, modules.labels))
    assert found.drift_explained.initialization == pytest.approx(share_of_a_loop(drift, start.labels))
    np.testing.assert_allclose(found.kept, kept.mean(axis=1))
    statistics, line = results.get(stages.modules), results.get(stages.adapted).score_threshold
    for layer, share in enumerate(found.below_score_line):
        assert share == pytest.approx((statistics.score[statistics.layer == layer] <= line).mean())
    assert found.decisions_changed["MSL"] > 0 and found.decisions_changed["BCM"] > 0
    assert set(found.decisions_changed) == {"BCM", "RASA", "MSL"}


@pytest.mark.slow
def test_rasa_changes_nothing_where_it_is_off_and_msl_nothing_where_it_takes_no_step(results):
    study = results.graph.study.with_settings({"reliability.selection": "none", "sparsity.epochs": 0})
    pipeline.run(study, results.store, lambda *_: None, until="masks")
    found = ablation_effect.diagnose(pipeline.opened(study, results.store))
    assert found.decisions_changed["RASA"] == found.decisions_changed["MSL"] == 0.0
    assert [words.split()[0] for words in found.warnings[:2]] == ["RASA", "MSL"]


def given(*questions, lengths=None):
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
    base = changed_answers.choices(given(([0, -1], 0), ([0, -1], 0), ([0, -9], 1), ([0, -1], 0), ([0, -1], 1)), ACC)
    other = changed_answers.choices(given(([-2, 0], 0), ([-7, 0], 0), ([-1, 0], 1), ([0, -5], 0), ([0, -2], 1)), ACC)
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
    said = changed_answers.answers_title(Counts(10, 14, 2, 5), "FLAP", "the dense model")
    assert said.startswith("FLAP loses 14 of the dense model’s right answers and gains 2 others: more than")
    assert said.endswith("p = 0.004")
    assert "which chance alone can do" in changed_answers.answers_title(Counts(10, 3, 2, 5), "FLAP", "the dense model")
    assert "p < 0.001" in changed_answers.answers_title(Counts(10, 40, 2, 5), "FLAP", "the dense model")
    assert "answers every question as" in changed_answers.answers_title(Counts(10, 0, 0, 5), "FLAP", "the dense model")


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
