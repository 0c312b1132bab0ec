"""Every figure: its traces, its axis titles, its colours, and what it costs to send."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import plotly.graph_objects as go
import pytest
from synthetic_run import MAKERS, names

from gprune import records
from gprune.analysis import comparison as compare
from gprune.analysis import cost, kept_units, thresholds
from gprune.analysis import drift as drift_analysis
from gprune.app.pages.comparison import charts as comparison
from gprune.app.pages.help import panels
from gprune.app.pages.jobs import panels as learning
from gprune.app.pages.module_agreement import charts as agreement
from gprune.app.pages.overview import charts as overview
from gprune.app.pages.pruning_decisions import charts as decisions
from gprune.app.pages.rank_drift import charts as drift
from gprune.app.pages.rasa import charts as reliability
from gprune.app.ui import chart_style as style
from gprune.app.ui import derived_cache, marks, slope, story
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.records import ModelShape

CEILING = 300_000


def _statistics(run: Run) -> tuple[records.ModuleStatistics, records.AdaptedScores]:
    return derived_cache.preview(run, run.study.reliability)


def _decision_bins(run: Run) -> decisions.Bins:
    keys = [run.key(declare) for declare in (stages.drift, stages.partition, stages.masks)]
    keys.append(run.key(stages.masks, "flap"))
    return derived_cache.decision_bins(run.root, *keys, 5)


FIGURES: dict[str, Callable[[Run], go.Figure]] = {
    "drift histogram": lambda run: drift.histogram(
        derived_cache.drift_curves(run.root, run.key(stages.drift), 100), False
    ),
    "drift histogram, log": lambda run: drift.histogram(
        derived_cache.drift_curves(run.root, run.key(stages.drift), 20), True
    ),
    "drift by layer": lambda run: drift.layers(
        derived_cache.drift_by_layer(run.root, run.key(stages.drift), 40)
    ),
    "correlations": lambda run: drift.correlations(
        derived_cache.drift_layers(run.root, run.key(stages.drift))
    ),
    "joint ranks": lambda run: drift.joint(
        run.load(stages.scores, "primary").ffn[0],
        run.load(stages.scores, "auxiliary").ffn[0],
        0,
    ),
    "ARI": lambda run: agreement.lines(run.agreement(), "ari"),
    "overlap": lambda run: agreement.lines(run.agreement(), "overlap"),
    "module counts": lambda run: agreement.counts(run.load(stages.partition)),
    "modules, log": lambda run: reliability.scatter(*_statistics(run), True),
    "modules, linear": lambda run: reliability.scatter(*_statistics(run), False),
    "adapted by layer": lambda run: reliability.by_layer(
        thresholds.by_layer(*_statistics(run), len(run.load(stages.partition).counts))
    ),
    "retention": lambda run: decisions.retention(_decision_bins(run), "flap"),
    "jaccard": lambda run: decisions.jaccard(_decision_bins(run), "flap"),
    "shares": lambda run: decisions.shares(_decision_bins(run), "flap"),
    "neurons by layer": lambda run: decisions.by_layer(run.masks(), "neurons"),
    "heads by layer": lambda run: decisions.by_layer(run.masks(), "heads"),
    "strip": lambda run: overview.strip(derived_cache.layer_strip(run)),
    "movers": lambda run: slope.slopes(story.movers_of(run, None, None), 280, 0),
    "survival, small": lambda run: overview.survival(
        derived_cache.drift_curves(run.root, run.key(stages.drift), 200)
    ),
    "costs": lambda run: overview.costs(cost.costs(story.on_unseen(run)[1])),
    "kept by both": lambda run: panels._bar(100, 20, 30, "flap"),
    "losses": lambda run: learning.losses(run.load(stages.learning).history, {"ce_primary": "on A"}),
    "learned retention": lambda run: learning.retention(run.load(stages.learning).history, "retention", 0.5),
    "perplexity": lambda run: _perplexity(run),
    "changes": lambda run: _changes(run),
    "kept units": lambda run: _kept(run),
}


def _perplexity(run: Run) -> go.Figure:
    lines = compare.lines(compare.rows(derived_cache.measurements(run)))
    return comparison.dots(lines, run.study.evaluation.texts[0], {line.name: line.method for line in lines})


def _changes(run: Run) -> go.Figure:
    lines = compare.lines(compare.rows(derived_cache.measurements(run)))
    texts, names = list(run.study.evaluation.texts), {line.name: line.method for line in lines}
    figure = comparison.changes(lines, lines[0], texts, names)
    assert figure is not None
    return figure


def _kept(run: Run) -> go.Figure:
    first, second = run.masks()["flap"], run.masks()["gprune"]
    found = kept_units.overlap(first, second, "neurons")
    return comparison.kept(found, ("flap", "gprune"), ("FLAP", "GPrune"), "neurons")


@pytest.mark.parametrize("name", FIGURES)
def test_payload_stays_small_at_the_size_of_llama2_7b(name: str, large_run: Run) -> None:
    assert style.payload(FIGURES[name](large_run)) < CEILING


@pytest.mark.parametrize("name", FIGURES)
def test_axes_are_titled_and_the_background_is_the_themes(name: str, small_run: Run) -> None:
    figure = FIGURES[name](small_run)
    # the two ends of a slope chart are named by their ticks
    assert figure.layout.xaxis.title.text or figure.layout.xaxis.ticktext == ("on text A", "on text B")
    assert figure.layout.yaxis.title.text or name in (
        "strip",
        "perplexity",
        "changes",
        "costs",
        "kept by both",
    )
    assert figure.layout.paper_bgcolor == figure.layout.plot_bgcolor == "rgba(0,0,0,0)"
    assert figure.layout.uirevision == "fixed"
    assert not any(trace.type.endswith("gl") for trace in figure.data)
    assert "NaN" not in json.dumps(json.loads(figure.to_json()))


def test_the_drift_histogram_fills_the_cross_text_curve_and_greys_the_floors(small_run: Run) -> None:
    figure = FIGURES["drift histogram"](small_run)
    cross, halves, *floors = figure.data
    assert cross.type == "bar" and cross.marker.color == style.PAIR and "ρ" in cross.name
    assert halves.line.dash == "dash" and [floor.line.color for floor in floors] == [style.GREY] * 2
    np.testing.assert_allclose(np.sum(cross.y), 100)


def test_the_drift_axis_ends_where_the_last_curve_ends() -> None:
    shares = np.array([60.0, 40, 0, 0, 0, 0, 0, 0, 0, 0])
    curves = [drift_analysis.Distribution(name, shares, 0.1, 0.5) for name in ("A | B", "half A | half B")]
    assert drift.histogram(curves, False).layout.xaxis.range == (0, pytest.approx(0.3))


def test_wide_layers_become_cells_and_narrow_ones_points() -> None:
    random = np.random.default_rng(0)
    wide, narrow = random.random(drift.MOST_POINTS + 1), random.random(drift.MOST_POINTS)
    assert drift.joint(wide, wide, 0).data[0].type == "heatmap"
    assert drift.joint(narrow, narrow, 0).data[0].type == "scatter"


def test_controls_are_hollow_and_carry_their_mean(small_run: Run) -> None:
    figure = FIGURES["ARI"](small_run)
    controls = [trace for trace in figure.data if trace.name.startswith("control")]
    assert len(controls) == 2 and {trace.line.color for trace in controls} == {style.BLUE}
    assert all("open" in trace.marker.symbol for trace in controls)
    assert all("±" in trace.name for trace in figure.data)


def test_module_groups_and_threshold_lines(small_run: Run) -> None:
    statistics, adapted = _statistics(small_run)
    figure = reliability.scatter(statistics, adapted, False)
    assert sum(len(trace.x) for trace in figure.data) == len(statistics.drift)
    assert [trace.marker.symbol for trace in figure.data] == ["circle", "square", "diamond"]
    corner, drift_line, score_line = figure.layout.shapes
    assert (corner.x0, corner.y1) == (adapted.drift_threshold, adapted.score_threshold)
    assert drift_line.x0 == adapted.drift_threshold and score_line.y0 == adapted.score_threshold


def test_on_a_log_axis_the_note_is_placed_by_exponent(small_run: Run) -> None:
    statistics, adapted = _statistics(small_run)
    note = reliability.scatter(statistics, adapted, True).layout.annotations[1]
    assert note.y == pytest.approx(np.log10(adapted.score_threshold))


def test_methods_keep_their_colours_on_every_page(small_run: Run) -> None:
    bars = {trace.name: trace.marker.color for trace in FIGURES["retention"](small_run).data}
    lines = {trace.name: trace.line.color for trace in FIGURES["neurons by layer"](small_run).data}
    assert bars["GPrune"] == lines["GPrune"] == style.METHOD_COLORS["gprune"]
    assert bars["FLAP"] == lines["FLAP"] == style.METHOD_COLORS["flap"]


def test_of_many_methods_forms_and_controls_wait_for_a_click(small_run: Run) -> None:
    masks = small_run.masks()
    assert all(trace.visible is True for trace in decisions.by_layer(masks, "neurons").data)
    one = next(iter(masks.values()))
    forms = (
        "flap_uniform",
        "flap_pooled",
        "msl_layers",
        "wanda_sp_pooled",
        "fang_pooled",
        "llm_pruner",
        "fang",
    )
    many = decisions.by_layer({**masks, **dict.fromkeys(forms, one)}, "neurons")
    shown = {trace.name for trace in many.data if trace.visible is True}
    assert shown == {style.label(method) for method in ("gprune", "flap", "wanda_sp", "llm_pruner", "fang")}
    assert {trace.visible for trace in many.data} == {True, "legendonly"}


def test_perplexity_is_logarithmic_with_errors_and_a_dense_line(small_run: Run) -> None:
    figure = FIGURES["perplexity"](small_run)
    assert figure.layout.xaxis.type == "log" and len(figure.layout.shapes) == 1
    assert all(trace.error_x.array[0] > 0 for trace in figure.data)


@pytest.mark.parametrize(
    ("shape", "modules"),
    [
        (ModelShape(1, 13, 4, 1, 2, 8), 1),
        (ModelShape(80, 24, 4, 4, 2, 8), 3),
        (ModelShape(2, 1, 2, 2, 4, 8), 1),
    ],
    ids=["one layer, one module", "eighty layers", "one neuron a layer"],
)
def test_extreme_shapes_are_drawn(
    shape: ModelShape, modules: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    from synthetic_run import write_run

    from gprune.pipeline.runs.opened import all_runs

    root = tmp_path_factory.mktemp("shape")
    write_run(root, shape, modules=modules)
    run = all_runs(str(root))[0][0]
    for name, make in FIGURES.items():
        assert len(make(run).data) > 0, name


def test_layer_ticks_never_exceed_the_limit() -> None:
    for layers in (1, 6, 16, 17, 32, 80, 126):
        figure = go.Figure()
        style.layer_axis(figure, layers)
        assert layers / figure.layout.xaxis.dtick <= style.MOST_LAYER_TICKS


def test_the_synthetic_run_has_every_stage(small_run: Run) -> None:
    made = {name for name, kind in stages.KINDS.items() if not kind.on_demand}
    assert tuple(small_run.stages) == names() and set(MAKERS) == made
    assert all(small_run.there(stage) for stage in stages.every(small_run.graph))


@pytest.mark.parametrize(
    ("selection", "shapes", "notes"), [("drift_and_score", 3, 2), ("drift", 2, 1), ("none", 0, 0)]
)
def test_the_scatter_shows_the_rule_that_is_chosen(
    small_run: Run, selection: str, shapes: int, notes: int
) -> None:
    figure = reliability.scatter(*_statistics(small_run), False, selection)
    assert (len(figure.layout.shapes), len(figure.layout.annotations)) == (shapes, notes)
    if selection == "drift":
        assert figure.layout.shapes[0].y1 == figure.layout.yaxis.range[1]


@pytest.mark.parametrize(
    ("lowest", "highest", "names"),
    [
        (0.01, 30, ["0.01", "0.1", "1", "10"]),
        (0.8, 60, ["1", "2", "5", "10", "20", "50"]),
        (2.2, 2.8, ["2.2", "2.4", "2.6", "2.8"]),
        (1e-7, 1e-5, ["1e-7", "2e-7", "5e-7", "1e-6", "2e-6", "5e-6", "1e-5"]),
        (1e-9, 1e9, ["1e-9", "1e-6", "0.001", "1", "1,000", "1e6", "1e9"]),
    ],
)
def test_log_ticks_are_plain_numbers(lowest: float, highest: float, names: list[str]) -> None:
    axis = style.log_ticks(lowest, highest)
    assert list(axis["ticktext"]) == names
    assert all(lowest <= value <= highest * 1.0001 for value in axis["tickvals"])


def test_slopes_have_the_hue_of_the_text_that_ranks_a_neuron_higher(small_run: Run) -> None:
    found = story.movers_of(small_run, 1, None)
    figure = slope.slopes(found, 280, int(found.neurons[0]))
    lines = {trace.line.color: trace for trace in figure.data}
    for color, up in ((style.TEXT_A, False), (style.TEXT_B, True)):
        ends = np.array(lines[color].y, dtype=float).reshape(-1, 3)
        assert ((ends[:, 1] > ends[:, 0]) == up).all() and np.isnan(ends[:, 2]).all()
        marked = np.array(lines[color].customdata)
        assert set(marked[:, 0]) == {1} and set(marked[:, 2]) <= set(found.neurons)
    assert sum(len(lines[color].y) for color in (style.TEXT_A, style.TEXT_B)) == 3 * len(found.neurons)
    assert lines[marks.RING].y == (pytest.approx(found.first[0]), pytest.approx(found.second[0]))


def test_costs_stand_at_their_ratio_with_two_paired_standard_errors(small_run: Run) -> None:
    _, cells = story.on_unseen(small_run)
    figure = overview.costs(cost.costs(cells))
    dense = next(cell for cell in cells if cell.method == "dense")
    drawn = {trace.name: trace for trace in figure.data}
    assert len(drawn) == len(cells) - 1
    for cell in cells:
        if cell.method == "dense":
            continue
        trace, each = drawn[style.label(cell.method)], cell.losses - dense.losses
        assert trace.x[0] == pytest.approx(cell.perplexity / dense.perplexity)
        half = 2 * each.std(ddof=1) / np.sqrt(len(each))
        assert trace.x[0] + trace.error_x.array[0] == pytest.approx(np.exp(each.mean() + half))
        assert trace.x[0] - trace.error_x.arrayminus[0] == pytest.approx(np.exp(each.mean() - half))
        assert trace.marker.color == style.METHOD_COLORS[cell.method]


def test_more_methods_than_fit_leave_gprune_in() -> None:
    found = [cost.Cost(f"m{number}", 10.0 + number, 1.5, 1.4, 1.6, True) for number in range(12)]
    found.append(cost.Cost("gprune", 30.0, float("inf"), float("inf"), float("inf"), False))
    figure = overview.costs(found)
    texts = [note.text for note in figure.layout.annotations]
    assert len(texts) == overview.MOST_ROWS and texts[-1] == "GPrune: <b>not finite</b>"
    assert len(figure.data) == overview.MOST_ROWS - 1


def test_a_text_without_a_difference_has_no_panel(small_run: Run) -> None:
    """The pinned method alone was measured on the other text: an empty panel would say “no change”."""
    cells = derived_cache.measurements(small_run)
    first, second = small_run.study.evaluation.texts
    pinned = next(cell.method for cell in cells if cell.method != "dense")
    found = compare.lines(compare.rows([c for c in cells if c.text == first or c.method == pinned]))
    line = next(one for one in found if one.method == pinned)
    names = {one.name: one.method for one in found}
    figure = comparison.changes(found, line, [second, first], names)
    assert figure is not None
    assert [note.text for note in figure.layout.annotations] == [first]
    assert {trace.xaxis for trace in figure.data} == {"x"}
    # every line but the pinned one has its dot, those of one hue in one trace
    assert sorted(row for trace in figure.data for row in trace.y) == sorted({*names.values()} - {pinned})
    hues = [trace.marker.color for trace in figure.data]
    assert len(hues) == len(set(hues)) < len(found) - 1
    for trace in figure.data:
        for row, value, error, words in zip(
            trace.y, trace.x, trace.error_x.array, trace.customdata, strict=True
        ):
            one = compare.change(next(one for one in found if one.method == row), line, first)
            assert value == pytest.approx(100 * one.change) and error == pytest.approx(100 * one.error)
            assert words == one.verdict and trace.marker.color == style.METHOD_COLORS.get(row, style.GREY)
    both = comparison.changes(compare.lines(compare.rows(cells)), line, [second, first], names)
    assert both is not None and [note.text for note in both.layout.annotations] == [second, first]
    assert comparison.changes(found, line, [second], names) is None
