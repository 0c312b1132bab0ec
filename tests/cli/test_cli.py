"""The command line: one JSON line, exit codes, and one clear sentence for every slip."""

import argparse
import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import tiny_study
from pruned_folder import masks_of, save

from gprune.__main__ import main
from gprune.cli import COMMANDS, paths, speed
from gprune.cli.progress import speed_lines
from gprune.evaluation.speed import Speed
from gprune.jobs import jobs, progress
from gprune.jobs.folder import JobState, read_state, write_state
from gprune.models.tiny import tiny_decoder
from gprune.study.demo import demo_study
from gprune.system.errors import ModelError, SettingsError


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    created = tiny_study.workshop(folder, kv_heads=4)
    study = folder / "study.json"
    study.write_text(json.dumps(tiny_study.settings(created["model"], created["texts"])))
    return created | {"study": str(study)}


def test_study_writes_what_it_was_told_and_run_reads_it(capsys, workshop):
    first, second, third = workshop["texts"]
    words = ["study", "--model", workshop["model"], "--primary", first, "--auxiliary", second, "--substitute", third]
    words += ["--metric", "wanda_sp", "--retention", "0.7", "--samples", "64", "--evaluate", "python-reference", third]
    assert main([*words, "--set", "reliability.score_quantile=0.85", "--set", "dtype=bfloat16"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert (values["metric"], values["retention"], values["substitute"]) == ("wanda_sp", 0.7, third)
    assert values["calibration"]["samples"] == 64 and values["calibration"]["length"] == 128
    assert values["evaluation"]["texts"] == ["python-reference", third]
    assert values["reliability"]["score_quantile"] == 0.85 and values["dtype"] == "bfloat16"
    assert values["modularization"]["candidates"] == [16, 24, 32, 40, 48]


@pytest.mark.slow
def test_run_json_is_one_line_with_everything_in_it(workshop, capsys):
    run = ["run", workshop["study"], "--cache", str(workshop["folder"] / "cache")]
    assert main([*run, "--json"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    result = json.loads(out)
    documented = {"settings", "keys", "retained_fraction", "parameters", "checkpoint", "perplexity", "retention"}
    assert documented <= result.keys()
    assert list(result["perplexity"]) == ["dense", "gprune", "flap", "flap_no_bias", "wanda_sp"]
    assert list(result["perplexity"]["flap"]) == list(result["settings"]["evaluation"]["texts"])
    assert main(run) == 0
    again = capsys.readouterr()
    assert "reused" in again.err and "0 stages computed" in again.out


@pytest.mark.slow
def test_arrays_have_the_documented_names_and_shapes(workshop, project, monkeypatch):
    out = workshop["folder"] / "out.npz"
    monkeypatch.setenv("GPRUNE_CACHE", str(workshop["folder"] / "cache"))
    assert main(["arrays", workshop["study"], str(out)]) == 0
    with np.load(out, allow_pickle=False) as arrays:
        shapes = {name: arrays[name].shape for name in arrays.files}
        labels, layer = arrays["labels"], arrays["module_layer"]
        assert arrays["scores_primary_ffn"].dtype == np.float64
        assert set(np.unique(arrays["module_source"])) <= {0, 1}
    assert shapes["tokens_primary"] == (16, 16)
    assert shapes["scores_auxiliary_heads"] == (2, 4) == shapes["head_mask_wanda_sp"]
    assert shapes["ffn_mask"] == shapes["drift"] == shapes["resample_drift_auxiliary"] == (2, 27)
    counts = labels.max(axis=1) + 1
    np.testing.assert_array_equal(layer, np.repeat([0, 1], counts))
    assert shapes["module_u_primary"] == shapes["module_score"] == (counts.sum(),)
    documented = (project / "docs" / "python.md").read_text()
    assert [name for name in shapes if f"`{name}`" not in documented] == []


def bad_studies(workshop, tmp_path):
    texts, model = workshop["texts"], workshop["model"]
    no_tokenizer = shutil.copytree(model, tmp_path / "no_tokenizer", ignore=shutil.ignore_patterns("token*"))
    truncated = shutil.copytree(model, tmp_path / "truncated")
    weights = truncated / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    many = {"samples": 10**6, "length": 16}
    return {
        "no tokenizer": (tiny_study.settings(str(no_tokenizer), texts), "no tokenizer"),
        "truncated": (tiny_study.settings(str(truncated), texts), "model.safetensors"),
        "too many samples": (tiny_study.settings(model, texts, calibration=many), "1,000,000"),
        "unknown field": (tiny_study.settings(model, texts, epochs=3), "no field 'epochs'"),
    }


@pytest.mark.parametrize("slip", ["no tokenizer", "truncated", "too many samples", "unknown field"])
def test_run_answers_a_slip_with_one_sentence_and_exit_code_2(capsys, monkeypatch, workshop, tmp_path, slip):
    values, message = bad_studies(workshop, tmp_path)[slip]
    path = tmp_path / "study.json"
    path.write_text(json.dumps(values))
    monkeypatch.setenv("GPRUNE_CACHE", str(tmp_path / "cache"))
    assert main(["run", str(path), "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    errors = [line for line in captured.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and message in errors[0], captured.err
    assert "Traceback" not in captured.err


@pytest.mark.process
@pytest.mark.parametrize(
    "words, heavy",
    [
        # nor the file of any command: that of the one that is asked for is imported alone
        (["--help"], {"torch", "streamlit", "numpy", "pydantic", "gprune.study", "importlib.metadata"}),
        (["study", "--help"], {"torch", "streamlit", "numpy", "pydantic", "pydantic_core"}),
    ],
    ids=["all", "study"],
)
def test_help_needs_no_torch(words, heavy, workshop):
    code = f"import sys, gprune.__main__ as m\ntry: m.main({words})\nexcept SystemExit: pass\n"
    code += f"sys.exit(' '.join({heavy} & set(sys.modules)) or None)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_registered_by_its_file(name, capsys):
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    visible = capsys.readouterr().out
    assert ended.value.code == 0 and visible.startswith(f"usage: gprune {name} ")
    # one that is known by its line alone would have no option but this
    assert "--help" in visible and len(visible.splitlines()) > 3


QUICK = ["--preset", "cpu", "--batch", "2", "--prompt", "6", "--new", "3", "--repeats", "2"]


def measured(*words):
    parser = argparse.ArgumentParser()
    speed.add(parser.add_subparsers())
    options = parser.parse_args(["speed", *map(str, words)])
    return options.command(options)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A dense model and a pruned one, both without a tokenizer."""
    folder = tmp_path_factory.mktemp("speed")
    decoder = tiny_decoder(kv_heads=2)
    decoder.model.save_pretrained(folder / "dense")
    save(decoder, folder / "pruned", masks=masks_of(decoder, [2, 1], [5, 12]))
    return folder


def test_dense_and_pruned_are_measured_side_by_side(folders, capsys, tmp_path):
    dense, out = str(folders / "dense"), tmp_path / "out.json"
    assert measured(dense, folders / "pruned", dense, *QUICK, "--json", out) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:4] == ["model", "parameters", "phase", "mode"]
    assert len({line.index("eager") for line in lines[1:10]}) == 1
    assert "float32 on cpu, batch 2, prompt 6, 3 new tokens, 2 repetitions after 1 warm-up" in lines[11]
    values = json.loads(out.read_text())
    rows = values["rows"]
    assert [row["model"] for row in rows[::3]] == [dense, str(folders / "pruned"), f"{dense} #2"]
    assert [row["phase"] for row in rows[:3]] == ["prefill", "decode", "whole"]
    # 7 neurons of 3 * 8 weights and a group of 2 query heads: 2 * 2 * 2 * 8 + 2 * 2 * 8
    assert rows[0]["parameters"] - rows[3]["parameters"] == 7 * 24 + 96
    assert rows[0]["peak_bytes"] > rows[3]["peak_bytes"]
    # the first model's own are those beside either of the others
    assert [len(row["seconds"]) for row in rows] == [4] * 3 + [2] * 6
    assert all(min(row["seconds"]) > 0 for row in rows)
    assert lines[13].endswith("the rows of the first cover all its repetitions.")
    assert values["setting"]["prompt"] == 6
    assert "1 thread" in values["machine"] and "torch" in values["machine"]


@pytest.mark.parametrize("name", ["/no/such/folder", "random:gpt9", "random:llama2-7b@2"])
def test_a_name_of_no_model_is_told_before_anything_is_loaded(folders, capsys, name):
    with pytest.raises((ModelError, SettingsError), match="no model folder|retention after @"):
        measured(folders / "dense", name, *QUICK)
    assert "loading" not in capsys.readouterr().err


def test_the_table_is_exact():
    rows = [
        Speed("A", 1234, "prefill", "eager", 1000.0, 10.0, 1.0, 0.0, 2**20, "allocated", (1.0,)),
        Speed("long", 7, "decode", "graph", 52.25, 0.5, 1.5, 0.25, 3 * 2**19, "allocated", (1.0,)),
    ]
    assert speed_lines(map(asdict, rows)) == [
        "model  parameters  phase    mode   tokens/s   IQR  ratio   IQR        peak memory",
        "A           1,234  prefill  eager   1,000.0  10.0  1.00x  0.00  1.0 MiB allocated",
        "long            7  decode   graph      52.2   0.5  1.50x  0.25  1.5 MiB allocated",
    ]


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        (["/no/such/folder"], ModelError, "no model folder '/no/such/folder'"),
        (["random:gpt9"], ModelError, "no model folder 'gpt9'"),
        (["random:llama2-7b@2"], SettingsError, r"must be between 0 and 1.*got '2'"),
        (["random:llama2-7b@0.5", "--align", "0"], SettingsError, "align must be 1 or more"),
        (["{dense}", "--prompt", "600"], SettingsError, r"600 \+ 3 = 603, but .* reads at most 512"),
        (["{dense}", "--modes", "graph"], SettingsError, "graph needs a CUDA device"),
        (["{dense}", "--dtype", "int4"], SettingsError, "dtype must be one of"),
        (["{dense}", "--json", "/no/such/out.json"], SettingsError, "'/no/such' does not exist"),
        (["{dense}", "--preset", "tpu"], SettingsError, "preset must be one of"),
    ],
)
def test_slips_are_one_sentence(folders, words, error, message):
    model, *words = [word.format(dense=folders / "dense") for word in words]
    with pytest.raises(error, match=message):
        measured(model, *([] if "--preset" in words else QUICK), *words)


def test_speed_is_a_job_that_is_timed_and_says_what_it_measured(folders, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(folders)
    monkeypatch.setattr("gprune.jobs.queue.start_worker", lambda *_: None)
    words = ["speed", "dense", "random:llama2-7b#layers=1@0.5", *QUICK, "--cache", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["gprune", *words, "--detach"])
    # twice the same is one job
    assert main([*words, "--detach"]) == 0 and main([*words, "--detach"]) == 0
    (job,) = jobs(tmp_path)
    assert job.timed and job.creates_no_run and job.asks == "cpu" and job.state == "queued"
    assert job.arguments == tuple(words) and job.cwd == str(folders)
    assert job.command[-2:] == ("--job", str(job.folder)) and job.id in capsys.readouterr().out
    # what the job starts, here at once
    small = ["speed", str(folders / "dense"), str(folders / "pruned"), *QUICK]
    assert main([*small, "--job", str(job.folder)]) == 0
    values = json.loads((job.folder / "speed.json").read_text())
    assert [row["phase"] for row in values["rows"]] == ["prefill", "decode", "whole"] * 2
    (job,) = jobs(tmp_path)
    assert job.state == "done" and progress(tmp_path, job.id).stages[0].stage == "speed"


def test_a_cancelled_measurement_is_cancelled_and_prints_no_half(folders, tmp_path, capsys):
    write_state(tmp_path, JobState("cancelling"))
    assert main(["speed", str(folders / "dense"), *QUICK, "--job", str(tmp_path)]) == 130
    assert read_state(tmp_path).state == "cancelled" and "tokens/s" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "usage", "message"),
    [
        (["run", "demo", "--sampels", "64"], "run", "arguments: --sampels 64 (did you mean --samples?)"),
        (["study", "--model", "demo", "--retentoin=1"], "study", "--retentoin=1 (did you mean --retention?)"),
        (["cache", "list", "--cahce", "a"], "cache list", "--cahce a (did you mean --cache?)"),
        (["run", "demo", "more"], "run", "unrecognized arguments: more\n"),
        (["run", "demo", "--until", "mask"], "run", "invalid choice: 'mask' (choose from "),
        (["rnu", "demo"], "[-h]", "invalid choice: 'rnu' (choose from "),
    ],
)  # fmt: skip
def test_what_is_mistyped_shows_the_usage_of_its_own_command_and_what_is_near(words, usage, message, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    said = capsys.readouterr().err
    assert ended.value.code == 2 and message in said and said.startswith(f"usage: gprune {usage} ")


@pytest.mark.slow
def test_run_takes_settings_as_study_does(workshop, tmp_path, capsys):
    words = ["run", workshop["study"], "--cache", str(tmp_path), "--until", "drift", "--json"]
    assert main([*words, "--samples", "8", "--set", "calibration.length=12", "--metric", "wanda_sp"]) == 0
    settings = json.loads(capsys.readouterr().out)["settings"]
    assert (settings["calibration"]["samples"], settings["calibration"]["length"]) == (8, 12)
    assert settings["metric"] == "wanda_sp"
    assert main([*words, "--set", "calibration.sample=8"]) == 2
    assert "did you mean 'calibration.samples'" in capsys.readouterr().err


STUDY = ["study", "--model", "m", "--primary", "a"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*STUDY, "--retention", "1.2"], "retention must be more than 0 and less than 1"),
        ([*STUDY, "--auxiliary", "a"], "are the same text"),
        ([*STUDY, "--set", "sparsity.epoch=2"], "did you mean 'sparsity.epochs'"),
        ([*STUDY, "--set", "sparsity.epochs"], "--set takes FIELD=VALUE"),
        (STUDY, "there is no model folder 'm'"),
        ([*STUDY, "--model", "demo"], "there is no text 'a'"),
        (["study", "--model", "demo", "--methods", "gprun"], "(got 'gprun'); did you mean 'gprune'?"),
        (
            ["study", "--model", "demo", "--metric", "flop"],
            "(got 'flop'); did you mean 'flap'?",
        ),
        (["study", "--model", "demo", "--set", "gates.start=maen"], "(got 'maen'); did you mean 'mean'?"),
        (["run", "demoo"], "'demoo' cannot be read: there is no such file (did you mean demo?)"),
        (["report", "smal", "-o", "a.html"], "there is no run 'smal' (did you mean small?)"),
        (["run", "xyz.json"], "there is no such file\n"),
    ],
)
def test_bad_values_and_unknown_names_are_one_sentence_with_the_nearest_known_name(
    words, message, tmp_path, monkeypatch, capsys
):
    folder = tmp_path / "runs" / "small"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"study": {}}))
    monkeypatch.setenv("GPRUNE_CACHE", str(tmp_path))
    assert main(words) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("error: ") and said.err.count("\n") == 1
    assert message in said.err


def test_a_text_or_task_that_is_set_is_that_of_this_folder_where_it_is_written_as_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "piqa").mkdir()
    study = demo_study().with_settings({"evaluation.tasks": ("piqa", "./piqa")})
    assert paths.study(study).evaluation.tasks == ("piqa", str(tmp_path / "piqa"))
    (tmp_path / "c.txt").touch()
    assert paths.parse_setting("choice.check_text=./c.txt") == ("choice.check_text", str(tmp_path / "c.txt"))
    assert paths.parse_setting("baselines.taylor_text=bookcorpus") == ("baselines.taylor_text", "bookcorpus")
    assert paths.parse_setting("sparsity.epochs=2") == ("sparsity.epochs", 2)


def test_a_place_that_cannot_be_written_is_refused_before_the_work(workshop, tmp_path, capsys):
    measuring, reading = ["speed", "demo", "--cache", str(tmp_path), "--json"], ["arrays", workshop["study"]]
    for words, location, message in (
        (measuring, tmp_path, "is a folder: give the name"),
        (measuring, tmp_path / "no" / "x", "create it first"),
        (reading, tmp_path / "out.txt", ".npz"),
        (reading, tmp_path / "absent" / "out.npz", "does not exist"),
    ):
        assert main([*words, str(location)]) == 2
        assert message in capsys.readouterr().err


def test_a_study_from_a_pipe_is_read_once_whatever_is_asked(tmp_path, capsys):
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as pipe:
        pipe.write(demo_study().to_json())
    words = ["--dry-run", "--until", "drift", "--cache", str(tmp_path)]
    assert main(["run", f"/dev/fd/{reading}", *words]) == 0
    os.close(reading)
    assert "missing" in capsys.readouterr().out
