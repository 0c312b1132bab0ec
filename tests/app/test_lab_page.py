"""The lab of the RASA page: what changes, other retentions and methods, and the preview."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from app_driver import charts, show, words
from fake_pool import FakePool
from synthetic_run import a_study

from gprune.analysis import decisions, whatif
from gprune.app.figures import rasa as figures
from gprune.app.pages import rasa
from gprune.app.preview import Answer
from gprune.app.ui import asking, derived_cache
from gprune.pipeline import stages
from gprune.pipeline.stages import Results
from gprune.study import EvaluationSettings, ReliabilitySettings, Study
from gprune.study.methods import METHODS

# every test walks through pages
pytestmark = pytest.mark.slow

RULE = ReliabilitySettings(drift_quantile=0.4, score_quantile=0.955, score_scale="standardized")


def test_the_runs_own_lines_change_nothing_and_moved_lines_say_what_changes(cache):
    app = show("rasa", cache)
    assert "0 neurons and 0 key/value groups differ from this run" in words(app)
    assert "These are the thresholds and the retention of this run" in words(app)
    app.slider(key="rasa_qd_slider").set_value(0.2).run()
    assert "change sides (" in words(app) and app.button(key="rasa_prune")
    for key in [toggle.key for toggle in app.toggle if toggle.label == "Table"]:
        app.toggle(key=key).set_value(True)
    assert not app.run().exception and not app.error and len(app.dataframe) >= 3


def test_live_perplexity_is_on_where_measuring_took_less_than_its_limit(small_run, monkeypatch):
    texts = ("python-reference", "science-docs")
    for seconds, live in ((None, False), (9.0, True), (11.0, False)):
        monkeypatch.setattr(Results, "details", lambda self, stage, seconds=seconds: {"seconds": seconds})
        assert asking.is_live_by_default(small_run, texts) == live
    monkeypatch.setattr("gprune.app.ui.run_status.missing_inputs", lambda run: "Needs the model.")
    assert not asking.is_live_by_default(small_run, texts[:1])


def test_the_preview_takes_the_texts_that_no_method_has_read(cache):
    texts = ("python-reference", "c4", "ptb")
    app = show("rasa", cache, study=a_study(evaluation=EvaluationSettings(texts=texts, windows=96)))
    assert app.multiselect(key="rasa_heldout_multiselect").value == ["c4", "ptb"]


def test_masks_and_counts_of_a_choice_are_those_of_the_run_at_its_own_setting(small_run):
    choice = figures.adapted_choice(small_run, small_run.study.reliability)
    masks = small_run.load(stages.masks, "gprune")
    assert decisions.count_shared(masks, derived_cache.masks_of(small_run, choice), decisions.NEURONS).changed == 0
    fewer = derived_cache.masks_of(small_run, replace(choice, retention=0.3))
    assert fewer.retention == pytest.approx(0.3, abs=0.01) and (fewer.ffn.sum() < masks.ffn.sum())
    from_b = derived_cache.masks_of(small_run, replace(choice, scoring=whatif.AUXILIARY))
    assert decisions.count_shared(masks, from_b, decisions.NEURONS).changed > 0
    flap = derived_cache.masks_of(small_run, replace(choice, method="flap", retention=0.4))
    assert flap.method == "flap" and flap.retention == pytest.approx(0.4, abs=0.02)
    all_values = replace(small_run.study.reliability, drift_quantile=0.0, score_quantile=1.0)
    statistics, adapted = derived_cache.preview(small_run, all_values)
    from gprune.pruning.rasa import prefers_auxiliary

    expected = prefers_auxiliary(statistics, all_values, small_run.study.seed)
    np.testing.assert_array_equal(adapted.source.astype(bool), expected)


def answer(more, progress="complete", done=40):
    """An answer whose losses lie `more` nats above those of the dense model, on the first windows."""
    created = FakePool()
    created.more = more
    losses, base = created.paired_losses()
    losses[done:] = np.nan
    return Answer("a", "gprune", "t", progress, losses, base)


@pytest.fixture
def pool(monkeypatch):
    return FakePool().installed(monkeypatch)


def test_the_preview_asks_when_it_is_switched_on_and_shows_paired_differences(cache, pool):
    app = show("rasa", cache)
    assert pool.asked == []
    app.toggle(key="rasa_live_toggle").set_value(True).run()
    assert [question.text for question, _ in pool.asked][:2] == ["python-reference", "science-docs"]
    assert all(base.method == "gprune" and base.masks is None for _, base in pool.asked)
    pool.asked, pool.more = [], 0.05
    app = show("rasa", cache, {"rasa_live": "1", "rasa_keep": "0.4"})
    expected = pool.latest("0")
    (metric, _) = [metric for metric in app.metric if metric.label.startswith("perplexity on")]
    assert (metric.value, metric.delta) == (f"{expected.perplexity:.2f}", expected.verdict.removeprefix("perplexity "))
    assert f"this run: {expected.base_perplexity:.2f}; 40 of 40 windows" in words(app)
    question = pool.asked[0][0]
    assert question.method == "gprune" and question.masks.retention == pytest.approx(0.4, abs=0.01)
    pool.more = 0.0
    app.slider(key="rasa_keep_slider").set_value(0.6).run()
    deltas = [metric.delta for metric in app.metric if metric.label.startswith("perplexity on")]
    assert deltas == ["no measurable difference"] * 2


def test_a_reference_is_measured_at_the_same_retention_and_without_rasa_where_asked(cache, pool):
    for reference, method in (("no_rasa", "gprune"), ("flap", "flap")):
        pool.asked = []
        show("rasa", cache, {"rasa_live": "1", "rasa_against": reference, "rasa_keep": "0.4"})
        _, base = pool.asked[0]
        assert base.method == method and base.masks.retention == pytest.approx(0.4, abs=0.02)
        assert not base.fitted


def test_the_curve_has_what_the_run_measured_and_live_points_where_methods_are_chosen(cache, pool):
    app = show("rasa", cache)
    assert {"GPrune", "FLAP"} <= set(curves(app)) and pool.asked == []
    pool.more = 0.1
    app.multiselect(key="rasa_curves_multiselect").set_value(["gprune", "wanda_sp"]).run()
    points = [question for question, base in pool.asked if base is None]
    assert [round(question.masks.target, 2) for question in points] == list(rasa.RETENTIONS)
    assert "Points of Wanda\\-sp are missing" in words(app)
    assert curves(app)["GPrune"]["x"] == list(rasa.RETENTIONS)


def test_points_of_moved_lines_are_not_called_measured(cache, pool):
    app = show("rasa", cache, {"rasa_qd": "0.5"})
    for methods, source in (([], "this run’s own thresholds"), (["gprune"], "these thresholds")):
        app.multiselect(key="rasa_curves_multiselect").set_value(methods).run()
        lines = curves(app)
        assert {point[0] for point in lines["GPrune"]["customdata"]} == {source}
        assert {point[0] for point in lines["FLAP"]["customdata"]} == {"measured"}


def curves(app):
    """Return the traces of the retention curve by the first word of their names."""
    curve = next(figure for figure in charts(app) if "kept" in figure["layout"]["xaxis"]["title"]["text"])
    return {trace["name"].split()[0]: trace for trace in curve["data"]}


def test_points_on_different_windows_stand_by_their_ratio_to_the_dense_model():
    points = [("gprune", 0.5, answer(0.2)), ("gprune", 0.6, answer(0.2, "open", 10))]
    table, dense = figures.curve_table(points), points[0][2].base_perplexity
    expected = [dense * np.exp(point[2].difference.nats) for point in points]
    assert table["perplexity"].tolist() == pytest.approx(expected)
    line = figures.plot_retention_curve(points, 0.5).data[0]
    assert line.y.tolist() == pytest.approx(expected) and tuple(line.marker.opacity) == (1.0, 0.4)
    margin = points[0][2].difference.nats_margin
    assert np.log(1 + line.error_y.array[0] / line.y[0]) == pytest.approx(margin)
    # the two points' own windows have perplexities that differ by more than the methods do
    ratio = abs(np.log(points[0][2].perplexity / points[1][2].perplexity))
    assert ratio > 3 * abs(np.log(expected[0] / expected[1]))
    for method in METHODS.keys() - {"dense"}:
        of_method = [(method, *point[1:]) for point in points]
        # an open symbol is a form of the method, and no point that lacks windows
        symbol = figures.plot_retention_curve(of_method, 0.5).data[0].marker.symbol
        assert symbol == figures.METHOD_SYMBOLS[method]


@pytest.mark.parametrize(
    ("retention", "reading"),
    [
        (0.5, "≈ 40.00 (interpolated)"),
        (0.55, f"≈ {20 * 2**0.5:.2f} (interpolated)"),
        (0.604, "20.00 (measured, 3 of 8 windows)"),
        (0.4, "80.00 (measured)"),
        (0.9, "–"),
    ],
)
def test_a_reading_between_points_lies_on_the_drawn_line(retention, reading):
    columns = {"kept": [0.4, 0.6], "perplexity": [80.0, 20.0], "windows": [8, 3], "of": 8, "source": "measured"}
    assert figures.read_curve(pd.DataFrame(columns), retention) == reading


def test_the_study_of_a_choice_has_its_rule_and_its_retention(small_run):
    study = rasa.tuned_study(small_run, figures.adapted_choice(small_run, RULE, 0.7))
    assert isinstance(study, Study) and study.retention == 0.7
    assert study.reliability == replace(RULE, source=small_run.study.reliability.source)
    assert (
        rasa.tuned_study(small_run, figures.adapted_choice(small_run, small_run.study.reliability)) == small_run.study
    )
