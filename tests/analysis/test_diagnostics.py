"""What the parts of a run do, against plain loops; and what is said where one does next to nothing."""

from dataclasses import replace

import numpy as np
import pytest
import tiny_study
from made_records import a_partition

from gprune import pipeline
from gprune.analysis import diagnostics
from gprune.analysis.ablation_effect import AblationEffect, Explained, explained
from gprune.pipeline import stages
from gprune.pruning.modules.replacement import permuted
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
    assert not diagnostics.ready(opened)
    pipeline.run(study, store, lambda *_: None)
    return pipeline.opened(study, store)


@pytest.mark.slow
def test_a_real_run_is_diagnosed_from_its_results_alone(results):
    found, kept = diagnostics.diagnose(results), results.get(stages.masks).ffn
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
    found = diagnostics.diagnose(pipeline.opened(study, results.store))
    assert found.decisions_changed["RASA"] == found.decisions_changed["MSL"] == 0.0
    assert [words.split()[0] for words in found.warnings[:2]] == ["RASA", "MSL"]
