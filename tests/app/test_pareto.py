"""The Pareto chart: which models are on the front, and the cheapest within a limit."""

import numpy as np
import pytest
from app_driver import charts, open_page, show
from synthetic_run import a_study, names, the_run, write_run
from test_speed_page import a_timed_study

from gprune.analysis import decision
from gprune.app.figures import comparison as pareto
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import MissingResultError, all_runs
from gprune.study.settings import EvaluationSettings


def marks(figure):
    """Every model of a figure: its name, cost and perplexity over the dense one's."""
    return {
        name: (x, y)
        for trace in figure.data
        if trace.customdata is not None
        for (name, x), y in zip(trace.customdata, trace.y, strict=True)
    }


def test_models_stand_by_what_they_lose_and_cost(cache):
    write_run(cache, study=a_timed_study())
    run = the_run(cache)
    text = pareto.similar_comparison(run).texts[0]
    created = pareto.trade_off(run)
    losses = {name: run.load(stages.perplexity, name, text).losses for name in run.study.methods}
    table = created.table().set_index("model")
    for method, called in (("gprune", "GPrune"), ("flap", "FLAP")):
        ratio = np.exp((losses[method] - losses["dense"]).mean())
        assert marks(created.figure)[called][1] == pytest.approx(ratio)
        assert table.loc[called, "perplexity, times dense"] == pytest.approx(ratio)
    assert (created.code.name, created.code.options) == ("trade_off", {})
    timed = marks(pareto.trade_off(run, cost="time").figure)
    assert timed["GPrune"][0] == pytest.approx(1 / 1.5) and timed["FLAP"][0] == pytest.approx(1 / 1.2)
    assert "No model stays within 1× the dense perplexity" in pareto.trade_off(run, most=1.0).caption
    # a name stands on the side of its mark where the line of the limit is not
    for maximum, side in ((ratio * 1.01, "bottom right"), (ratio * 2, "top right"), (ratio / 1.01, "top right")):
        figure = pareto.trade_off(run, most=maximum).figure
        line = figure.layout.annotations[0]
        assert (line.text, line.y) == (f"limit {maximum:g}×", pytest.approx(np.log10(maximum)))
        assert next(trace for trace in figure.data if trace.name == "FLAP").textposition[0] == side
    cheapest = table[table["perplexity, times dense"] <= 1e3]["parameters, times dense"].idxmin()
    assert f"**{cheapest}** is the cheapest within 1e+03× the dense" in pareto.trade_off(run, most=1e3).caption


def test_every_run_of_the_dense_model_that_has_a_perplexity_is_there(cache):
    first = write_run(cache, study=a_study(retention=0.3))
    other = write_run(cache, study=a_study(retention=0.7))
    early = write_run(cache, stages="drift", study=a_study(seed=9))
    runs = {run.name: run for run in all_runs(str(cache))[0]}
    assert early in runs
    assert {run.name for run in pareto.similar_runs(runs[first], runs.values())} == {first, other}
    names = marks(pareto.trade_off(runs[first]).figure)
    assert {name.partition(" · ")[2] for name in names if name.startswith("GPrune")} == {"keep 30%", "keep 70%"}


def test_runs_that_differ_in_no_named_setting_are_numbered(cache):
    few = EvaluationSettings(texts=("python-reference", "science-docs"), windows=48)
    runs = (write_run(cache), write_run(cache, study=a_study(evaluation=few)))
    names = pareto.comparison_of(the_run(cache), runs=runs).names
    assert [names[run, "gprune"] for run in runs] == ["GPrune (run 1)", "GPrune (run 2)"]


def test_no_model_is_called_pareto_optimal_before_every_method_is_measured(cache):
    full = write_run(cache, study=a_study(retention=0.3))
    rest = [stage for stage in names() if stage != "perplexity.wanda_sp.0"]
    half = write_run(cache, stages=rest, state="running")
    runs = {run.name: run for run in all_runs(str(cache))[0]}
    with pytest.raises(MissingResultError, match="the perplexity of Wanda-sp on python-reference"):
        pareto.trade_off(runs[half])
    assert pareto.trade_off(runs[half], text="science-docs").title.endswith("Pareto-optimal on science\\-docs")
    # another run is not held up by it
    assert pareto.similar_runs(runs[full], runs.values()) == [runs[full]]
    assert "Pareto-optimal" in pareto.trade_off(runs[full]).title


def test_the_cost_of_the_chart_is_switched(cache):
    app = show("compare", cache, study=a_timed_study())
    for cost in (decision.PARAMETERS, decision.TIME):
        app.segmented_control(key="dc_cost_segmented").set_value(cost).run()
        titles = [chart["layout"]["xaxis"].get("title", {}).get("text", "") for chart in charts(app)]
        assert any(decision.COSTS[cost] in title for title in titles)
    assert app.query_params["dc_cost"] in ("time", ["time"])


def test_what_was_not_timed_has_no_time(cache):
    write_run(cache)
    with pytest.raises(MissingResultError, match="cost is known"):
        pareto.trade_off(the_run(cache), cost="time")


def test_runs_of_equal_widths_are_options_and_the_cheapest_within_the_limit_leads_to_its_export(cache):
    free = write_run(cache, study=a_study())
    equal = {"sparsity.widths": "equal", "sparsity.alignment": 2}
    targets = {"equal widths": write_run(cache, study=a_study().with_settings(equal))}
    targets["keep 30"] = write_run(cache, study=a_study(retention=0.3).with_settings(equal))
    run = the_run(cache, free)
    table = pareto.trade_off(run).table()
    assert set(table["widths"]) == {"free", "equal"}
    assert any("equal widths" in name for name in table["model"])
    app = open_page("compare", run=free, dc_most="20")
    (link,) = (link.proto for link in app.get("page_link") if link.proto.label.startswith("Export "))
    target = next((name for words, name in reversed(targets.items()) if words in link.label), free)
    assert "tab=export" in link.query_string and f"run={target}" in link.query_string


def test_marks_that_would_hide_each_other_are_moved_apart(cache):
    write_run(cache, study=a_study(methods=("dense", "flap", "flap_no_bias", "gprune")))
    figure = pareto.trade_off(the_run(cache)).figure
    drawn = [trace for trace in figure.data if trace.customdata is not None]
    figures = [(trace.x[0], np.log(trace.y[0]), trace.error_y.array[0] / trace.y[0]) for trace in drawn]
    width, height = pareto._MARK_SIZE * np.array([1 - min(x for x, *_ in figures), max(y for _, y, _ in figures)])
    for index, (x, y, reach) in enumerate(figures):
        assert all(abs(x - u) > 0.98 * width or abs(y - v) > 0.9 * (height + reach + w) for u, v, w in figures[:index])
    # the axis holds the whiskers, and no name of the legend is written beside another mark
    assert figure.layout.yaxis.range[1] > max(np.log10(trace.y[0] + trace.error_y.array[0]) for trace in drawn)
    assert not any(trace.text[0] for trace in drawn)
