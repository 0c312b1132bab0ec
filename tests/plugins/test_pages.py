"""Where plug-ins are offered and shown: the launch form, Compare, the command line, the main table."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from plugins.packages import BOTH, adopted, install
from views.app_driver import charts, numbers, on, opened
from views.synthetic_run import a_study, write_run

from gprune import methods
from gprune.__main__ import main
from gprune.errors import SettingsError
from gprune.reproduction import tables
from gprune.reproduction.scale import choose
from gprune.reproduction.series import Series
from gprune.reproduction.writing import folder_name
from gprune.views.frame import chart_style as style
from gprune.views.jobs.launch import input_problem

METHODS = ("dense", "gprune", "flap", "size", "even")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "cache"
    monkeypatch.setenv("GPRUNE_CACHE", str(root))
    monkeypatch.setenv("GPRUNE_AUTOSTART", "0")
    return root


@pytest.mark.slow
def test_the_launch_form_offers_them_and_says_why_one_is_left_out(
    site: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
def test_compare_shows_a_run_whose_plug_in_is_gone(
    site: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_methods_of_plug_ins_look_like_no_other(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(site)
    with adopted(monkeypatch):
        looks = [(style.METHOD_COLORS[name], style.METHOD_SYMBOLS[name]) for name in methods.METHODS]
        assert len(set(looks)) == len(methods.METHODS) == len(methods.BUILT_IN) + 2
        assert style.family("size") == "size" and style.METHOD_DASHES["size"] == "solid"
        assert style.label("size") == "Weight size" and "even" in style.METHOD_LABELS
    assert "even" not in style.METHOD_LABELS and style.METHOD_COLORS.get("even") is None


# ---- the command line --------------------------------------------------------------------------------------


def test_the_commands_know_them(
    site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
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


def test_the_main_table_takes_them_beside_the_others(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(site)
    plain = choose("demo")
    with adopted(monkeypatch):
        changes = {"methods": ("flap", "size", "even", "gprune", "flap_uniform"), "retentions": (0.7, 0.5)}
        series = Series("demo", choose("demo", None, changes))
        rows = tables.main(series)
        assert [row.labels["method"] for row in rows] == [
            "dense",
            *("FLAP", "weight size", "even cut", "GPrune (FLAP)", "GPrune (weight size)", "FLAP, one ratio")
            * 2,
        ]
        assert [row.labels["retention"] for row in rows] == [1.0, *[0.7] * 6, *[0.5] * 6]
        assert {row.study.metric for row in rows if row.method != "gprune"} == {"flap"}
        assert [row.extra for row in rows[1:7]] == [False] * 5 + [True]
        # other tables are what they are without plug-ins
        assert {row.method for row in tables.compared(series)} <= set(methods.BUILT_IN)
        assert {row.method for row in tables.fair_rows(series)} <= set(methods.BUILT_IN)
        assert "size" not in tables.main(Series("demo", plain))[-1].study.methods
        assert folder_name("demo", series.scale) != folder_name("demo", plain) == "demo-demo"
        assert "methods" not in plain.to_dict()
    with pytest.raises(SettingsError, match="--methods must be one of dense, .*got 'size'"):
        choose("demo", None, {"methods": ("size",)})
