"""The command `reproduce`: what it plans, runs and answers; a small model goes through for real."""

import argparse

import pandas as pd
import pytest
import tiny_study
from reproduction.fake_runs import finish

from gprune import jobs
from gprune.cli import reproduce
from gprune.experiments.reproduction import catalogue, tables, work
from gprune.experiments.reproduction.grid import Series
from gprune.experiments.reproduction.scale import choose
from gprune.pipeline import runs
from gprune.store import Store
from gprune.system.errors import ModelError, SettingsError


def call(*words):
    parser = argparse.ArgumentParser()
    reproduce.add(parser.add_subparsers())
    options = parser.parse_args(["reproduce", *map(str, words)])
    return int(options.command(options))


def finish_all(cache, *names, **how):
    for entry in work.needed_studies(tables.choose_tables(names), Series("demo", choose("demo"))):
        finish(Store(cache), entry, **how)


def test_dry_run_says_what_is_there_and_what_is_missing(tmp_path, capsys):
    finish_all(tmp_path, "figure-3a")
    words = ["ablation", "--model", "demo", "--cache", tmp_path, "--dry-run"]
    assert call(*words, "--without-controls") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["there", "until", "until", "4"]
    assert lines[-1] == "4 rows of 1 tables from 3 studies, 2 of them missing"
    assert call(*words) == 0
    lines = capsys.readouterr().out.splitlines()
    # the controls are three more methods of the study that is there
    assert [line.split()[0] for line in lines] == ["until", "until", "until", "7"]
    assert lines[0].endswith("flap_uniform msl_layers msl_shuffled")
    assert not (tmp_path / "jobs").exists()
    assert not (tmp_path / "reproductions").exists()


def test_a_row_that_cannot_be_filled_is_another_exit_code(tmp_path, capsys):
    finish_all(tmp_path, "seeds", unavailable={"fang": "this model is too narrow: leave FANG out"})
    assert call("seeds", "--model", "demo", "--cache", tmp_path) == reproduce.EXIT_UNFILLED
    assert "\n3 of 6 rows: this model is too narrow: leave FANG out\n" in capsys.readouterr().out
    seeds = catalogue.load(tmp_path, "demo-demo", "seeds")
    assert seeds is not None
    assert [row.reason for row in seeds.rows["max"]] == ["this model is too narrow: leave FANG out"] * 3 + [""] * 3


def test_tasks_and_their_folder_are_options(tmp_path, capsys):
    task_file = tmp_path / "own.jsonl"
    task_file.write_text('{"question": "a", "choices": ["b", "c"], "answer": 0}\n')
    words = ["ablation", "--model", "demo", "--cache", tmp_path, "--dry-run", "--tasks"]
    series = Series("demo", choose("demo", changes={"tasks": ("demo", str(task_file)), "limit": 3}))
    for entry in work.needed_studies(tables.choose_tables(["ablation"]), series):
        finish(Store(tmp_path), entry)
    assert call(*words, "demo", task_file, "--limit", 3) == 0
    assert "3 studies, 0 of them missing" in capsys.readouterr().out
    assert call(*words, "demo", task_file, "--limit", 4) == 0
    assert "3 studies, 3 of them missing" in capsys.readouterr().out
    # without tasks any run will do
    assert call(*words, "none") == 0
    assert "3 studies, 0 of them missing" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--model demo", "name a table"),
        ("tabel --model demo", r"table must be one of .*\(got 'tabel'\)"),
        ("main --model demo --set x", "--set takes FIELD=VALUE"),
        ("main --model demo --set calibration.bach=3", "did you mean 'calibration.batch'"),
        pytest.param("main --model demo --tasks bolq", "there is no task 'bolq'", marks=pytest.mark.long),
        ("main --model demo --tasks paper --task-folder absent", r"evaluation\.task_folder must be a folder"),
        ("main --model ./absent --scale demo", "there is no model folder"),
        ("main --model demo --report x.md", "needs exactly one of the tables study, repair"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_runs(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((SettingsError, ModelError), match=message):
        call(*words.split(), "--cache", tmp_path)
    assert not (tmp_path / "jobs").exists()


@pytest.mark.process
@pytest.mark.long
def test_a_small_model_goes_through_the_ablation_for_real(tmp_path, monkeypatch):
    monkeypatch.setenv("GPRUNE_JOB_SLOTS", "2")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    cache, texts = tmp_path / "cache", tiny_study.write_texts(tmp_path / "texts")
    model = tiny_study.write_model(tmp_path / "tiny", texts)
    sizes = ("calibration.length=16", 'evaluation.preset="16"', "modularization.candidates=[2,3]")
    settings = [word for size in (*sizes, "modularization.steps=5") for word in ("--set", size)]
    a, b, c = texts
    words = ["--primary", a, "--auxiliary", b, "--substitute", c, "--evaluate", c, "--windows", 6]
    common = ["ablation", "--model", model, "--cache", cache, "--scale", "demo", *words, *settings]
    assert call(*common, "--samples", 16, "--epochs", 1) == 0
    assert {job.state for job in jobs.jobs(cache)} == {"done"}
    assert len(jobs.jobs(cache)) == 3
    (result,) = catalogue.reproductions(cache)
    ablation = catalogue.load(cache, result.name, "ablation")
    assert ablation is not None
    long = pd.read_csv(result.folder / "ablation.csv")
    # three of them are controls
    assert list(long["windows"]) == [6] * 7
    assert list(long["in paper"]) == [True] * 4 + [False] * 3
    assert long["value"].between(1, 1e6).all()
    assert long["retained"].between(0.4, 0.6).all()
    # the numbers are those of the runs themselves
    for item, value in zip(ablation.rows["max"], long["value"], strict=True):
        record = runs.read(Store(cache), item.run) or {}
        assert record["result"]["perplexity"][item.method.partition(":")[0]][c] == value
        assert item.values == {f"ppl:{c}": value} and item.errors[f"ppl:{c}"] > 0
    assert call(*common, "--samples", 16, "--epochs", 1) == 0
    assert len(jobs.jobs(cache)) == 3
