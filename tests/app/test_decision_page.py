"""The page for who must choose: what is on the front, the cheapest within a limit, texts to compare."""

from dataclasses import replace

import numpy as np
import pytest
from app_driver import open_page, words
from synthetic_run import a_study, names, the_run, write_run
from test_speed_page import a_timed_study

from gprune.analysis.decision import prices
from gprune.app.pages.decision import page, panels
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import MissingResultError, all_runs


def marks(figure):
    """Every model of a figure: its name, cost and perplexity over the dense one's."""
    return {
        name: (x, y)
        for trace in figure.data
        if trace.customdata is not None
        for name, x, y in zip(trace.customdata, trace.x, trace.y, strict=True)
    }


def test_models_stand_by_what_they_lose_and_cost(cache):
    write_run(cache, study=a_timed_study())
    run = the_run(cache)
    text = panels.of_runs(run, ()).texts[0]
    made = panels.trade_off(run)
    losses = {name: run.load(stages.perplexity, name, text).losses for name in run.study.methods}
    table = made.table().set_index("model")
    for method, called in (("gprune", "GPrune"), ("flap", "FLAP")):
        ratio = np.exp((losses[method] - losses["dense"]).mean())
        assert marks(made.figure)[called][1] == pytest.approx(ratio)
        assert table.loc[called, "perplexity, times dense"] == pytest.approx(ratio)
    assert (made.code.name, made.code.options) == ("trade_off", {})
    timed = marks(panels.trade_off(run, cost="time").figure)
    assert timed["GPrune"][0] == pytest.approx(1 / 1.5) and timed["FLAP"][0] == pytest.approx(1 / 1.2)
    assert "None stays within 1 times the dense perplexity" in panels.trade_off(run, most=1.0).caption
    # a name stands on the side of its mark where the line of the limit is not
    for most, side in (
        (ratio * 1.01, "bottom right"),
        (ratio * 2, "top right"),
        (ratio / 1.01, "top right"),
    ):
        figure = panels.trade_off(run, most=most).figure
        line = figure.layout.annotations[0]
        assert (line.text, line.y) == (f"at most {most:g} times", pytest.approx(np.log10(most)))
        assert next(trace for trace in figure.data if trace.name == "FLAP").textposition[0] == side
    cheapest = table[table["perplexity, times dense"] <= 1e3]["parameters, times dense"].idxmin()
    assert f"Within 1e+03 times the dense perplexity the cheapest is **{cheapest}**" in (
        panels.trade_off(run, most=1e3).caption
    )


def test_every_run_of_the_dense_model_that_has_a_perplexity_is_there(cache):
    first = write_run(cache, study=a_study(retention=0.3))
    other = write_run(cache, study=a_study(retention=0.7))
    early = write_run(cache, stages="drift", study=a_study(seed=9))
    runs = {run.name: run for run in all_runs(str(cache))[0]}
    assert early in runs
    assert {run.name for run in panels.alike(runs[first], runs.values())} == {first, other}
    names = marks(panels.trade_off(runs[first]).figure)
    assert {name.partition(" · ")[2] for name in names if name.startswith("GPrune")} == {
        "keep 30 %",
        "keep 70 %",
    }


def test_no_model_is_called_worth_taking_before_every_method_is_measured(cache):
    whole = write_run(cache, study=a_study(retention=0.3))
    rest = [stage for stage in names() if stage != "perplexity.wanda_sp.0"]
    half = write_run(cache, stages=rest, state="running")
    runs = {run.name: run for run in all_runs(str(cache))[0]}
    with pytest.raises(MissingResultError, match="the perplexity of Wanda-sp on python-reference"):
        panels.trade_off(runs[half])
    assert panels.trade_off(runs[half], text="science-docs").title.endswith("worth taking on science\\-docs")
    # another run is not held up by it
    assert panels.alike(runs[whole], runs.values()) == [runs[whole]]
    assert "worth taking" in panels.trade_off(runs[whole]).title


def test_what_was_not_timed_has_no_time(cache):
    write_run(cache)
    with pytest.raises(MissingResultError, match="cost is known"):
        panels.trade_off(the_run(cache), cost="time")


def test_equal_widths_stand_beside_the_same_with_free_ones(cache):
    free = write_run(cache, study=a_study())
    blocks = {"sparsity.widths": "equal", "sparsity.alignment": 2}
    equal = write_run(cache, study=a_study().with_settings(blocks))
    # of another retention: no pair
    smaller = write_run(cache, study=a_study(retention=0.3).with_settings(blocks))
    run = next(one for one in all_runs(str(cache))[0] if one.name == free)
    shown = panels.of_runs(run, ())
    text, studies = shown.texts[0], {run.name: run.study for run in shown.runs}
    found = {one.free.method: one for one in prices(shown.lines, studies, text)}
    assert set(found) == {name for name in a_study().methods if name != "dense"}
    one = found["gprune"]
    losses = [line.rows[0].cells[text].losses for line in (one.equal, one.free)]
    assert one.difference.nats == pytest.approx((losses[0] - losses[1]).mean())
    app = open_page("decision", run=free)
    assert f"of {len(found)} methods on" in words(app)
    assert not [button for button in app.button if button.key == "dc_widths_start"]
    (way,) = (link.proto for link in app.get("page_link") if link.proto.label.startswith("Export "))
    target = smaller if "keep 30" in way.label else equal if "equal widths" in way.label else free
    assert "tab=export" in way.query_string and f"run={target}" in way.query_string
    table = panels.trade_off(run).table()
    assert set(table["widths"]) == {"free", "equal"}
    assert any("equal widths" in name for name in table["model"])


def test_methods_that_cannot_have_equal_widths_are_left_out():
    study = a_study(methods=("dense", "flap", "llm_pruner"))
    assert page.equalled(study).methods == ("dense", "flap")
    assert page.equalled(replace(study, methods=("dense", "llm_pruner"))) is None
    assert page.equalled(page.equalled(study)) is None
