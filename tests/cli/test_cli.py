"""The command line: one JSON line, exit codes, and one clear sentence for every slip."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny_study

from gprune.__main__ import main
from gprune.cli import COMMANDS


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    texts = tiny_study.write_texts(folder / "texts")
    model = tiny_study.write_model(folder / "model", texts, kv_heads=4)
    study = folder / "study.json"
    study.write_text(json.dumps(tiny_study.settings(model, texts)))
    return {"folder": folder, "texts": texts, "model": model, "study": str(study)}


def command(*words, cache, **environment):
    variables = {**os.environ, "GPRUNE_CACHE": str(cache), **environment}
    root = Path(__file__).resolve().parents[2]
    return subprocess.run(
        [sys.executable, "-m", "gprune", *words], capture_output=True, text=True, env=variables, cwd=root
    )


def test_study_writes_what_it_was_told_and_run_reads_it(capsys, workshop):
    words = [
        "study",
        "--model",
        workshop["model"],
        "--primary",
        "a",
        "--auxiliary",
        "b",
        "--metric",
        "wanda_sp",
    ]
    words += ["--retention", "0.7", "--samples", "64", "--substitute", "c", "--evaluate", "x", "y"]
    assert main([*words, "--set", "reliability.score_quantile=0.85", "--set", "dtype=bfloat16"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert (values["metric"], values["retention"], values["substitute"]) == ("wanda_sp", 0.7, "c")
    assert values["calibration"]["samples"] == 64 and values["calibration"]["length"] == 128
    assert values["evaluation"]["texts"] == ["x", "y"]
    assert values["reliability"]["score_quantile"] == 0.85 and values["dtype"] == "bfloat16"
    assert values["modularization"]["candidates"] == [16, 24, 32, 40, 48]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--retention", "1.2"], "retention must be more than 0 and less than 1"),
        (["--auxiliary", "a"], "are the same text"),
        (["--set", "sparsity.epoch=2"], "did you mean 'sparsity.epochs'"),
        (["--set", "sparsity.epochs"], "--set takes FIELD=VALUE"),
        (["--metric", "x"], "metric must be one of"),
    ],
)
def test_study_refuses_bad_values_in_one_sentence(capsys, words, message):
    assert main(["study", "--model", "m", "--primary", "a", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ") and captured.err.count("\n") == 1
    assert message in captured.err


@pytest.mark.slow
def test_run_json_is_one_line_with_everything_in_it(workshop, capsys):
    run = ["run", workshop["study"], "--cache", str(workshop["folder"] / "cache")]
    assert main([*run, "--json"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    result = json.loads(out)
    for name in (
        "settings",
        "keys",
        "retained_fraction",
        "parameters",
        "checkpoint",
        "perplexity",
        "retention",
    ):
        assert name in result
    assert list(result["perplexity"]) == ["dense", "gprune", "flap", "flap_no_bias", "wanda_sp"]
    assert list(result["perplexity"]["flap"]) == list(result["settings"]["evaluation"]["texts"])
    assert set(result["diagnostics"]["decisions_changed"]) == {"BCM", "RASA", "MSL"}
    assert 0 <= result["diagnostics"]["drift_explained"]["random"] < 1
    assert main(run) == 0
    again = capsys.readouterr()
    assert "reused" in again.err and "0 stages computed" in again.out
    assert "variance of the drift explained: modules" in again.out


@pytest.mark.process
def test_arrays_have_the_documented_names_and_shapes(workshop, project):
    out = workshop["folder"] / "out.npz"
    done = command("arrays", workshop["study"], str(out), cache=workshop["folder"] / "cache")
    assert done.returncode == 0, done.stderr
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
    documented = (project / "docs" / "arrays.md").read_text()
    assert [name for name in shapes if f"`{name}`" not in documented] == []


def bad_studies(workshop, tmp_path):
    texts, model = workshop["texts"], workshop["model"]
    binary = tmp_path / "latin.txt"
    binary.write_bytes("Müßiggang ist aller Laster Anfang. ".encode("latin-1") * 400)
    no_tokenizer = tmp_path / "no_tokenizer"
    no_tokenizer.mkdir()
    for name in ("config.json", "model.safetensors"):
        (no_tokenizer / name).write_bytes(Path(model, name).read_bytes())
    truncated = tmp_path / "truncated"
    truncated.mkdir()
    for path in Path(model).iterdir():
        (truncated / path.name).write_bytes(path.read_bytes())
    weights = truncated / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    return {
        "no model": (tiny_study.settings(str(tmp_path / "absent"), texts), "absent"),
        "no tokenizer": (tiny_study.settings(str(no_tokenizer), texts), "no tokenizer"),
        "truncated": (tiny_study.settings(str(truncated), texts), "model.safetensors"),
        "no text": (tiny_study.settings(model, (str(tmp_path / "no.txt"), *texts[1:])), "no.txt"),
        "encoding": (tiny_study.settings(model, (str(binary), *texts[1:])), "UTF-8"),
        "retention 0": (tiny_study.settings(model, texts, retention=0), "retention must be"),
        "too many samples": (
            tiny_study.settings(model, texts, calibration={"samples": 10**6, "length": 16}),
            "1,000,000",
        ),
        "unknown field": (tiny_study.settings(model, texts, epochs=3), "no field 'epochs'"),
    }


@pytest.mark.parametrize(
    "slip",
    [
        "no model",
        "no tokenizer",
        "truncated",
        "no text",
        "encoding",
        "retention 0",
        "too many samples",
        "unknown field",
    ],
)
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


def test_arrays_refuse_a_target_before_any_work(capsys, workshop, tmp_path):
    assert main(["arrays", workshop["study"], str(tmp_path / "out.txt")]) == 2
    assert ".npz" in capsys.readouterr().err
    assert main(["arrays", workshop["study"], str(tmp_path / "absent" / "out.npz")]) == 2
    assert "does not exist" in capsys.readouterr().err


@pytest.mark.process
@pytest.mark.parametrize(
    "asked, heavy",
    [
        # nor the file of any command: that of the one that is asked for is imported alone
        (["--help"], {"torch", "streamlit", "numpy", "pydantic", "gprune.study", "importlib.metadata"}),
        (["study", "--help"], {"torch", "streamlit", "numpy", "pydantic", "pydantic_core"}),
    ],
    ids=["all", "study"],
)
def test_help_needs_no_torch(asked, heavy, workshop):
    code = f"import sys, gprune.__main__ as m\ntry: m.main({asked})\nexcept SystemExit: pass\n"
    code += f"heavy = {heavy} & set(sys.modules)\n"
    code += "sys.exit(' '.join(heavy) or None)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_registered_by_its_file(name, capsys):
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    shown = capsys.readouterr().out
    assert ended.value.code == 0 and shown.startswith(f"usage: gprune {name} ")
    # one that is known by its line alone would have no option but this
    assert "--help" in shown and len(shown.splitlines()) > 3
