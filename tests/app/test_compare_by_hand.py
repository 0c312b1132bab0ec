"""Mask sets made by hand in the page Compare: offered, started, and shown beside their method."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from app_driver import linked, words
from synthetic_run import write_run

from gprune.analysis.mask_edits import Edit, mask_sets
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run, all_runs


@pytest.fixture
def run(cache: Path) -> Run:
    write_run(cache)
    found = all_runs(str(cache))[0][0]
    edits = (Edit(False, "module", 1, 3),)
    mask_sets.save(found.results, mask_sets.made(found.results, "<b>mine</b>", "flap", edits))
    return found


def table(app: Any) -> Any:
    return next(one.value for one in app.dataframe if "nats to its method" in one.value)


def test_a_set_that_is_not_measured_is_offered_as_a_job(run: Run, started: list[Any]) -> None:
    app = linked("comparison")
    assert "not measured on every text of its run yet" in words(app) and not app.exception
    (chosen,) = mask_sets.kept(run.results)[0]
    app.button(key=f"cp_hand_{chosen.identity}").click().run()
    ((_, arguments),) = started
    identity = ("--identity", chosen.identity)
    assert arguments == ("measure", run.name, "<b>mine</b>", *identity, "--cache", run.root)
    assert any("gprune measure" in block.value for block in app.code)


def test_a_measured_set_stands_beside_its_method_and_the_pinned_line(run: Run) -> None:
    (chosen,) = mask_sets.kept(run.results)[0]
    for text, stage in mask_sets.perplexities(run.results, chosen).items():
        own = run.load(stages.perplexity, "flap", text)
        losses = own.losses - 0.05
        run.results.store.put(stage.kind, stage.key, replace(own, losses=losses), {})
    app = linked("comparison", cp_pinned=f"gprune@{run.name}")
    shown = table(app)
    texts = run.study.evaluation.texts
    assert sorted(shown["text"]) == sorted(texts) and set(shown["starts from"]) == {"FLAP"}
    assert shown["nats to its method"].to_numpy() == pytest.approx(-0.05)
    assert set(shown["verdict"]) == {"better"}
    text = texts[0]
    own, other = (run.load(stages.perplexity, name, text) for name in ("flap", "gprune"))
    row = shown[shown["text"] == text].iloc[0]
    assert row["nats to the pinned"] == pytest.approx((own.losses - 0.05 - other.losses).mean())
    assert 0 < row["kept"] < 1
    assert f"{len(texts)} figures better, 0 worse" in words(app)
    assert "not measured on every text" not in words(app)


def test_without_a_set_the_card_is_not_there(cache: Path) -> None:
    write_run(cache)
    assert "made by hand" not in words(linked("comparison"))
