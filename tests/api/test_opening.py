"""Studies run and runs found again: the errors, a stopped run that goes on, imports that stay light."""

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from torch import nn

import gprune
from gprune.__main__ import main
from gprune.pipeline import runs
from gprune.store import Store
from gprune.system import errors, safe_parsing


def command_error(*words):
    """Return the last line that a command writes to standard error."""
    stderr = io.StringIO()
    with contextlib.redirect_stderr(stderr), contextlib.suppress(SystemExit):
        main(list(words))
    return stderr.getvalue().strip().splitlines()[-1]


def require_refused(cases):
    for call, words in cases:
        with pytest.raises(errors.GpruneError) as raised:
            call()
        assert words in str(raised.value), str(raised.value)


def test_bad_input_is_refused_by_the_sentence_of_the_command_line(at_home):
    plain = {"model": "demo", "primary": "texts/random.txt", "auxiliary": "texts/json.txt"}
    command = ("study", *(word for name, value in plain.items() for word in (f"--{name}", value)))
    cases = (
        (lambda: gprune.Study(**plain, retention=2.0), (*command, "--retention", "2")),
        (lambda: gprune.Study(**plain, methods=["dense", "flop"]), (*command, "--methods", "dense", "flop")),
        (lambda: gprune.run("nothing.json"), ("run", "nothing.json")),
        (lambda: gprune.open("no-such-run"), ("card", "no-such-run", "A")),
        (
            lambda: gprune.run(gprune.Study(**plain | {"model": "/no/such/model"}), progress=False),
            ("run", str(_study(at_home, plain | {"model": "/no/such/model"}))),
        ),
    )
    for call, words in cases:
        with pytest.raises(errors.GpruneError) as raised:
            call()
        assert safe_parsing.sentence(raised.value) in command_error(*words), words


def _study(folder, values):
    path = folder / "other.json"
    path.write_text(gprune.Study(**values).to_json(), encoding="utf-8")
    return path


def test_bad_arguments_are_refused_with_the_value_and_what_there_is(run):
    dense, masks, prune = run.model("dense"), run.masks["flap"], gprune.prune
    cases = (
        (lambda: run.masks["fang"], "method must be one of gprune, flap, flap_no_bias, wanda_sp (got 'fang')"),
        (lambda: run.model("fang"), "method must be one of dense, gprune"),
        (lambda: run.figure("drifts"), "figure must be one of"),
        (lambda: run.figure("drift", bin=3), "the figure drift has no option 'bin'; it has: form, bins, log"),
        (lambda: run.figure("drift", bins="many"), "bins must have the type of 50 (got 'many')"),
        (lambda: run.figure("ranks", layer=7), "layer must be 0 to 1 (got 7)"),
        (lambda: run.figure("ranks", layer="first"), "layer must be a whole number (got 'first')"),
        (lambda: run.figure("ranks", layer=0.5), "layer must be a whole number (got 0.5)"),
        (lambda: run.figure("perplexity", runs=[1]), "runs must be names of runs (got 1)"),
        (lambda: run.figure("movers", selected=(0, None, 99)), "this run has no neuron 99"),
        (lambda: run.adapt(drift_quantile=2), "reliability.drift_quantile must be"),
        (lambda: run.study.with_settings({5: 1}), "a study has no field 5"),
        (lambda: gprune.run(3), "a study must be a gprune.Study"),
        (lambda: gprune.run("demo", until="tea"), "until must be one of drift"),
        (lambda: gprune.open(5), "the run must be a name or a folder (got 5)"),
        (lambda: gprune.runs(cache=b"x"), "the cache must be a name or a folder (got b'x')"),
        (lambda: gprune.scores(dense, ["word"], "mass"), "metric must be one of flap, wanda_sp"),
        (lambda: prune(dense, run.drift), "masks need the columns"),
        (lambda: prune(dense, masks[1:]), "list each of 2 × 27 neurons once"),
        (lambda: prune(dense, masks.assign(kept="False")), "must hold True or False (got str)"),
        (lambda: prune(dense, masks.assign(kept=np.nan)), "must hold True or False (got float64)"),
        (lambda: prune(dense, masks.assign(layer="first")), "mask column 'layer' must hold integers"),
        (lambda: prune(dense, masks.assign(index=masks["index"] + 0.5)), "mask column 'index' must hold integers"),
    )
    require_refused(cases)
    assert run.masks.get("fang") is None and len(run.masks.get("flap")) == len(masks)


def test_a_missing_result_is_named_and_a_run_is_found_by_name_and_folder(at_home, tmp_path):
    run = gprune.run("demo", until="drift", cache=tmp_path, progress=False)
    assert len(run.drift) == 54
    with pytest.raises(errors.StoreError, match="is not there yet"):
        run.perplexity  # noqa: B018
    assert list(run.masks) == []
    listed = gprune.runs(cache="cache")
    name = listed["run"][0]
    assert listed["state"][0] == "done" and len(listed) == 1
    folder = at_home / "cache" / "runs" / name
    assert gprune.open(folder).study == gprune.open(name, cache=at_home / "cache").study


def test_a_run_that_is_interrupted_goes_on_where_it_was(at_home, tmp_path, monkeypatch):
    def stopping(_bar, description, **_):
        if description.startswith("learning"):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("tqdm.auto.tqdm.set_description_str", stopping)
        with pytest.raises(KeyboardInterrupt):
            gprune.run("demo", cache=tmp_path)
    name = gprune.runs(cache=tmp_path)["run"][0]
    stopped = gprune.open(name, cache=tmp_path)
    assert stopped.state == "cancelled" and len(stopped.drift) == 54
    gone_on = gprune.run("demo", cache=tmp_path)
    record = runs.require_record(Store(tmp_path), name)
    assert gone_on.state == "done" and record["stages"]["drift"]["reused"]
    assert not record["stages"]["learning"]["reused"]
    assert gone_on.perplexity.equals(gprune.open(name, cache=at_home / "cache").perplexity)


def test_the_bar_counts_the_stages_of_the_run(at_home, capsys):
    gprune.run("demo")
    last = capsys.readouterr().err.rstrip().rsplit("\r", 1)[-1]
    assert last.startswith("100%") and "done" in last


@pytest.mark.process
def test_importing_the_package_imports_nothing_heavy(at_home, project):
    code = """
import sys, gprune
heavy = {"numpy", "pandas", "torch", "streamlit", "plotly", "transformers"}
print(sorted(heavy & set(sys.modules)))
run = gprune.open(gprune.runs()["run"][0])
run.drift, run.modules, run.masks["flap"], run.perplexity, run.accuracy, run.adapt(drift_quantile=0.5)
print(sorted(heavy & set(sys.modules)))
import plotly.io
figure = run.figure("drift")
print(plotly.io.templates.default, "torch" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(project)},
    )
    assert done.stdout.splitlines() == ["[]", "['numpy', 'pandas']", "plotly False"] and not done.stderr


DOCUMENTS = [f"a text number {number} stderr in a few words" for number in range(40)]


def test_a_run_that_is_compared_is_looked_for_in_the_cache_of_the_run(run, tmp_path):
    other = tmp_path / "runs" / run.name
    shutil.copytree(Path("cache") / "runs" / run.name, other)
    alone = gprune.open(other)
    with pytest.raises(errors.StoreError, match=f"there is no run 'absent' in {tmp_path}"):
        alone.figure("perplexity", runs=["absent"])
    record = json.loads((other / "run.json").read_text())
    later = tmp_path / "runs" / "later"
    later.mkdir()
    (later / "run.json").write_text(json.dumps(record | {"study": record["study"] | {"colour": "red"}}))
    with pytest.raises(errors.StoreError, match="holds a study of another version"):
        alone.figure("perplexity", runs=["later"])


def test_a_text_a_tokenizer_and_numbers_of_another_kind_are_named(run, tmp_path):
    dense, tokenizer = run.model("dense"), run.tokenizer
    reference = {"tokenizer": tokenizer, "samples": 8, "length": 16}

    def foreign(*arguments, **options):
        return {"input_ids": [[10**6] * 20 for _ in arguments[0]]}

    def scored(**changed):
        return gprune.scores(dense, DOCUMENTS, **(reference | changed))

    def measured(model=dense, **options):
        return gprune.measure.perplexity(model, tokenizer, DOCUMENTS, length=16, **options)

    require_refused(
        [
            (lambda: gprune.scores(dense, 5, **reference), "must be a name, a file or a list of strings (got 5)"),
            (lambda: scored(samples="8"), "samples must be a whole number (got '8')"),
            (lambda: scored(batch=1.5), "batch must be a whole number (got 1.5)"),
            (lambda: scored(seed=None), "seed must be a whole number (got None)"),
            (lambda: scored(seed=-1), "seed must be 0 or more (got -1)"),
            (lambda: scored(tokenizer=5), "tokenizer must be a transformers tokenizer (got 5)"),
            (lambda: scored(tokenizer=foreign), "tokenize it with the model's own tokenizer"),
            (lambda: measured(windows=1.5), "windows must be a whole number (got 1.5)"),
            (
                lambda: measured(model=nn.Linear(2, 2)),
                "the model must be a causal language model of transformers (got Linear)",
            ),
        ]
    )
    path = tmp_path / "words.txt"
    path.write_text("\n\n".join(DOCUMENTS))
    assert scored(samples=np.int64(8)).equals(scored())
    assert len(gprune.scores(dense, path, **reference)) == len(scored())


def test_a_record_alone_runs_no_code_of_a_model(run, tmp_path):
    folder = tmp_path / "cache" / "runs" / run.name
    shutil.copytree(Path("cache") / "runs" / run.name, folder)
    values = json.loads((folder / "run.json").read_text())
    values["study"]["trust_remote_code"] = True
    (folder / "run.json").write_text(json.dumps(values))
    opened = gprune.open(folder)
    for expected in (lambda: opened.tokenizer, lambda: opened.model("dense")):
        with pytest.raises(errors.SettingsError, match=r"Python code would run.*trust_remote_code=True. only if"):
            expected()
    assert gprune.open(folder, trust_remote_code=True).tokenizer.vocab_size == run.tokenizer.vocab_size
