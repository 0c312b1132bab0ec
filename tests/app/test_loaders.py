"""Runs and records as the pages read them, whole, half-finished and damaged."""

import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
from synthetic_run import SMALL, a_study, change_record, folder_of, the_run, write_run

from gprune.app.ui import derived_cache, run_choice
from gprune.pipeline import stages
from gprune.pipeline.runs import opened
from gprune.pipeline.runs.opened import MissingResultError, all_runs
from gprune.store import Store, results
from gprune.study import EvaluationSettings, ReliabilitySettings
from gprune.system.errors import DamagedError, StoreError

TEXTS = '"model": "m", "primary": "a", "auxiliary": "b"'


def test_records_are_read_only_and_measurements_carry_budget_and_parameters(small_run):
    drift = small_run.load(stages.drift)
    with pytest.raises(ValueError, match="read-only"):
        drift.magnitude[0, 0] = 1.0
    assert small_run.load(stages.drift, "primary", "auxiliary") is drift
    result = {(item.method, item.text): item for item in derived_cache.measurements(small_run)}
    assert len(result) == 10
    dense, actual = result["dense", "science-docs"], result["gprune", "science-docs"]
    shape = small_run.shape
    assert shape is not None and dense.parameters == shape.decoder_weights + 1000 and dense.retention == 1.0
    assert dense.parameters - actual.parameters == round((1 - actual.retention) * shape.decoder_weights)
    assert result["flap_no_bias", "science-docs"].retention == result["flap", "science-docs"].retention
    rule = small_run.study.reliability
    raw, _ = derived_cache.preview(small_run, rule)
    standardized, _ = derived_cache.preview(small_run, replace(rule, score_scale="standardized"))
    assert (raw.drift == standardized.drift).all() and (raw.score != standardized.score).any()


def test_the_latest_started_run_comes_first(tmp_path):
    older, newer = write_run(tmp_path), write_run(tmp_path, study=a_study(seed=1))
    change_record(tmp_path, newer, started="2026-12-01T00:00:00+00:00")
    assert [run.name for run in all_runs(str(tmp_path))[0]] == [newer, older]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "is not JSON"),
        ("[]", "holds no JSON object"),
        ('{"study": {}}', "lacks stages"),
        ('{"study": {}, "stages": {"drift": 3}}', "stages.drift must be an object"),
        ('{"study": {"speed": 3}, "stages": {}}', "a study has no field 'speed'"),
        (f'{{"study": {{{TEXTS}, "methods": ["unheard"]}}, "stages": {{}}}}', "(got 'unheard')"),
        (
            f'{{"study": {{{TEXTS}}}, "stages": {{}}, "provenance": {{"inputs": {{"model": "1", '
            '"tokenizer": "2", "precision": "", "calibration": {"primary": "3"}, "evaluation": {}}}}',
            "has no digest of the text 'auxiliary'",
        ),
    ],
)
def test_an_unreadable_run_is_named_and_the_others_stay(tmp_path, content, reason):
    good = write_run(tmp_path)
    broken = tmp_path / "runs" / "broken"
    broken.mkdir()
    (broken / "run.json").write_text(content, encoding="utf-8")
    runs, unreadable = all_runs(str(tmp_path))
    assert [run.name for run in runs] == [good]
    assert unreadable[0].name == "broken" and reason in unreadable[0].reason


def test_a_changed_record_is_read_again_and_a_missing_stage_says_so(tmp_path):
    name = write_run(tmp_path, stages="drift", state="running")
    assert not the_run(tmp_path).complete
    change_record(tmp_path, name, state="done", result={"run": name})
    assert the_run(tmp_path).complete
    write_run(tmp_path, stages="drift")
    with pytest.raises(MissingResultError, match="“modules” is not there yet"):
        the_run(tmp_path).load(stages.partition)


def test_a_lost_result_is_named(tmp_path):
    name = write_run(tmp_path)
    run = the_run(tmp_path)
    shutil.rmtree(folder_of(tmp_path, name, stages.masks, "flap"))
    assert run.has(stages.masks, "flap")
    with pytest.raises(StoreError, match="no complete result"):
        run.masks()


@pytest.mark.parametrize("largest", [0, 2**20], ids=["as maps", "in memory"])
def test_an_array_shortened_in_place_is_told_and_ends_nothing(tmp_path, monkeypatch, largest):
    monkeypatch.setattr(results, "LARGEST_IN_MEMORY", largest)
    name = write_run(tmp_path)
    run = the_run(tmp_path)
    drift = run.load(stages.drift)
    assert isinstance(drift.magnitude, np.memmap) is (largest == 0)
    folder = folder_of(tmp_path, name, stages.drift)
    os.truncate(folder / "magnitude.npy", 64)
    with pytest.raises(DamagedError, match=f"drift/{folder.name} is damaged .*magnitude.npy does not hold"):
        run.load(stages.drift)


def test_a_record_of_a_large_run_stays_while_others_are_read(tmp_path):
    study = a_study(evaluation=EvaluationSettings(texts=("c4",)))
    write_run(tmp_path, study=study)
    run = the_run(tmp_path)
    drift = run.load(stages.drift)
    for number in range(400):
        Store(tmp_path).put("shape", f"{number:032x}", SMALL)
        opened.record(str(tmp_path), "shape", f"{number:032x}", "ModelShape")
    assert run.load(stages.drift) is drift


def test_a_result_is_there_whichever_run_made_it(tmp_path):
    first = write_run(tmp_path, study=a_study(name="First"))
    second = write_run(tmp_path, study=a_study(name="Second", retention=0.7), stages=())
    runs = {run.name: run for run in all_runs(str(tmp_path))[0]}
    assert runs[second].load(stages.drift) is runs[first].load(stages.drift)
    assert runs[second].has(stages.adapted_scores) and not runs[second].has(stages.masks)


def test_a_run_that_leaves_gprune_out_shows_no_masks_of_it(tmp_path):
    write_run(tmp_path)
    name = write_run(tmp_path, study=a_study(methods=("dense", "flap")))
    run = the_run(tmp_path, name)
    assert run.has(stages.masks) and list(run.masks()) == ["flap"]


def test_labels_say_what_a_run_is_and_how_it_ended(tmp_path):
    rule = ReliabilitySettings(drift_quantile=0.8, score_quantile=0.855)
    done = write_run(tmp_path)
    other = a_study(name="", seed=3, retention=0.7, reliability=rule)
    failed = write_run(tmp_path, study=other, state="failed")
    labels = run_choice.labels(all_runs(str(tmp_path))[0])
    assert labels[done] == "Synthetic"
    assert labels[failed] == "demo · failed · γ_drift 0.80, γ_score 0.855 · seed 3"


def test_labels_are_as_long_as_it_takes_to_tell_runs_apart(tmp_path):
    half, more = write_run(tmp_path), write_run(tmp_path, study=a_study(retention=0.7))
    labels = run_choice.labels(all_runs(str(tmp_path))[0])
    assert labels == {half: "Synthetic · keep 50%", more: "Synthetic · keep 70%"}
    texts = write_run(tmp_path, study=a_study(auxiliary="c4", substitute=""))
    labels = run_choice.labels(all_runs(str(tmp_path))[0])
    # as few settings as tell them apart: of C nobody need know
    assert labels[half] == "Synthetic · B science-docs · keep 50%"
    assert labels[texts] == "Synthetic · B c4 · keep 50%"
    assert labels[more] == "Synthetic · B science-docs · keep 70%"
