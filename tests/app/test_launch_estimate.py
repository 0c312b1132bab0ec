"""What the launch form says of memory and time, and what it refuses to start."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from app_driver import on, opened
from streamlit.testing.v1 import AppTest

from gprune.app.pages.jobs import launch
from gprune.models.shapes import SHAPES
from gprune.study import Study


@pytest.fixture
def form(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], AppTest]:
    """Opens the form and types the name of a model."""

    def opened_with(model: str) -> AppTest:
        # what is typed into the field cannot be chosen otherwise here
        monkeypatch.setattr(launch, "_models", lambda: ["demo", model])
        app = on(opened(), "jobs")
        return app if model == "demo" else app.selectbox(key="launch_model").set_value(model).run()

    return opened_with


def captions(app: AppTest) -> str:
    return "\n".join(caption.value for caption in app.caption).replace("\\", "")


def test_the_demo_fits_and_the_form_says_in_what(form: Callable[[str], AppTest]) -> None:
    app = form("demo")
    assert not app.exception and not app.error
    assert "Estimate, if nothing of it is there yet: at most 1.2 GiB" in captions(app)
    [table] = [one.value for one in app.dataframe if "at a time" in one.value.columns]
    learning = table[table["stage"] == "learning the sparsity (GPrune)"].iloc[0]
    assert learning["at a time"] == "16" and learning["memory GiB"] < 2
    assert not app.button(key="launch_start").disabled


def test_what_cannot_fit_starts_only_where_it_is_wanted_nevertheless(
    form: Callable[[str], AppTest],
    tmp_path: Path,
    started: list[tuple[Study, tuple[str, ...]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "large"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(SHAPES["llama2-13b"]))
    monkeypatch.setattr("gprune.system.machine.memory", lambda: (24 * 2**30, 24 * 2**30))
    monkeypatch.setattr("gprune.app.pages.jobs.launch.input_problem", lambda _: "")
    app = form(str(folder))
    assert "more than the 24.0 GiB of this machine’s memory" in app.error[0].value.replace("\\", "")
    assert app.button(key="launch_start").disabled
    assert not any("--anyway" in code.value for code in app.code)
    app.checkbox(key="launch_anyway").check().run()
    assert any(code.value.endswith("run study.json --anyway") for code in app.code)
    app.button(key="launch_start").click().run()
    [(study, arguments)] = started
    assert study.model == str(folder) and arguments == ("--anyway",)


def test_a_model_that_is_not_here_has_no_estimate(form: Callable[[str], AppTest]) -> None:
    app = form("nobody/nothing")
    assert "not known before the model is on this machine" in captions(app)
    assert not app.button(key="launch_start").disabled


def test_a_shape_with_random_weights_is_foreseen_and_a_slip_is_told(form: Callable[[str], AppTest]) -> None:
    app = form("random:llama2-7b")
    assert not app.exception and "of memory" in captions(app)
    app = form("random:../../x")
    assert not app.exception and not app.button(key="launch_start").disabled
    app.button(key="launch_start").click().run()
    assert len(app.error) == 2
    assert all("no model with random weights" in error.value for error in app.error)
