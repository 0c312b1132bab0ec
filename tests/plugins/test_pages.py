"""Where plug-ins are offered and shown: the launch form, Compare, the command line, the main table."""

import shutil
from pathlib import Path

import pytest
from app_driver import charts, numbers, on, opened
from plugins.packages import BOTH, adopted, install
from synthetic_run import a_study, write_run

from gprune.__main__ import main
from gprune.app.pages.jobs.launch import input_problem

METHODS = ("dense", "gprune", "flap", "size", "even")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "cache"
    monkeypatch.setenv("GPRUNE_CACHE", str(root))
    monkeypatch.setenv("GPRUNE_AUTOSTART", "0")
    return root


@pytest.mark.slow
def test_the_launch_form_offers_them_and_says_why_one_is_left_out(site, cache, monkeypatch):
    install(site)
    install(site, "other", {"other.py": BOTH["bring/metric.py"]}, {"flap": "other:size"}, {})
    with adopted(monkeypatch):
        app = on(opened(), "jobs")
        assert app.selectbox(key="launch_metric").options[-1] == "Weight size"
        assert app.multiselect(key="launch_methods").options[-2:] == ["Even cut", "Weight size"]
        said = "the metric flap of other is left out: a built-in metric or method has this name"
        (caption,) = [item.value for item in app.caption if "left out" in item.value]
        assert said in caption.replace("\\", "")
        app.selectbox(key="launch_metric").set_value("size").run()
        app.multiselect(key="launch_methods").set_value(["flap", "even"]).run()
        assert "--metric size" in "\n".join(code.value for code in app.code)
        assert "--methods flap even" in "\n".join(code.value for code in app.code)


@pytest.mark.slow
def test_compare_shows_a_run_whose_plug_in_is_gone(site, cache, monkeypatch):
    install(site)
    with adopted(monkeypatch):
        write_run(cache, study=a_study(metric="size", methods=METHODS))
    shutil.rmtree(site)
    with adopted(monkeypatch):
        for page in ("overview", "rank_drift", "pruning_decisions", "reliability", "speed_export"):
            on(opened(), page)
        app = on(opened(), "comparison")
        assert set(numbers(app)["method"]) == {"Dense", "GPrune", "FLAP", "Weight size", "Even cut"}
        marks = {trace.get("name") for chart in charts(app) for trace in chart["data"]}
        assert marks
        form = on(opened(), "jobs")
        assert "Even cut" not in form.multiselect(key="launch_methods").options
        study = a_study(metric="size", methods=METHODS)
        assert "bring 1.0 is not installed here: install bring" in input_problem(study)


# ---- the command line --------------------------------------------------------------------------------------


def test_the_commands_know_them(site, monkeypatch, capsys):
    install(site)
    texts = ["--model", "demo", "--primary", "python-reference", "--auxiliary", "science-docs"]
    with adopted(monkeypatch):
        assert main(["study", *texts, "--metric", "size", "--methods", "dense", "even"]) == 0
        assert '"metric": "size"' in capsys.readouterr().out
        for command in ("study", "reproduce"):
            with pytest.raises(SystemExit):
                main([command, "--help"])
            assert "even" in " ".join(capsys.readouterr().out.split())
        assert main(["plugins"]) == 0
        listed = capsys.readouterr().out.splitlines()
        assert [line.split()[:2] for line in listed] == [["metric", "size"], ["method", "even"]] or [
            line.split()[:2] for line in listed
        ] == [["method", "even"], ["metric", "size"]]
    with adopted(monkeypatch):
        shutil.rmtree(site)
    with adopted(monkeypatch):
        assert main(["plugins"]) == 0
        assert "docs/plugins.md" in capsys.readouterr().err
