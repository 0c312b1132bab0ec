"""The overview's trust checks and the published numbers' settings."""

from typing import Any

import numpy as np

from gprune.analysis import published, summary
from gprune.data import published as rows
from gprune.evaluation.holdout import standings
from gprune.records import ModelShape, PruningMasks, TextOverlap
from gprune.study import CalibrationSettings, EvaluationSettings, Study

SHAPE = ModelShape(layers=2, neurons=12, heads=4, kv_heads=2, head_width=4, hidden=8)


def a_study(**changes: Any) -> Study:
    return Study(**({"model": "demo", "primary": "a", "auxiliary": "b"} | changes))


def a_record(**inputs: Any) -> dict[str, Any]:
    return {"provenance": {"commit": "abc", "inputs": inputs}}


def masks(retention: float) -> dict[str, PruningMasks]:
    ffn, heads = np.ones((2, 12), dtype=bool), np.ones((2, 2), dtype=bool)
    return {"FLAP": PruningMasks("flap", ffn, heads, retention, 0.5)}


def verdicts(record: dict[str, Any], study: Study, found: dict[str, PruningMasks]) -> dict[str, str]:
    return {
        check.sentence.split(":")[0]: check.verdict
        for check in summary.checks(record, study, SHAPE, found, {})
    }


def test_budgets_may_differ_by_one_group():
    one = SHAPE.group_weights / SHAPE.decoder_weights
    assert verdicts(a_record(), a_study(), masks(0.5 + one))["Budgets match"] == "pass"
    assert verdicts(a_record(), a_study(), masks(0.5 + 1.01 * one))["Budgets differ"] == "warn"
    assert verdicts(a_record(), a_study(), {})["Budgets"] == "unknown"


def test_measuring_on_the_calibration_text_is_warned_about():
    def said(contents: dict[str, str], share: float = 0.0) -> summary.Check:
        study = a_study(evaluation=EvaluationSettings(texts=tuple(contents)))
        overlaps = {text: TextOverlap(text, 17, 9, np.array([share, 0.0]), np.ones(2)) for text in contents}
        known = standings(study, {"primary": "1"}, contents, overlaps)
        return summary.checks(a_record(), study, SHAPE, {}, known)[1]

    same = said({"wiki": "1", "ptb": "2"})
    assert same.verdict == "warn" and "very same text: wiki;" in same.sentence
    apart = said({"wiki": "2", "a#split=test": "3"})
    assert apart.verdict == "pass"
    assert apart.sentence.endswith("unseen: wiki; other split of A: a#split=test")
    split = said({"a#split=test": "3"})
    assert split.verdict == "warn" and "No evaluation text is unseen" in split.sentence
    assert "overlaps A: wiki" in said({"wiki": "2"}, 0.4).sentence
    assert summary.checks(a_record(), a_study(), SHAPE, {}, {})[1].verdict == "unknown"


def test_samples_and_windows_below_the_papers_are_named():
    study = a_study(calibration=CalibrationSettings(samples=256), evaluation=EvaluationSettings(windows=96))
    found = " ".join(
        check.sentence
        for check in summary.checks(a_record(), study, SHAPE, {}, {})
        if check.verdict == "warn"
    )
    assert "256 calibration sequences" in found and "at most 96 windows" in found


def test_uncommitted_changes_and_a_missing_commit():
    record = a_record()
    record["provenance"]["uncommitted_changes"] = True
    assert any(
        "not committed" in check.sentence for check in summary.checks(record, a_study(), SHAPE, {}, {})
    )
    last = summary.checks({"provenance": None}, a_study(), None, {}, {})[-1]
    assert last.verdict == "unknown"


def test_an_installed_package_is_told_by_its_version_and_contents():
    last = summary.checks({"provenance": {"gprune": "0.1.0", "package": "3f"}}, a_study(), None, {}, {})[-1]
    assert last == summary.Check("pass", "Made by the installed package 0.1.0 (contents 3f)")


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
