"""The lab of the RASA page: what changes, other retentions and methods, and the preview."""

import json
from dataclasses import replace

import numpy as np
import pytest
from app_driver import charts, show, words
from synthetic_run import a_study

from gprune.analysis import mask_diff, thresholds, whatif
from gprune.app import preview
from gprune.app.pages.rasa import charts as figures
from gprune.app.pages.rasa import curve_card, lab, preview_card
from gprune.app.preview import Answer, State
from gprune.app.ui import derived_cache
from gprune.pipeline import stages
from gprune.pruning.rasa import adapt
from gprune.study import EvaluationSettings, ReliabilitySettings, Study

# every test walks through pages
pytestmark = pytest.mark.slow

RULE = ReliabilitySettings(drift_quantile=0.4, score_quantile=0.955, score_scale="standardized")


def test_the_runs_own_lines_change_nothing_and_a_method_that_cannot_be_decided_says_why(cache):
    app = show("reliability", cache)
    assert "No neuron and no key/value group changes sides" in words(app)
    app.slider(key="rasa_qd_slider").set_value(0.2).run()
    assert "change sides (" in words(app) and "not learned anew" in words(app)
    assert charts(app)[0]["layout"]["yaxis"]["title"]["text"] == "neurons that change sides"
    app = show("reliability", cache, {"rasa_view": "cost"})
    app.selectbox(key="rasa_method_selectbox").set_value("wanda_sp").run()
    told = " ".join(error.value for error in app.error)
    assert "other masks need a pass of the model" in told and not app.exception
    app.selectbox(key="rasa_method_selectbox").set_value("flap").run()
    assert not app.error and "FLAP keeps" in words(app)


@pytest.mark.parametrize(("view", "drawn"), [("changes", 3), ("cost", 1), ("modules", 1)])
def test_the_lines_stay_above_every_view_and_each_view_draws_its_own(cache, view, drawn):
    app = show("reliability", cache)
    app.segmented_control(key="rasa_view_segmented").set_value(view).run()
    assert app.get("bidi_component") and app.slider(key="rasa_qd_slider").value == 0.9
    assert len(charts(app)) == drawn and "".join(app.query_params.get("rasa_view", "changes")) == view
    assert any(toggle.key == "rasa_live_toggle" for toggle in app.toggle) == (view == "cost")
    tables = [toggle.key for toggle in app.toggle if toggle.label == "Table"]
    for key in tables:
        app.toggle(key=key).set_value(True)
    assert not app.run().exception and not app.error and len(app.dataframe) >= len(tables)


def test_the_preview_takes_the_texts_that_no_method_has_read(cache):
    texts = ("python-reference", "c4", "ptb")
    app = show(
        "reliability",
        cache,
        {"rasa_view": "cost"},
        study=a_study(evaluation=EvaluationSettings(texts=texts, windows=96)),
    )
    assert app.multiselect(key="rasa_heldout_multiselect").value == ["c4", "ptb"]


def test_masks_and_counts_of_a_choice_are_those_of_the_run_at_its_own_setting(small_run):
    choice = lab.choice(small_run, small_run.study.reliability)
    own = lab.own_masks(small_run)
    assert mask_diff.compare(own, derived_cache.masks_of(small_run, choice)).total == 0
    fewer = derived_cache.masks_of(small_run, replace(choice, retention=0.3))
    assert fewer.retention == pytest.approx(0.3, abs=0.01) and (fewer.ffn.sum() < own.ffn.sum())
    from_b = derived_cache.masks_of(small_run, replace(choice, scoring=whatif.AUXILIARY))
    assert mask_diff.compare(own, from_b).total > 0
    flap = derived_cache.masks_of(small_run, replace(choice, method="flap", retention=0.4))
    assert flap.method == "flap" and flap.retention == pytest.approx(0.4, abs=0.02)
    parts = [small_run.load(stages.scores, text) for text in stages.PAIR]
    known = small_run.load(stages.partition), small_run.load(stages.modules)
    levels = np.array([0.0, 0.35, 0.8, 0.905, 1.0])
    counts = thresholds.grid(known[1], levels, levels)
    for i, drift in enumerate(levels):
        for j, score in enumerate(levels):
            settings = ReliabilitySettings(drift_quantile=drift, score_quantile=score)
            assert counts[i, j] == adapt(*parts, *known, settings, 0).adapted.sum()
    figure = figures.grid(levels, counts, len(known[1].size), (0.35, 0.8))
    cell = next(point for point in figure.data[1].customdata if tuple(point[:2]) == (0.8, 0.35))
    assert cell[2] == counts[2, 1] and figure.data[-1].name == "present lines"
    everything = replace(small_run.study.reliability, drift_quantile=0.0, score_quantile=1.0)
    statistics, adapted = derived_cache.preview(small_run, everything)
    from gprune.pruning.rasa import prefers_auxiliary

    expected = prefers_auxiliary(statistics, everything, small_run.study.seed)
    np.testing.assert_array_equal(adapted.source.astype(bool), expected)


@pytest.mark.parametrize("until", ["drift", "adapted"])
def test_cards_without_their_results_say_what_is_missing(cache, until):
    app = show("reliability", cache, stages=until)
    told = " ".join(item.value for item in app.info)
    assert not app.exception and not app.error
    assert ("masks of GPrune" in told) and (until == "adapted") == bool(app.get("bidi_component"))


def test_a_run_without_gprune_says_so(cache):
    app = show("reliability", cache, study=a_study(methods=("dense", "flap")))
    assert not app.exception and not app.error
    assert any("leaves GPrune out" in item.value for item in app.info)


class FakePool:
    """Answers at once with losses of its own, and remembers what it was asked."""

    def __init__(self, progress="complete", more=0.0, done=40):
        self.asked = []
        self.progress, self.more, self.done = progress, more, done

    def ask(self, source, question, owner, base=None):
        self.asked.append((question, base))
        return f"{question.text} {len(self.asked)}"

    def ask_many(self, source, questions, owner, base=None):
        self.asked += [(question, base) for question in questions]
        return [f"point {number}" for number in range(len(questions))]

    def latest(self, identity):
        generator = np.random.default_rng(0)
        base = 4 + generator.normal(0, 0.5, 40)
        losses = base + self.more + generator.normal(0, 0.01, 40)
        losses[self.done :] = np.nan
        text = identity.split()[0]
        return Answer(identity, "gprune", text, self.progress, losses, base)

    def state(self, source):
        return State("warm")


def test_the_preview_asks_when_it_is_switched_on_and_shows_paired_differences(cache, monkeypatch):
    pool = FakePool()
    monkeypatch.setattr(preview, "pool", lambda: pool)
    app = show("reliability", cache, {"rasa_view": "cost"})
    assert pool.asked == [] and "The choice is what this run has learned" in words(app)
    app.toggle(key="rasa_live_toggle").set_value(True).run()
    assert [question.text for question, _ in pool.asked][:2] == ["python-reference", "science-docs"]
    assert all(base.method == "gprune" and base.masks is None for _, base in pool.asked)
    pool = FakePool(more=0.05)
    app = show("reliability", cache, {"rasa_view": "cost", "rasa_live": "1", "rasa_keep": "0.4"})
    found = pool.latest("python-reference 1").difference
    assert f"{found.nats:+.4f} ± {found.nats_margin:.4f} nats/token, 95 % interval, paired over windows" in words(app)
    assert "40 of 40 windows" in words(app) and "not learned anew" in words(app)
    asked = pool.asked[0][0]
    assert asked.method == "gprune" and asked.masks.retention == pytest.approx(0.4, abs=0.01)
    pool.more = 0.0
    app.slider(key="rasa_keep_slider").set_value(0.6).run()
    deltas = [metric.delta for metric in app.metric if metric.label.startswith("perplexity on")]
    assert deltas == ["no measurable difference"] * 2
    pool = FakePool(more=0.1)
    app = show("reliability", cache, {"rasa_view": "cost", "rasa_live": "1"})
    app.multiselect(key="rasa_curves_multiselect").set_value(["gprune", "wanda_sp"]).run()
    points = [question for question, base in pool.asked if base is None]
    assert [round(question.masks.target, 2) for question in points] == list(curve_card.RETENTIONS)
    assert "Points of Wanda\\-sp are missing" in words(app)
    drawn = json.loads(app.get("bidi_component")[1].proto.json)
    heights = [np.log(tick["value"]) for tick in drawn["ticks"]]
    assert len(heights) > 1 and drawn["series"][0]["name"] == "GPrune"
    assert [point["x"] for point in drawn["series"][0]["points"]] == list(curve_card.RETENTIONS)


def test_points_on_different_windows_stand_by_their_ratio_to_the_dense_model():
    whole, half = FakePool(more=0.2), FakePool(progress="open", more=0.2, done=10)
    points = [("gprune", 0.5, whole.latest("a")), ("gprune", 0.6, half.latest("b"))]
    line = curve_card.series(points)[0].points
    dense = points[0][2].base_perplexity
    assert [point.y for point in line] == pytest.approx([dense * np.exp(point[2].difference.nats) for point in points])
    assert [point.whole for point in line] == [True, False]
    assert np.log(line[0].high / line[0].y) == pytest.approx(points[0][2].difference.nats_margin)
    # the two points' own windows have perplexities that differ by more than the methods do
    assert abs(np.log(points[0][2].perplexity / points[1][2].perplexity)) > 3 * abs(np.log(line[0].y / line[1].y))


def test_the_study_of_a_choice_has_its_rule_and_its_retention(small_run):
    choice = lab.choice(small_run, RULE)
    study = preview_card.full_study(small_run, replace(choice, retention=0.7))
    assert isinstance(study, Study) and study.retention == 0.7
    assert study.reliability == replace(RULE, source=small_run.study.reliability.source)
    plain = preview_card.full_study(small_run, replace(choice, scoring=whatif.PRIMARY))
    assert plain is not None and plain.reliability.selection == "none"
    from_b = preview_card.full_study(small_run, replace(choice, scoring=whatif.AUXILIARY))
    own_texts = (small_run.study.primary, small_run.study.auxiliary)
    assert (from_b.auxiliary, from_b.primary) == own_texts and from_b.name.endswith(", texts exchanged")
    assert from_b.reliability.selection == "none" and from_b.retention == small_run.study.retention
    of_base = preview_card.full_study(small_run, replace(choice, method="flap", scoring=whatif.AUXILIARY))
    assert of_base.primary == own_texts[1] and of_base.reliability == small_run.study.reliability
    own = lab.choice(small_run, small_run.study.reliability)
    assert preview_card.full_study(small_run, own) == small_run.study
