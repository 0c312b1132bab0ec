"""Runs and records as the pages read them, whole, half-finished and damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from views.synthetic_run import DRIFT_ONLY, a_study, read, write_run

from gprune import records
from gprune.errors import StoreError
from gprune.store import Store
from gprune.study import ReliabilitySettings
from gprune.views.frame import derived, loaders, stages
from gprune.views.frame.loaders import MissingResultError, Run, all_runs


def test_records_are_read_only_memory_maps(small_run: Run) -> None:
    drift = small_run.load("drift", records.RankDrift)
    with pytest.raises(ValueError, match="read-only"):
        drift.magnitude[0, 0] = 1.0
    assert small_run.load("drift", records.RankDrift) is drift


def test_the_latest_started_run_comes_first(tmp_path: Path) -> None:
    older, newer = write_run(tmp_path), write_run(tmp_path, study=a_study(seed=1), seed=1)
    values = read(tmp_path, newer) | {"started": "2026-12-01T00:00:00+00:00"}
    Store(tmp_path).save_run(newer, values)
    assert [run.name for run in all_runs(str(tmp_path))[0]] == [newer, older]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "not readable JSON"),
        ("[]", "holds no object"),
        ('{"study": {}}', "lacks the field 'stages'"),
        ('{"study": {}, "stages": {"drift": 3}}', "lacks the key of the stage 'drift'"),
        ('{"study": {}, "stages": {}, "shape": {"layers": 1}}', "model shape of another version"),
        ('{"study": {"speed": 3}, "stages": {}}', "study of another version: a study has no field 'speed'"),
    ],
)
def test_an_unreadable_run_is_named_and_the_others_stay(tmp_path: Path, content: str, reason: str) -> None:
    good = write_run(tmp_path)
    broken = tmp_path / "runs" / "broken"
    broken.mkdir()
    (broken / "run.json").write_text(content, encoding="utf-8")
    runs, unreadable = all_runs(str(tmp_path))
    assert [run.name for run in runs] == [good]
    assert unreadable[0].name == "broken" and reason in unreadable[0].reason


def test_a_changed_record_is_read_again(tmp_path: Path) -> None:
    name = write_run(tmp_path, stages=DRIFT_ONLY, state="running")
    assert not all_runs(str(tmp_path))[0][0].complete
    Store(tmp_path).save_run(name, read(tmp_path, name) | {"state": "done", "result": {"run": name}})
    assert all_runs(str(tmp_path))[0][0].complete


def test_a_missing_stage_says_what_is_missing(tmp_path: Path) -> None:
    write_run(tmp_path, stages=DRIFT_ONLY)
    with pytest.raises(MissingResultError, match="“modules” is not there yet"):
        all_runs(str(tmp_path))[0][0].load("partition", records.Partition)


def test_a_damaged_result_names_its_folder(tmp_path: Path) -> None:
    write_run(tmp_path)
    run = all_runs(str(tmp_path))[0][0]
    folder = tmp_path / "drift" / run.key("drift")
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    del manifest["files"]["half.npy"]
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(StoreError, match=f"{run.key('drift')} is damaged"):
        run.load("drift", records.RankDrift)


def test_a_truncated_array_is_reported(tmp_path: Path) -> None:
    write_run(tmp_path)
    run = all_runs(str(tmp_path))[0][0]
    path = tmp_path / "scores" / run.key("scores_primary") / "ffn.npy"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(StoreError, match="no whole result"):
        run.load("scores_primary", records.UnitScores)


def test_measurements_carry_budget_and_parameters(small_run: Run) -> None:
    found = {(item.method, item.text): item for item in derived.measurements(small_run)}
    assert len(found) == 10
    dense, ours = found["dense", "science-docs"], found["gprune", "science-docs"]
    shape = small_run.shape
    assert shape is not None and dense.parameters == shape.decoder_weights + 1000 and dense.retention == 1.0
    assert dense.parameters - ours.parameters == round((1 - ours.retention) * shape.decoder_weights)
    assert found["flap_no_bias", "science-docs"].retention == found["flap", "science-docs"].retention


def test_the_other_score_scale_changes_the_means_alone(small_run: Run) -> None:
    from dataclasses import replace

    own = small_run.study.reliability
    raw, _ = derived.preview(small_run, own)
    standardized, _ = derived.preview(small_run, replace(own, score_scale="standardized"))
    assert (raw.drift == standardized.drift).all() and (raw.score != standardized.score).any()


def test_every_expected_stage_has_a_title_and_the_step_counts_them(small_run: Run) -> None:
    wanted = stages.expected(small_run.study)
    assert len(set(wanted)) == len(wanted) and "_" not in "".join(stages.title(stage) for stage in wanted)
    assert stages.step(small_run.study, set()) == (1, len(wanted))
    assert stages.step(small_run.study, set(wanted[:8])) == (9, len(wanted))
    assert stages.share(small_run.study, set(wanted[:7])) == 7 / len(wanted)
    assert stages.step(small_run.study, set(wanted)) == (len(wanted), len(wanted))


def test_without_a_third_text_no_agreement_is_expected() -> None:
    assert "agreement" not in stages.expected(a_study(substitute=""))
    assert "scores_flap_primary" in stages.expected(a_study(metric="wanda_sp"))


def test_labels_say_what_a_run_is_and_how_it_ended(tmp_path: Path) -> None:
    rule = ReliabilitySettings(drift_quantile=0.8, score_quantile=0.855)
    done = write_run(tmp_path)
    failed = write_run(
        tmp_path, study=a_study(name="", seed=3, retention=0.7, reliability=rule), state="failed", seed=3
    )
    labels = loaders.labels(all_runs(str(tmp_path))[0])
    assert labels[done] == f"Synthetic · FLAP · keep 50 % · {done[-10:][:6]}"
    digest = failed[-10:][:6]
    assert labels[failed] == f"demo · failed · γ 0.80/0.855 · seed 3 · FLAP · keep 70 % · {digest}"
