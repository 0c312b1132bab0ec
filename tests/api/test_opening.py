"""Studies run and runs found again: the errors, a stopped run that goes on, imports that stay light."""

import contextlib
import io
import subprocess
import sys
from pathlib import Path

import pytest

import gprune
from gprune.__main__ import main
from gprune.api import progress
from gprune.pipeline import runs
from gprune.store import Store
from gprune.system import errors, safe_parsing


def complaint(*words: str) -> str:
    """What the command line says, in one line."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.suppress(SystemExit):
        main(list(words))
    return said.getvalue().strip().splitlines()[-1]


def test_bad_input_is_refused_by_the_sentence_of_the_command_line(at_home):
    plain = {"model": "demo", "primary": "texts/random.txt", "auxiliary": "texts/json.txt"}
    told = ("study", *(word for name, value in plain.items() for word in (f"--{name}", value)))
    cases = (
        (lambda: gprune.Study(**plain, retention=2.0), (*told, "--retention", "2")),
        (lambda: gprune.Study(**plain, methods=["dense", "flop"]), (*told, "--methods", "dense", "flop")),
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
        assert safe_parsing.sentence(raised.value) in complaint(*words), words


def _study(folder: Path, values: dict[str, str]) -> Path:
    path = folder / "other.json"
    path.write_text(gprune.Study(**values).to_json(), encoding="utf-8")
    return path


def test_what_a_run_does_not_have_is_named_with_what_it_has(at_home):
    run = gprune.open(gprune.runs()["run"][0])
    cases = (
        (
            lambda: run.masks["fang"],
            "method must be one of gprune, flap, flap_no_bias, wanda_sp (got 'fang')",
        ),
        (lambda: run.model("fang"), "method must be one of dense, gprune"),
        (lambda: run.figure("drifts"), "figure must be one of"),
        (lambda: run.figure("drift", bin=3), "the figure drift has no option 'bin'; it has: form, bins, log"),
        (lambda: run.figure("drift", bins="many"), "bins must be like 50 (got 'many')"),
        (lambda: run.figure("ranks", layer=7), "layer must be 0 to 1 (got 7)"),
        (lambda: run.figure("movers", selected=(0, None, 99)), "this run has no neuron 99"),
        (lambda: run.adapt(drift_quantile=2), "reliability.drift_quantile must be"),
        (lambda: gprune.run(3), "a study is a gprune.Study"),
        (lambda: gprune.run("demo", until="tea"), "until must be one of positions"),
        (lambda: gprune.prune(run.model("dense"), run.drift), "masks need the columns"),
        (
            lambda: gprune.prune(run.model("dense"), run.masks["flap"][1:]),
            "say once of each of 2 × 27 neurons",
        ),
        (lambda: gprune.scores(run.model("dense"), ["word"], "mass"), "metric must be one of flap, wanda_sp"),
    )
    for call, words in cases:
        with pytest.raises(errors.GpruneError, match=r"(?s).*") as raised:
            call()
        assert words in str(raised.value), str(raised.value)


def test_a_result_that_is_not_there_yet_is_named(at_home, tmp_path):
    run = gprune.run("demo", until="drift", cache=tmp_path, progress=False)
    assert len(run.drift) == 54
    with pytest.raises(errors.StoreError, match="is not there yet"):
        run.perplexity  # noqa: B018
    assert list(run.masks) == []


def test_a_run_is_found_by_its_name_and_by_its_folder(at_home):
    listed = gprune.runs(cache="cache")
    name = listed["run"][0]
    assert listed["state"][0] == "done" and len(listed) == 1
    folder = at_home / "cache" / "runs" / name
    assert gprune.open(folder).study == gprune.open(name, cache=at_home / "cache").study


def test_a_run_that_is_interrupted_goes_on_where_it_was(at_home, tmp_path, monkeypatch):
    heard = progress._Told.__call__

    def stopping(told: progress._Told, stage: str, done: int, total: int, message: str) -> None:
        heard(told, stage, done, total, message)
        if stage == "learning":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(progress._Told, "__call__", stopping)
        with pytest.raises(KeyboardInterrupt):
            gprune.run("demo", cache=tmp_path)
    name = gprune.runs(cache=tmp_path)["run"][0]
    stopped = gprune.open(name, cache=tmp_path)
    assert stopped.state == "cancelled" and len(stopped.drift) == 54
    gone_on = gprune.run("demo", cache=tmp_path)
    record = runs.required(Store(tmp_path), name)
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
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=_environment(project)
    )
    assert done.stdout.splitlines() == ["[]", "['numpy', 'pandas']", "plotly False"] and not done.stderr


def _environment(project: Path) -> dict[str, str]:
    import os

    return os.environ | {"PYTHONPATH": str(project)}
