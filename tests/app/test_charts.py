"""Every figure: its function, its traces, its axis titles, its colours, and what it costs to send."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from app_driver import opened
from scipy import stats
from synthetic_run import the_run, write_run

from gprune.analysis import comparison as compare
from gprune.analysis import drift as drift_analysis
from gprune.app import report
from gprune.app.figures import comparison, drift, load_figures, overview
from gprune.app.figures import drift as agreement
from gprune.app.figures import masks as decisions
from gprune.app.figures import rasa as reliability
from gprune.app.ui import chart_style as style
from gprune.app.ui import derived_cache, marks, story
from gprune.pipeline.runs.opened import Run
from gprune.records import ModelShape

KNOWN = load_figures()
CEILING = 300_000
ROWS = ("cost", "differences", "explained", "neuron_ranks", "perplexity", "text_overlap")


def _statistics(run):
    return derived_cache.preview(run, run.study.reliability)


def figure_of(name, run, **options):
    return KNOWN[name](run, **options).figure


def gathered(run):
    """Every figure of a run that can be drawn, each with its name."""
    entries = report.gather_entries(run, report.figure_names(run))
    return [(entry.name, entry.figure) for entry in entries if entry.figure is not None]


@pytest.mark.long
def test_payload_stays_small_at_the_size_of_llama2_7b(large_run):
    sizes = {name: len(rendered.to_json().encode()) for name, rendered in gathered(large_run)}
    # it measured no speed, no task, and no other split of its texts, chose nothing and trained nothing on
    missing = {"speed", "answers", "choice", "recovery", "recovery_learning", "scales"}
    assert set(report.figure_names(large_run)) - set(sizes) == missing
    assert {name: size for name, size in sizes.items() if size >= CEILING} == {}


def test_axes_are_titled_and_the_background_is_the_themes(small_run):
    untitled, webgl = set(), set()
    for name, rendered in gathered(small_run):
        layout = rendered.layout
        assert layout.paper_bgcolor == layout.plot_bgcolor == "rgba(0,0,0,0)", name
        assert "NaN" not in json.dumps(json.loads(rendered.to_json())), name
        assert layout.uirevision == "fixed" or name in ("text_noise", "text_overlap")
        if KNOWN[name].clicked:
            marked = [trace for trace in rendered.data if trace.type in ("scatter", "scattergl", "bar")]
            # a click fades no other mark
            assert all(trace.unselected.marker.opacity in (1.0, trace.marker.opacity) for trace in marked), name
        untitled |= {f"{name} {axis}" for axis in "xy" if not layout[f"{axis}axis"].title.text}
        webgl |= {name for trace in rendered.data if trace.type.endswith("gl")}
    # rows that name themselves have no title, nor have the two ends of a slope
    rows = {f"{name} y" for name in ROWS}
    assert (untitled, webgl) == (rows | {"movers x"}, {"neuron_map"})


def test_colours_and_lines_of_methods_floors_and_controls(small_run):
    figure = figure_of("drift", small_run, form="histogram")
    cross, halves, *floors = figure.data
    assert cross.type == "bar" and cross.marker.color == style.PAIR and cross.opacity >= 0.8
    assert halves.line.dash == "dash" and [floor.line.color for floor in floors] == [style.GREY] * 2
    np.testing.assert_allclose(np.sum(cross.y), 100)
    compared = small_run.agreement()
    figure = agreement.plot_agreement(compared, compared.comparisons, small_run.study)
    controls = [trace for trace in figure.data if trace.name.startswith("control")]
    assert len(controls) == 2 and {trace.line.color for trace in controls} == {style.BLUE}
    assert all("open" in trace.marker.symbol for trace in controls)
    assert all("±" in trace.name for trace in figure.data)
    bars = {trace.name: trace.marker.color for trace in figure_of("retention", small_run).data}
    lines = {trace.name: trace.line.color for trace in figure_of("layers_kept", small_run).data}
    assert bars["GPrune"] == lines["GPrune"] == style.METHOD_COLORS["gprune"]
    assert bars["FLAP"] == lines["FLAP"] == style.METHOD_COLORS["flap"]
    figure = figure_of("perplexity", small_run)
    assert figure.layout.xaxis.type == "log" and len(figure.layout.shapes) == 1
    assert all(trace.error_x.array[0] > 0 for trace in figure.data)


def test_the_drift_axis_ends_where_its_curve_ends_and_wide_layers_become_cells():
    shares = np.array([60.0, 40, 0, 0, 0, 0, 0, 0, 0, 0])
    curves = [drift_analysis.Distribution(name, shares, 0.1, 0.5) for name in ("A | B", "half A | half B")]
    assert drift.plot_histogram(curves, False).layout.xaxis.range == (0, pytest.approx(0.3))
    random = np.random.default_rng(0)
    wide, narrow = random.random(drift.MOST_POINTS + 1), random.random(drift.MOST_POINTS)
    assert drift.plot_joint(wide, wide, 0).data[0].type == "heatmap"
    points = drift.plot_joint(narrow, narrow, 0, texts=("python-reference", "science-docs"))
    assert points.data[0].type == "scatter" and points.data[0].marker.opacity >= 0.8 and not style.is_wide(points)


def test_module_groups_and_methods_stand_where_they_are_counted_and_wait_for_a_click(small_run):
    statistics, adapted = _statistics(small_run)
    names = {"A": "wiki", "B": "code"}
    figure = reliability.scatter(statistics, adapted, names, False)
    assert figure.layout.yaxis.title.text == "mean score on wiki" and "on wiki, " in figure.data[0].hovertemplate
    assert sum(len(trace.x) for trace in figure.data) == len(statistics.drift)
    assert [trace.marker.symbol for trace in figure.data] == ["circle", "square", "diamond"]
    corner, drift_line, score_line = figure.layout.shapes
    assert (corner.x0, corner.y1) == (adapted.drift_threshold, adapted.score_threshold)
    assert drift_line.x0 == adapted.drift_threshold and score_line.y0 == adapted.score_threshold
    note = reliability.scatter(statistics, adapted, names, True).layout.annotations[1]
    assert note.y == pytest.approx(np.log10(adapted.score_threshold))
    masks = small_run.masks()
    assert all(trace.visible is True for trace in decisions.plot_by_layer(masks, "neurons").data)
    item = next(iter(masks.values()))
    forms = "flap_uniform flap_pooled msl_layers wanda_sp_pooled fang_pooled llm_pruner fang".split()
    many = decisions.plot_by_layer({**masks, **dict.fromkeys(forms, item)}, "neurons")
    visible = {trace.name for trace in many.data if trace.visible is True}
    assert visible == {style.label(method) for method in ("gprune", "flap", "wanda_sp", "llm_pruner", "fang")}
    assert {trace.visible for trace in many.data} == {True, "legendonly"}


@pytest.mark.parametrize(
    ("shape", "modules"),
    [(ModelShape(1, 13, 4, 1, 2, 8), 1), (ModelShape(80, 24, 4, 4, 2, 8), 3), (ModelShape(2, 1, 2, 2, 4, 8), 1)],
    ids=["one layer, one module", "eighty layers", "one neuron a layer"],
)
def test_extreme_shapes_are_drawn(shape, modules, tmp_path_factory):
    root = tmp_path_factory.mktemp("shape")
    write_run(root, shape, modules=modules)
    run = the_run(root)
    assert all(len(rendered.data) > 0 for _, rendered in gathered(run))


def test_layer_ticks_stay_few_and_more_methods_than_fit_leave_gprune_in():
    for layers in (1, 6, 16, 17, 32, 80, 126):
        figure = go.Figure()
        style.layer_axis(figure, layers)
        assert layers / figure.layout.xaxis.dtick <= style.MOST_LAYER_TICKS
    results = [compare.Cost(f"m{number}", 10.0 + number, 1.5, 1.4, 1.6, True) for number in range(12)]
    results.append(compare.Cost("gprune", 30.0, float("inf"), float("inf"), float("inf"), False))
    figure = overview.plot_costs(results)
    texts = [note.text for note in figure.layout.annotations]
    assert len(texts) == overview.MOST_ROWS and texts[-1] == "GPrune: <b>not finite</b>"
    assert len(figure.data) == overview.MOST_ROWS - 1


@pytest.mark.parametrize(("selection", "shapes", "notes"), [("drift_and_score", 3, 2), ("drift", 2, 1), ("none", 0, 0)])
def test_the_scatter_shows_the_rule_that_is_chosen(small_run, selection, shapes, notes):
    figure = reliability.scatter(*_statistics(small_run), {"A": "", "B": ""}, False, selection)
    assert (len(figure.layout.shapes), len(figure.layout.annotations)) == (shapes, notes)
    if selection == "drift":
        assert figure.layout.shapes[0].y1 == figure.layout.yaxis.range[1]


@pytest.mark.parametrize(
    ("lowest", "highest", "names"),
    [
        (0.8, 60, ["1", "2", "5", "10", "20", "50"]),
        (2.2, 2.8, ["2.2", "2.4", "2.6", "2.8"]),
        (1e-9, 1e9, ["1e-9", "1e-6", "0.001", "1", "1,000", "1e6", "1e9"]),
    ],
)
def test_log_ticks_are_plain_numbers(lowest, highest, names):
    axis = style.log_ticks(lowest, highest)
    assert list(axis["ticktext"]) == names
    assert all(lowest <= value <= highest * 1.0001 for value in axis["tickvals"])


def test_slopes_and_costs_have_hues_and_errors_of_their_own(small_run):
    result = story.find_movers(small_run, 1, None)
    figure = marks.plot_slopes(result, 280, int(result.neurons[0]))
    lines = {trace.line.color: trace for trace in figure.data}
    for color, up in ((style.TEXT_A, False), (style.TEXT_B, True)):
        ends = np.array(lines[color].y, dtype=float).reshape(-1, 3)
        assert ((ends[:, 1] > ends[:, 0]) == up).all() and np.isnan(ends[:, 2]).all()
        marked = np.array(lines[color].customdata)
        assert set(marked[:, 0]) == {1} and set(marked[:, 2]) <= set(result.neurons)
    assert sum(len(lines[color].y) for color in (style.TEXT_A, style.TEXT_B)) == 3 * len(result.neurons)
    assert lines[marks.RING].y == (pytest.approx(result.first[0]), pytest.approx(result.second[0]))
    text, lines = story.headline_results(small_run)
    figure, cells = overview.plot_costs(compare.costs(lines, text)), [line.cell(text) for line in lines]
    dense = next(cell for cell in cells if cell.method == "dense")
    figures = {trace.name: trace for trace in figure.data}
    assert len(figures) == len(cells) - 1
    for cell in cells:
        if cell.method == "dense":
            continue
        trace, each = figures[style.label(cell.method)], cell.losses - dense.losses
        assert trace.x[0] == pytest.approx(cell.perplexity / dense.perplexity)
        half = stats.t.ppf(0.975, len(each) - 1) * each.std(ddof=1) / np.sqrt(len(each))
        assert trace.x[0] + trace.error_x.array[0] == pytest.approx(np.exp(each.mean() + half))
        assert trace.x[0] - trace.error_x.arrayminus[0] == pytest.approx(np.exp(each.mean() - half))
        assert trace.marker.color == style.METHOD_COLORS[cell.method]


def test_changes_are_drawn_with_their_paired_interval_in_the_order_of_perplexity(small_run):
    compared = comparison.comparison_of(small_run)
    text = compared.texts[0]
    figure = comparison.plot_changes(compared, text)
    lines = [line for line in compared.sorted_on(text) if line is not compared.baseline]
    labels = [style.control_label(line.method).replace(", ", ",<br>") for line in lines]
    assert [trace.y[0] for trace in figure.data] == labels
    for line, trace in zip(lines, figure.data, strict=True):
        gap = compare.change(line, compared.baseline, text)
        low, high = trace.x[0] - trace.error_x.arrayminus[0], trace.x[0] + trace.error_x.array[0]
        assert trace.x[0] == pytest.approx(100 * gap.change)
        assert (low, high) == pytest.approx(tuple(100 * end for end in gap.interval))
        assert gap.verdict in trace.hovertemplate
        assert trace.marker.color == style.METHOD_COLORS.get(line.method, style.GREY)
    # without another method on the same windows there is nothing to draw
    alone = comparison.comparison_of(small_run, methods=("flap",))
    assert comparison.plot_changes(alone, text) is None


def test_overlaps_that_are_nearly_equal_are_no_trend(small_run, monkeypatch):
    bins = decisions.bin_decisions(small_run, "flap", 2)
    for last, words in ((0.602, "is about 0.60 in both the most"), (0.65, "goes from 0.59 in the most")):
        monkeypatch.setattr(decisions, "bin_decisions", lambda *_, x=last: replace(bins, jaccard=np.array([0.59, x])))
        assert decisions.overlap(small_run, base="flap").title.startswith(f"Overlap with FLAP {words}")


def test_every_figure_is_declared_by_the_module_of_its_place() -> None:
    assert len(KNOWN) == 41 and set(report.figure_names()) == set(KNOWN)
    for name, item in KNOWN.items():
        assert item.make.__module__.startswith("gprune.app.figures.")
        assert item.name == name and item.heading and item.about and report.page_of_figure(name)


def test_the_cards_of_the_overview_look_at_each_perplexity_once(monkeypatch: Any, cache: Path) -> None:
    write_run(cache)
    app, looked = opened(), list[tuple[str, str]]()
    full = derived_cache.measurement

    def noting_measurement(run: Run, name: str, text: str, *rest: Any) -> Any:
        looked.append((name, text))
        return full(run, name, text, *rest)

    monkeypatch.setattr(derived_cache, "measurement", noting_measurement)
    app.run()
    assert sorted(looked) == sorted(derived_cache.measured_pairs(the_run(cache)))
    app.run()
    assert len(looked) == 2 * len(set(looked)), "the next drawing looks again"
