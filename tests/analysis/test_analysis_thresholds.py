"""What the RASA page counts, and the settings in which runs differ."""

import math
from dataclasses import replace

import numpy as np
import pytest

from gprune.analysis import comparison, published, thresholds, verdict
from gprune.analysis.ablation_effect import AblationEffect, Explained
from gprune.data import published as rows
from gprune.evaluation.protocol import holdout_statuses
from gprune.records import AdaptedScores, ModuleStatistics, PruningMasks, TextOverlap
from gprune.study import CalibrationSettings, EvaluationSettings, ReliabilitySettings, Study, field_names
from gprune.study.demo import demo_study


def statistics():
    drift, score, size, layer = [0.1, 0.2, 0.9, 0.8], [1.0, 2.0, 0.5, 0.4], [3, 5, 2, 6], [0, 0, 1, 1]
    repeatability = [0.1, 0.1, 0.3, 0.1], [0.2, 0.2, 0.1, 0.2]
    return ModuleStatistics(*map(np.array, (drift, score, size, layer, *repeatability)))


def adapted(chosen, source):
    return AdaptedScores(np.zeros((2, 8)), np.array(chosen), np.array(source, dtype=np.int8), 0.8, 0.6)


def test_modules_neurons_and_sources_are_counted():
    counts = thresholds.count(statistics(), adapted([False, False, True, True], [0, 0, 1, 0]))
    assert (counts.adapted, counts.modules, counts.neurons, counts.all_neurons) == (2, 4, 8, 16)
    assert (counts.from_primary, counts.from_auxiliary, counts.rescored) == (1, 1, 2)
    counts = thresholds.count(statistics(), adapted([False] * 4, [0] * 4))
    assert (counts.adapted, counts.neurons, counts.from_primary, counts.from_auxiliary) == (0, 0, 0, 0)
    first, second, empty = np.array([[True, True, False], [True, False, False], [False] * 3])
    assert thresholds.overlap(first, second) == 0.5 and thresholds.overlap(empty, empty) == 1.0
    assert thresholds.labels_within_layer(np.array([0, 0, 1, 3, 3, 3])).tolist() == [0, 1, 0, 0, 1, 2]
    table = thresholds.decision_table(statistics(), adapted([False, False, True, True], [0, 0, 1, 0]))
    assert table["decision"].tolist() == ["adapted, re-scored", "adapted, not re-scored", "unchanged", "unchanged"]
    assert table["module"].tolist() == [0, 1, 0, 1] and table["neurons"].tolist() == [2, 6, 3, 5]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "γ_drift 0.90, γ_score 0.90"),
        ({"score_quantile": 0.855}, "γ_drift 0.90, γ_score 0.855"),
        ({"selection": "drift", "score_scale": "standardized"}, "γ_drift 0.90 drift only"),
        ({"score_scale": "standardized"}, "γ_drift 0.90, γ_score 0.90 standardized"),
        ({"selection": "none"}, "no adaptation"),
        ({"selection": "random", "source": "random"}, "γ_drift 0.90, γ_score 0.90 random modules random text"),
    ],
)
def test_a_rule_in_short(changes, words):
    assert thresholds.describe_rule(ReliabilitySettings(**changes)) == words


def test_every_field_of_a_study_is_flattened_once_and_only_what_differs_is_listed_with_its_meaning():
    assert set(comparison.flatten_settings(demo_study())) == set(field_names())
    first = demo_study()
    second = replace(first, retention=0.7, reliability=replace(ReliabilitySettings(), drift_quantile=0.8), name="B")
    table = comparison.differences({"one": first, "other": second}).set_index("setting")
    assert set(table.index) == {"retention", "reliability.drift_quantile"}
    assert table.loc["retention"].tolist()[:2] == [str(first.retention), "0.7"]
    assert "fraction R* of the decoder layers' linear weights" in table.loc["retention", "meaning"]
    assert comparison.differences({"one": first, "same": first}).empty


def test_runs_of_several_seeds_are_a_group_whatever_they_are_called():
    first = demo_study()
    studies = {"a": first, "b": replace(first, seed=1, name="again", methods=("dense", "gprune"))}
    studies["c"] = replace(first, seed=2, retention=0.7)
    groups = comparison.seed_groups(studies)
    assert groups["a"][0] == groups["b"][0] != groups["c"][0] and [groups[r][1] for r in "abc"] == [0, 1, 2]
    assert comparison.has_several_seeds(groups)
    assert not comparison.has_several_seeds({run: groups[run] for run in "ac"})
    assert not comparison.has_several_seeds({"a": groups["a"], "twin": groups["a"]})


def a_study(**changes):
    return Study(**({"model": "demo", "primary": "a", "auxiliary": "b"} | changes))


def a_record(**inputs):
    return {"provenance": {"commit": "abc", "inputs": inputs}}


def masks(retention):
    return {"FLAP": PruningMasks("flap", np.ones((2, 12), bool), np.ones((2, 2), bool), retention, 0.5)}


def check_of(name, *arguments, **more):
    (check,) = (check for check in verdict.checks(*arguments, **more) if check.name == name)
    return check


def test_budgets_match_where_a_winner_may_be_called():
    assert check_of("Retention", a_record(), a_study(), masks(0.5049), {}).verdict == "pass"
    separate = masks(0.5049) | {"FANG": masks(0.4951)["FLAP"]}
    for result in (masks(0.5051), separate):
        check = check_of("Retention", a_record(), a_study(), result, {})
        assert check.verdict == "warn" and check.value.endswith("(budgets differ)") and "FLAP at 50." in check.value
    assert check_of("Retention", a_record(), a_study(), {}, {}).verdict == "unknown"


@pytest.mark.parametrize(
    ("rasa", "explained", "verdicts", "words"),
    [
        (
            *(0.004, 0.14, ("warn", "pass")),
            ("changes 0.4% of the neuron decisions (do not credit it with a gain)", "random modules 2%"),
        ),
        (0.2, 0.01, ("pass", "warn"), ("changes 20.0% of the neuron decisions", "do not group neurons")),
        (0.2, math.nan, ("pass", "warn"), ("changes", "explain")),
    ],
)
def test_parts_that_act_on_next_to_nothing_are_warned_about(rasa, explained, verdicts, words):
    effect = AblationEffect(Explained(explained, 0.02), {"BCM": 0.1, "RASA": rasa, "MSL": 0.1})
    checks = [check_of(name, a_record(), a_study(), {}, {}, effect) for name in ("RASA", "Modules")]
    assert tuple(check.verdict for check in checks) == verdicts
    assert all(word in check.value for check, word in zip(checks, words, strict=True))


def test_measuring_on_the_calibration_text_is_warned_about():
    def check(contents, share=0.0):
        study = a_study(evaluation=EvaluationSettings(texts=tuple(contents)))
        overlaps = {text: TextOverlap(text, 17, 9, np.array([share, 0.0]), np.ones(2)) for text in contents}
        statuses = holdout_statuses(study, {"primary": "1"}, contents, overlaps)
        return check_of("Evaluation texts", a_record(), study, {}, statuses)

    same = check({"wiki": "1", "ptb": "2"})
    assert same.verdict == "warn" and "same text as A: wiki" in same.value and "optimistic" in same.value
    separate = check({"wiki": "2", "a#split=test": "3"})
    assert separate.verdict == "pass" and separate.value == "unseen: wiki; in-domain: a#split=test"
    split = check({"a#split=test": "3"})
    assert split.verdict == "warn" and split.value.endswith("(none is unseen)")
    assert "overlaps A: wiki" in check({"wiki": "2"}, 0.4).value
    assert check_of("Evaluation texts", a_record(), a_study(), {}, {}).verdict == "unknown"


def test_samples_seeds_windows_and_code_are_named():
    study = a_study(calibration=CalibrationSettings(samples=256), evaluation=EvaluationSettings(windows=96))
    checks = {check.name: check for check in verdict.checks(a_record(), study, {}, {}, seeds=(0, 1))}
    assert checks["Calibration"].value == "256 sequences of each text (paper: 2048)"
    assert checks["Windows"].value == "at most 96 of each text" and checks["Windows"].verdict == "warn"
    assert (checks["Seeds"].value, checks["Seeds"].verdict) == ("0, 1", "pass")
    assert (checks["Code"].value, checks["Code"].verdict) == ("commit abc", "pass")
    record = a_record()
    record["provenance"]["uncommitted_changes"] = True
    check = check_of("Code", record, a_study(), {}, {})
    assert check.verdict == "warn" and "uncommitted changes" in check.value
    assert check_of("Code", {"provenance": None}, a_study(), {}, {}).verdict == "unknown"
    installed = check_of("Code", {"provenance": {"gprune": "0.1.0", "package": "3f"}}, a_study(), {}, {})
    assert installed == verdict.Check("Code", "installed package 0.1.0, contents 3f", "pass")


def test_published_numbers_belong_to_llama2_7b_on_wikitext_and_ptb():
    same = a_study(model="/models/Llama-2-7b-hf", primary="wikitext2", auxiliary="ptb")
    assert published.same_setting(published.DRIFT, same)
    assert not published.same_setting(published.SWAP, same)
    assert not published.same_setting(published.DRIFT, a_study())
    other_metric = a_study(model="llama-2-7b", primary="wikitext2", auxiliary="ptb", metric="wanda_sp")
    assert not published.same_setting(published.DRIFT, other_metric)


def test_published_tables_hold_the_papers_values():
    assert published.substitution()["mean ARI"].tolist() == [0.575, 0.582, 0.583]
    table = rows.frame(rows.table("main"))
    flap = table[(table["method"] == "gprune:flap") & (table["retention"] == 0.5)]
    assert flap[["ppl:wikitext2", "ppl:ptb"]].to_numpy().tolist() == [[37.02, 125.41]]
