"""The page of speed, widths, exports and accuracy in every state."""

from dataclasses import replace

import numpy as np
import pytest
from app_driver import charts, open_page, show, words
from synthetic_measurements import a_throughput, speed_rows
from synthetic_run import a_study, exchange, names, the_run, write_run

from gprune.analysis import speed as analysis
from gprune.app.pages.speed_export import panels, widths_card
from gprune.app.ui.chart_style import METHOD_COLORS
from gprune.pipeline import stages
from gprune.records import ModelShape, Perplexity, PrunedModel, PruningMasks
from gprune.study.settings import EvaluationSettings, SparsitySettings


def a_timed_study(**changes):
    evaluation = EvaluationSettings(texts=a_study().evaluation.texts, windows=96, speed="cpu")
    return a_study(**({"methods": ("dense", "gprune", "flap"), "evaluation": evaluation} | changes))


def page(**query):
    return open_page("speed_export", **query)


def test_measured_speed_is_drawn_with_its_spread_and_a_dense_line(cache):
    app = show("speed_export", cache, study=a_timed_study())
    figure = charts(app)[0]
    assert [trace["y"] for trace in figure["data"]] == [["Dense"], ["GPrune"], ["FLAP"]]
    assert figure["data"][1]["marker"]["color"] == METHOD_COLORS["gprune"]
    assert figure["layout"]["shapes"][0]["x0"] == 50
    assert "#### GPrune decodes faster than the dense model: 1.50 ± 0.10 times its speed" in words(app)
    table = app.dataframe[0].value
    assert table["ratio"].tolist() == ["1.00 ± 0.00", "1.50 ± 0.10", "1.20 ± 0.10"]
    assert table["memory"].tolist() == ["3.0 MiB"] * 3
    assert "![x](" not in words(app) and "This model is small" in words(app) and not app.error


@pytest.mark.parametrize(
    ("ratio", "words_"), [(1.05, "about as fast as"), (0.7, "slower than"), (1.3, "faster than")]
)
def test_the_headline_says_no_more_than_the_spread_allows(ratio, words_):
    assert f"GPrune decodes {words_} the dense model" in panels.headline(speed_rows(ratio=ratio))
    without = [row for row in speed_rows() if row["model"] == "flap"]
    assert panels.headline(without) == "Tokens a second beside FLAP"


def test_every_phase_and_mode_has_its_dots(cache):
    name = write_run(cache, study=a_timed_study())
    exchange(cache, name, a_throughput(modes=("eager", "graph")), stages.speed)
    app = page()
    assert list(charts(app)[0]["data"][0]["y"]) == ["Dense, eager", "Dense, graph"]
    app.selectbox(key="sx_phase_selectbox").set_value("prefill").run()
    figure = charts(app)[0]
    assert len(figure["data"]) == 3 and "prefill" in figure["layout"]["xaxis"]["title"]["text"]
    assert "GPrune decodes faster" in words(app)


def test_whiskers_are_quartiles_and_captured_graphs_are_open():
    table = analysis.speed_table(speed_rows(modes=("eager", "graph")), "decode")
    figure = panels.rate_dots(table, "decode")
    model = table["model"].iloc[2]
    low, middle, high = table[["low", "tokens/s", "high"]].to_numpy()[2]
    drawn = next(trace for trace in figure.data if trace.marker.color == METHOD_COLORS[model])
    assert len({trace.marker.color for trace in figure.data}) == len(figure.data) == table["model"].nunique()
    assert list(drawn.x) == list(table[table["model"] == model]["tokens/s"])
    assert drawn.error_x.array[0] == pytest.approx(high - middle)
    assert drawn.error_x.arrayminus[0] == pytest.approx(middle - low)
    assert drawn.marker.symbol == ("circle", "circle-open")
    assert figure.layout.xaxis.range[0] == 0 and len(figure.layout.shapes) == 2


def test_published_speed_stands_apart_and_what_is_missing_can_be_measured(cache, started):
    app = show("speed_export", cache)
    published = next(item.value for item in app.dataframe if "params" in item.value)
    assert published["tokens/s"].tolist()[0] == "97.04" and "GPrune (FLAP)" in published["method"].tolist()
    assert "published, not run here" in words(app)
    assert "has not been measured" in words(app)
    assert any('evaluation.speed="cpu"' in code.value for code in app.code)
    app.selectbox(key="sx_preset_selectbox").set_value("auto").run()
    app.button(key="sx_measure").click().run()
    assert started == [(a_study().with_settings({"evaluation.speed": "auto"}), ())]


def test_speed_known_of_the_same_masks_is_offered(cache):
    first = write_run(cache)
    second = write_run(cache, study=a_study(evaluation=EvaluationSettings(texts=("c4",), speed="cpu")))
    app = page(run=first)
    app.button(key=f"sx_show_{second}").click().run()
    assert app.session_state["frame_run"] == second and "GPrune decodes faster" in words(app)


def test_widths_are_counted_from_the_masks_and_the_cost_of_padding_is_told(cache):
    write_run(cache)
    neurons, groups = charts(page())
    kept = analysis.widths(the_run(cache).masks()["gprune"])
    assert neurons["data"][1]["name"] == "GPrune"
    run = the_run(cache)
    figure = panels.width_bars(kept.neurons, 60, "gprune", "FFN neurons")
    np.testing.assert_array_equal(figure.data[1].y, run.masks()["gprune"].ffn.sum(axis=1))
    assert figure.layout.yaxis.dtick is None and groups["layout"]["yaxis"]["dtick"] == 1
    assert list(figure.data[0].y) == [60] * 4
    run = the_run(cache)
    assert run.shape is not None and run.size is not None
    made = analysis.padding(run.shape, run.size, PrunedModel(run.masks()["gprune"]), "llama")
    assert made is not None
    shown = words(page())
    for count in (made.dense, made.pruned, made.padded):
        assert f"{count:,} parameters" in shown
    gone = write_run(cache, study=a_study(model="/nowhere/model", name="Gone"))
    assert "its family and the cost of padding are not known" in words(page(run=gone))


@pytest.mark.parametrize(
    ("kept", "words_"),
    [([8, 24], "8 to 24 of 27 neurons a layer, all multiples of 8"), ([13, 27], "not aligned to 8 or more")],
)
def test_the_alignment_found_is_named(kept, words_):
    shape = ModelShape(layers=2, neurons=27, heads=4, kv_heads=2, head_width=4, hidden=16)
    ffn = np.arange(27) < np.array(kept)[:, None]
    masks = PruningMasks("gprune", ffn, np.ones((2, 2), bool), 0.5, 0.5)
    assert words_ in panels._finding("gprune", analysis.widths(masks), shape)


def test_another_alignment_starts_a_study_named_after_it(cache, started):
    app = show("speed_export", cache)
    control = app.get_by_key("sx_alignment_segmented")
    assert control.value == "1"
    control.set_value("16").run()
    assert app.query_params["sx_alignment"] in ("16", ["16"])
    app.button(key="sx_align").click().run()
    ((study, _),) = started
    assert study == a_study().with_settings({"sparsity.alignment": 16, "name": "Synthetic, alignment 16"})
    again = widths_card.aligned_study(study, 64)
    assert (again.name, again.sparsity.alignment) == ("Synthetic, alignment 64", 64)
    assert widths_card.aligned_study(again, 1).name == "Synthetic"
    assert widths_card.aligned_study(a_study(name=""), 8).name == ""


def test_runs_that_differ_in_alignment_alone_stand_side_by_side(cache):
    first = write_run(cache, stages=[name for name in names() if name != "perplexity.gprune.1"])
    known = Perplexity("python-reference", "128", 128, 96, 12.5, 0.1, np.zeros(96))
    exchange(cache, first, known, stages.perplexity, "gprune", "python-reference")
    aligned = a_timed_study(sparsity=SparsitySettings(alignment=8), name="Other")
    write_run(cache, study=aligned)
    write_run(cache, study=a_study(retention=0.7))
    fewer = replace(aligned.evaluation, windows=5)
    write_run(cache, study=replace(aligned, evaluation=fewer))
    app = page(run=first)
    table = next(item.value for item in app.dataframe if "alignment" in item.value)
    assert table["alignment"].tolist() == [1, 8] and table[""].tolist() == ["→", ""]
    assert table["python-reference ↓"].tolist()[0] == "12.5" and table["science-docs ↓"].tolist()[0] == "–"
    assert table["decode ratio"].tolist() == ["not measured", "1.50 ± 0.10"]
    assert "differs from this one in alignment alone" not in words(app)


def test_runs_beside_each_other_may_leave_gprune_out(cache):
    for alignment in (1, 8):
        for methods in (("dense", "flap"), ("dense", "flap", "gprune")):
            changes = {"methods": methods, "sparsity": SparsitySettings(alignment=alignment)}
            name = write_run(cache, study=a_study(**changes))
    app = page(run=name)
    table = next(item.value for item in app.dataframe if "alignment" in item.value)
    assert table["alignment"].tolist() == [1, 1, 8, 8] and table["FFN widths"].isna().sum() == 2


def test_half_a_run_says_what_it_lacks(cache):
    write_run(cache, stages="drift", state="cancelled")
    shown = words(page())
    assert "Needs “the masks of any method”" in shown and "has not been measured" in shown
    assert "has not written its model" in shown
