"""The launch form beside its fields: what a run takes, and every fault at its field."""

import json
import re

import pytest
from app_driver import on, open_page, show, words
from synthetic_run import a_study

from gprune.app.pages import launch
from gprune.models.sources import SHAPES


@pytest.fixture
def form(cache, monkeypatch):
    """Opens the form and types the name of a model."""

    def opened_with(model):
        # what is typed into the field cannot be chosen otherwise here
        monkeypatch.setattr(launch, "_list_models", lambda: ["demo", model])
        app = open_page("launch")
        return app if model == "demo" else app.selectbox(key="launch_model").set_value(model).run()

    return opened_with


def captions(app):
    return "\n".join(caption.value for caption in app.caption).replace("\\", "")


def test_the_demo_fits_and_the_form_says_in_what(form):
    app = form("demo")
    assert not app.exception and not app.error
    assert "Estimate: 1.1 GiB of " in captions(app) and "Without cached results: at most 1.1 GiB" in captions(app)
    [table] = [item.value for item in app.dataframe if "batch size" in item.value.columns]
    learning = table[table["stage"] == "learning the sparsity (GPrune)"].iloc[0]
    assert learning["batch size"] == "12" and learning["memory GiB"] < 2
    assert not app.button(key="launch_start").disabled


def test_what_cannot_fit_starts_only_where_it_is_wanted_nevertheless(form, tmp_path, started, monkeypatch):
    folder = tmp_path / "large"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(SHAPES["llama2-13b"]))
    monkeypatch.setattr("gprune.system.machine.memory", lambda: (24 * 2**30, 24 * 2**30))
    monkeypatch.setattr("gprune.app.pages.launch.input_problem", lambda _: "")
    app = form(str(folder))
    assert "more than the 24.0 GiB of this machine’s memory" in captions(app)
    assert app.button(key="launch_start").disabled
    assert not any("--anyway" in code.value for code in app.code)
    app.checkbox(key="launch_anyway").check().run()
    assert any(code.value.endswith("run study.json --anyway") for code in app.code)
    app.button(key="launch_start").click().run()
    [(study, arguments)] = started
    assert study.model == str(folder) and arguments == ("--anyway",)


def test_a_model_without_an_estimate_or_of_random_weights_is_foreseen_as_far_as_it_goes(form):
    app = form("nobody/nothing")
    assert "unknown until the model is on this machine" in captions(app)
    assert not app.button(key="launch_start").disabled
    app = form("random:llama2-7b")
    assert not app.exception and "of memory" in captions(app)
    app = form("random:../../x")
    assert not app.exception and app.button(key="launch_start").disabled
    (error,) = app.error
    assert "not a model with random weights" in error.value


def test_text_in_a_style_ends_neither_string_nor_style():
    for text in ('"}</style><script>x</script>', "a\\b", "ü – 5%\n{x}: 'y'", "\\22 "):
        created = launch.css_string(text)
        inner = created[1:-1]
        assert created[0] == created[-1] == '"' and not re.search(r"[\"'<>{}\n]", inner)
        assert re.sub(r"\\([0-9a-f]{6}) ", lambda code: chr(int(code[1], 16)), inner) == text


def test_the_form_names_the_wrong_fields_above_and_below(cache):
    app = open_page("launch")
    app.number_input(key="launch_retention").set_value(1.5).run()
    app.number_input(key="launch_seed").set_value(-2).run()
    app.number_input(key="launch_demo_reliability.drift_quantile").set_value(7.0).run()
    (error,) = app.error
    # in the words that stand at the fields, not in those of a study file
    started = [line.partition(" must be")[0].replace("\\", "") for line in error.value.splitlines()]
    assert started == ["- Retention", "- Seed", "- Drift quantile (Advanced)"]
    assert "drift\\_quantile" not in error.value
    assert "Not ready to start" in captions(app)
    marked = "".join(item.proto.body for item in app.get("html"))
    for key in ("launch_retention", "launch_seed", "launch_demo_reliability-drift_quantile"):
        assert f".st-key-{key}::after {{content: " in marked and f".st-key-{key} {{outline" in marked
    assert "launch_start" not in [button.key for button in app.button]
    app.number_input(key="launch_seed").set_value(2).run()
    assert "Seed" not in app.error[0].value


def test_a_model_that_is_gone_is_refused_at_its_field_and_no_job_is_made(cache, started):
    app = show("launch", cache, study=a_study(model="/nowhere/at/all"))
    app.selectbox(key="launch_model").set_value("/nowhere/at/all").run()
    assert app.button(key="launch_start").disabled and "there is no model folder" in words(app)
    marked = "".join(item.proto.body for item in app.get("html"))
    assert ".st-key-launch_model::after" in marked and "launch_primary" not in marked
    # the other ways to a job refuse it as well
    on(app, "speed").button(key="sx_measure").click().run()
    assert "there is no model folder" in words(app) and not started
