"""The commands `reproduce` and `accept`: what they plan, run and answer; small models go through for real."""

import argparse

import pandas as pd
import pytest
import tiny_study
from evaluation.task_files import row, write_rows, write_seven
from huggingface_hub import constants
from reproduction import accepting
from reproduction.accepting import DEMO_TEXT, asked, listed
from reproduction.fake_runs import finish
from small_hub import serving

from gprune import jobs
from gprune.cli import EXIT_UNFILLED, reproduce
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
    for entry in work.needed(tables.choose(names), Series("demo", choose("demo"))):
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
    own = tmp_path / "own.jsonl"
    own.write_text('{"question": "a", "choices": ["b", "c"], "answer": 0}\n')
    words = ["ablation", "--model", "demo", "--cache", tmp_path, "--dry-run", "--tasks"]
    series = Series("demo", choose("demo", changes={"tasks": ("demo", str(own)), "limit": 3}))
    for entry in work.needed(tables.choose(["ablation"]), series):
        finish(Store(tmp_path), entry)
    assert call(*words, "demo", own, "--limit", 3) == 0
    assert "3 studies, 0 of them missing" in capsys.readouterr().out
    assert call(*words, "demo", own, "--limit", 4) == 0
    assert "3 studies, 3 of them missing" in capsys.readouterr().out
    # without tasks any run will do
    assert call(*words, "none") == 0
    assert "3 studies, 0 of them missing" in capsys.readouterr().out


def test_what_is_wrong_is_said_before_anything_runs(tmp_path):
    with pytest.raises(SettingsError, match="name a table"):
        call("--model", "demo")
    with pytest.raises(SettingsError, match="there is no table 'tabel'"):
        call("tabel", "--model", "demo")
    with pytest.raises(SettingsError, match="--set takes FIELD=VALUE"):
        call("main", "--model", "demo", "--set", "x")
    with pytest.raises(SettingsError, match="did you mean 'calibration.batch'"):
        call("main", "--model", "demo", "--set", "calibration.bach=3")
    with pytest.raises(SettingsError, match="there is no task 'bolq'"):
        call("main", "--model", "demo", "--tasks", "bolq", "--cache", tmp_path)
    with pytest.raises(SettingsError, match=r"evaluation\.task_folder must be a folder"):
        folder = tmp_path / "absent"
        call("main", "--model", "demo", "--tasks", "paper", "--task-folder", folder, "--cache", tmp_path)
    with pytest.raises(ModelError, match="there is no model folder"):
        call("main", "--model", tmp_path / "absent", "--scale", "demo", "--cache", tmp_path)
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
    (found,) = catalogue.reproductions(cache)
    ablation = catalogue.load(cache, found.name, "ablation")
    assert ablation is not None
    long = pd.read_csv(found.folder / "ablation.csv")
    # three of them are controls
    assert list(long["windows"]) == [6] * 7
    assert list(long["in paper"]) == [True] * 4 + [False] * 3
    assert long["value"].between(1, 1e6).all()
    assert long["retained"].between(0.4, 0.6).all()
    # the numbers are those of the runs themselves
    for one, value in zip(ablation.rows["max"], long["value"], strict=True):
        record = runs.read(Store(cache), one.run) or {}
        assert record["result"]["perplexity"][one.method.partition(":")[0]][c] == value
        assert one.values == {f"ppl:{c}": value} and one.errors[f"ppl:{c}"] > 0
    assert call(*common, "--samples", 16, "--epochs", 1) == 0
    assert len(jobs.jobs(cache)) == 3


def table_of(text):
    lines = [line for line in text.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_finished_runs_are_held_against_the_list_without_a_job(tmp_path, capsys):
    rows = [
        {"method": "dense", "retention": 1.0, "value": 20.0},
        {"method": "flap", "retention": 0.5, "value": 40.0, "source": "one"},
        {"method": "flap", "retention": 0.5, "value": 44.0, "source": "two"},
        {"method": "gprune:flap", "retention": 0.5, "value": 30.0},
    ]
    file = listed(tmp_path / "list.csv", *rows)
    words = ["--model", "demo", "--as", "Small", "--published", file, "--cache", tmp_path / "cache"]
    words += ["--primary", "python-reference", "--auxiliary", "python-code"]
    found = asked(*words)
    ours = {"dense": 20.4, "flap": 41.2, "gprune": 31.0}
    for entry in work.needed([found.table], found.series):
        finish(Store(tmp_path / "cache"), entry, value=lambda study, method, text: ours[method])
    assert accepting.call(*words) == 0
    text = capsys.readouterr().out
    assert "2 of 4 figures within 3%, 2 outside." in text
    assert [line[-2:] for line in table_of(text)] == [
        ["+2.0%", "within 3%"],
        ["+3.0%", "within 3%"],
        ["-6.4%", "outside 3%"],
        ["+3.3%", "outside 3%"],
    ]
    assert table_of(text)[1][:6] == [
        "FLAP",
        "50%",
        f"perplexity, {DEMO_TEXT}",
        "40.00",
        "one",
        "41.20 ± 6.35",
    ]
    for words_ in (
        "versions: ",
        "device: ",
        "commit ",
        "command: `python -m gprune",
        "16 sequences a text",
        "2 windows of 128",
    ):
        assert words_ in text
    assert not jobs.jobs(tmp_path / "cache")
    (written,) = (tmp_path / "cache" / "acceptance").glob("*/acceptance.md")
    assert written.read_text() == text


def test_a_row_that_cannot_be_had_is_named_and_ends_with_three(tmp_path, capsys):
    rows = [
        {"method": "flap", "retention": 0.5, "value": 40.0},
        {"method": "fang", "retention": 0.5, "value": 40.0},
    ]
    file = listed(tmp_path / "list.csv", *rows)
    words = ["--model", "demo", "--as", "Small", "--published", file, "--cache", tmp_path / "cache"]
    words += ["--primary", "python-reference", "--auxiliary", "python-code"]
    found = asked(*words)
    for entry in work.needed([found.table], found.series):
        finish(Store(tmp_path / "cache"), entry, unavailable={"fang": "this model is too narrow"})
    assert accepting.call(*words) == EXIT_UNFILLED
    text = capsys.readouterr().out
    assert ", 1 not measured." in text and "- FANG: this model is too narrow" in text


def test_a_dry_run_plans_and_an_absent_model_is_one_sentence_before_the_start(tmp_path, capsys):
    words = ["--model", "huggyllama/llama-7b", "--cache", tmp_path]
    assert accepting.call(*words, "--dry-run") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "LLaMA1-7B: 9 figures in 6 rows, from 5 studies, 5 of them missing"
    assert [line.split()[0] for line in lines[1:]] == ["until"] * 5 + ["model:", "estimate:"]
    with pytest.raises(ModelError, match="'huggyllama/llama-7b' is not a folder on this machine, and the hub"):
        accepting.call(*words)
    assert not (tmp_path / "jobs").exists()


def test_a_gated_model_says_how_to_get_access_in_the_plan_and_before_the_start(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    name = "meta-llama/Llama-3.1-8B"
    files = {"config.json": b"{}", "model.safetensors": b"0" * 3 * 2**20, "tokenizer.json": b"{}"}
    with serving(monkeypatch) as small:
        small.models[name] = files
        words = ["--model", name, "--cache", tmp_path / "cache"]
        assert accepting.call(*words, "--dry-run") == 0
        fetched = f"model: 3.0 MiB of '{name}' are to be fetched into '{tmp_path}/hub', with "
        assert capsys.readouterr().out.splitlines()[7].startswith(fetched)
        small.gated.add(name)
        assert accepting.call(*words, "--dry-run") == 0
        gated = f"the model '{name}' is gated: ask for access at {small.address}/{name}, and when it is granted"
        assert capsys.readouterr().out.splitlines()[7].startswith(f"model: {gated}")
        with pytest.raises(ModelError, match="is gated: ask for access at"):
            accepting.call(*words)
        small.gated.clear()
        # what was fetched is not the model whose figures these are
        with pytest.raises(SettingsError, match="is not Llama3.1-8B: it has num_hidden_layers None and not 32"):
            accepting.call(*words)
    assert not (tmp_path / "cache" / "jobs").exists()


@pytest.mark.process
@pytest.mark.long
def test_a_small_model_is_held_against_a_list_for_real_and_goes_on_where_it_was(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    cache, texts = tmp_path / "cache", tiny_study.write_texts(tmp_path / "texts")
    model = tiny_study.write_model(tmp_path / "tiny", texts)
    settings = "calibration.flap_variant=released"
    rows = [
        {"method": "dense", "retention": 1.0, "value": 1.0},
        *({"method": "flap", "retention": kept, "value": 1.0} for kept in (0.7, 0.5)),
    ]
    common = {"figure": texts[2], "settings": settings}
    words = [
        "--model",
        model,
        "--as",
        "Small",
        "--cache",
        cache,
        "--primary",
        texts[0],
        "--auxiliary",
        texts[1],
    ]
    for size in ("calibration.length=16", 'evaluation.preset="16"', "evaluation.windows=6"):
        words += ["--set", size]
    first = listed(tmp_path / "first.csv", *(common | row for row in rows))
    assert accepting.call(*words, "--published", first) == 0
    assert {job.state for job in jobs.jobs(cache)} == {"done"} and len(jobs.jobs(cache)) == 2
    here = [float(line[5].split(" ")[0]) for line in table_of(capsys.readouterr().out)]
    assert all(value > 1 for value in here)
    # what others would have published had they measured a little, or much, less than we
    theirs = [value * share for value, share in zip(here, (1.0, 0.98, 0.9), strict=True)]
    others = [common | row | {"value": f"{value:.4f}"} for row, value in zip(rows, theirs, strict=True)]
    assert accepting.call(*words, "--published", listed(tmp_path / "second.csv", *others)) == 0
    text = capsys.readouterr().out
    assert [line[-1] for line in table_of(text)] == ["within 3%", "within 3%", "outside 3%"]
    assert "2 of 3 figures within 3%, 1 outside." in text
    assert len(jobs.jobs(cache)) == 2


def test_accuracies_are_means_of_all_seven_tasks_or_none(tmp_path, capsys):
    data = write_seven(tmp_path / "data")
    # one content is one result, whatever the task is called: the two halves of ARC must differ as they do
    write_rows(data / "arc_challenge.jsonl", [row("arc_challenge", number) for number in range(3)])
    rows = [
        {"method": "flap", "retention": 0.5, "figure": "accuracy", "value": 50.0},
        {"method": "flap", "retention": 0.5, "value": 40.0},
    ]
    words = ["--model", "demo", "--as", "Small", "--published", listed(tmp_path / "list.csv", *rows)]
    words += ["--cache", tmp_path / "cache", "--primary", "python-reference", "--auxiliary", "python-code"]
    seven = [*words, "--accuracy", "--task-folder", data]
    found = asked(*seven)
    figures = {task: {"acc": 0.4, "acc_norm": 0.62, "chance": 0.5} for task in found.series.scale.tasks}
    for entry in work.needed([found.table], found.series):
        finish(Store(tmp_path / "cache"), entry, accuracy={"flap": figures}, value=lambda *_: 40.0)
    assert accepting.call(*seven) == 0
    lines = table_of(capsys.readouterr().out)
    assert lines[0][2:4] == ["accuracy, 7 tasks", "50.00"] and lines[0][5].startswith("62.00")
    assert [line[-2:] for line in lines] == [["+24.0%", "outside 3%"], ["+0.0%", "within 3%"]]
    (data / "piqa.jsonl").unlink()
    assert accepting.call(*seven) == EXIT_UNFILLED
    text = capsys.readouterr().out
    assert table_of(text)[0][-1] == "not measured" and "- FLAP: piqa: the task 'piqa' has no data in" in text
    # without being asked for, no task is looked at
    assert accepting.call(*words) == 0
    assert len(table_of(capsys.readouterr().out)) == 1
