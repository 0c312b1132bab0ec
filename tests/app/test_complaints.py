"""What the launch form says of wrong fields: all of them at once, each at its field."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from app_driver import on, opened, words
from synthetic_run import a_study, write_run

from gprune.app.pages.jobs import complaints
from gprune.study import from_dict
from gprune.study.demo import demo_study
from gprune.system.errors import SettingsError

OTHER = complaints.OTHER


def found(values: dict[str, Any], changes: dict[str, Any] | None = None) -> dict[str, str]:
    """What is wrong with the demo where some of its fields are others."""
    return complaints.every(
        asdict(demo_study()) | values,
        changes or {},
        lambda own, more: from_dict(own).with_settings(more),
        demo_study(),
    )


def test_every_wrong_field_is_named_in_one_go() -> None:
    wrong = {"retention": 1.5, "seed": -1, "methods": ("gprune", "none such"), "calibration": {"samples": 0}}
    told = found(wrong, {"reliability.drift_quantile": 2.0})
    assert set(told) == {"retention", "seed", "methods", "calibration.samples", "reliability.drift_quantile"}
    assert all(sentence.startswith(field) for field, sentence in told.items())
    assert "(got 1.5)" in told["retention"] and "(got -1)" in told["seed"]
    assert found({}) == {}


def test_what_is_wrong_with_no_single_field_is_told_and_ends_the_search() -> None:
    def check(*_: dict[str, Any]) -> None:
        raise SettingsError("the moon is full")

    assert complaints.every({"seed": 0}, {}, check, demo_study()) == {OTHER: "the moon is full"}


def test_a_field_that_stays_wrong_is_told_once() -> None:
    same = demo_study().primary
    # text A is put right to what text B is
    assert list(found({"primary": "ptb", "auxiliary": "ptb", "substitute": ""})) == ["primary"]
    assert list(found({"auxiliary": same})) == ["primary"]


@pytest.mark.parametrize("text", ['"}</style><script>x</script>', "a\\b", "ü – 5 %\n{x}: 'y'", "\\22 "])
def test_text_in_a_style_ends_neither_string_nor_style(text: str) -> None:
    made = complaints.quoted(text)
    inner = made[1:-1]
    assert made[0] == made[-1] == '"' and not re.search(r"[\"'<>{}\n]", inner)
    read = re.sub(r"\\([0-9a-f]{6}) ", lambda code: chr(int(code[1], 16)), inner)
    assert read == text


def test_the_form_names_the_wrong_fields_above_and_below(cache: Path) -> None:
    app = on(opened(), "jobs")
    app.number_input(key="launch_retention").set_value(1.5).run()
    app.number_input(key="launch_seed").set_value(-2).run()
    app.number_input(key="launch_demo_reliability.drift_quantile").set_value(7.0).run()
    (error,) = app.error
    assert [error.value.count(word) for word in ("retention", "seed", "drift\\_quantile")] == [1, 1, 1]
    below = next(caption.value for caption in app.caption if "Not ready" in caption.value)
    assert all(
        name in below.replace("\\", "") for name in ("Retention", "Seed", "Drift quantile (More settings)")
    )
    marked = "".join(item.proto.body for item in app.get("html"))
    for key in ("launch_retention", "launch_seed", "launch_demo_reliability-drift_quantile"):
        assert f".st-key-{key}::after {{content: " in marked
    assert "launch_start" not in [button.key for button in app.button]
    app.number_input(key="launch_seed").set_value(2).run()
    assert "Seed" not in next(caption.value for caption in app.caption if "Not ready" in caption.value)


def test_a_model_that_is_gone_is_refused_at_its_field_and_no_job_is_made(
    cache: Path, started: list[Any]
) -> None:
    write_run(cache, study=a_study(model="/nowhere/at/all"))
    app = on(opened(), "jobs")
    app.selectbox(key="launch_model").set_value("/nowhere/at/all").run()
    app.button(key="launch_start").click().run()
    assert "there is no model folder" in words(app)
    marked = "".join(item.proto.body for item in app.get("html"))
    assert ".st-key-launch_model::after" in marked and "launch_primary" not in marked
    # the other ways to a job refuse it as well
    on(app, "speed_export").button(key="sx_measure").click().run()
    assert "there is no model folder" in words(app) and not started
