"""The overview's sentence, the tour and the help, on finished, unfinished and missing runs."""

from datetime import UTC, datetime

import numpy as np
import pytest
from app_driver import PLACES, charts, on, open_page, opened, show, words
from synthetic_run import a_study, names, read, the_run, write_run

from gprune.app.figures import overview as figures
from gprune.app.ui import derived_cache, story, tour, work
from gprune.app.ui.text import plain
from gprune.pipeline import runs, stages
from gprune.store import Store
from gprune.study import EvaluationSettings

UNSEEN = EvaluationSettings(texts=("python-reference", "c4"), windows=96)
STEMS = [next(stem for stem, place in PLACES.items() if place == step.place) for step in tour.STEPS]


def headline(app):
    """The largest line of the overview."""
    return next(item.value[3:] for item in app.markdown if item.value.startswith("## ")).replace("\u00a0", " ")


def alive(cache, name):
    """Lets a run look like one that a process is at work on."""
    runs.save(Store(cache), name, read(cache, name) | {"updated": datetime.now(UTC).isoformat()})


def test_the_overview_opens_with_what_pruning_costs_on_unseen_text(cache):
    write_run(cache, study=a_study(evaluation=UNSEEN))
    app = opened()
    run = the_run(cache)
    cells = {item.method: item for item in derived_cache.measurements(run) if item.text == "c4"}
    said = headline(app).replace("\\", "")
    assert said.startswith("At 50 % retention, perplexity on unseen text ")
    change = 100 * abs(cells["flap"].perplexity / cells["dense"].perplexity - 1)
    assert f"{change:,.{0 if change >= 9.95 else 1}f} %" in said
    assert "Perplexity over 96 windows" in words(app)
    assert [spec["layout"]["height"] for spec in charts(app)[:3]] == [figures.FIRST_SCREEN] * 3


def test_half_a_run_says_what_is_there_and_what_is_to_come(cache):
    name = write_run(cache, stages="drift", state="running")
    alive(cache, name)
    app = opened()
    assert "Changing the calibration text shifts ranks" in headline(app)
    assert "This sentence appears when it is measured" in words(app)
    # the two figures of the drift and the layer strip are there, the costs are to come
    assert len(charts(app)) == 3
    needs = "Needs “the perplexity of any pruned model on python-reference”, which is being computed"
    assert needs in words(app).replace("\\", "")


def test_before_the_drift_the_places_of_the_figures_are_kept(cache):
    name = write_run(cache, stages=names("drift")[:-1], state="running")
    alive(cache, name)
    app = opened()
    assert headline(app) == "Nothing is measured yet"
    kept = [spec["layout"]["annotations"][0]["text"] for spec in charts(app)]
    assert kept == ["Drawn here in a moment"] * 2


def test_a_run_that_was_asked_for_its_drift_only_says_so(cache):
    name = write_run(cache, stages="drift")
    runs.save(Store(cache), name, read(cache, name) | {"until": "drift", "result": None})
    app = opened()
    assert "Changing the calibration text shifts ranks" in headline(app)
    assert "This run was not asked to prune and measure" in words(app)


def test_a_run_without_gprune_tells_of_the_method_that_it_has(cache):
    write_run(cache, study=a_study(methods=("dense", "flap"), evaluation=UNSEEN))
    app = opened(tour="4")
    assert headline(app).endswith("GPrune is not part of this run")


def walked(app):
    """What each step of the tour says, from where it is to its end."""
    told = []
    for number, stem in enumerate(STEMS, start=1):
        assert f"Step {number} of 7" in words(app) and not app.exception
        told.append(words(app))
        assert app.query_params["tour"] in (str(number), [str(number)])
        if number < len(STEMS):
            app.button(key="tour_next").click().run()
            # a page is switched to by its file here, which a browser does by itself
            on(app, STEMS[number])
        assert stem == STEMS[number - 1]
    return told


@pytest.mark.slow
def test_the_tour_leads_over_its_pages_with_the_findings_of_the_run(run):
    app = opened()
    app.button(key="tour_start").click().run()
    told = walked(on(app, "overview"))
    for text, step in zip(told, tour.STEPS, strict=True):
        assert plain(step.finding(run)) in text and step.why in text and step.title in text
    assert app.button(key="tour_back").disabled is False and not [
        button for button in app.button if button.key == "tour_next"
    ]
    app.button(key="tour_end").click().run()
    assert "Step 6 of 7" not in words(app) and "tour" not in app.query_params


@pytest.mark.slow
def test_a_step_whose_result_is_missing_says_so_and_the_tour_goes_on(cache):
    write_run(cache, stages="drift", state="cancelled")
    told = walked(opened(tour="1"))
    assert "Ranks correlate at" in told[1].replace("\\", "")
    for number in (3, 4, 5):
        assert "is not part of this run. The tour goes on." in told[number], number


def test_elsewhere_the_tour_waits_and_a_wrong_step_is_named(cache):
    app = show("jobs", cache, {"tour": "2"})
    assert "The tour waits at step 2 of 7, does importance depend on the text?" in words(app)
    assert app.button(key="tour_return").label == "Back to step 2"
    app = opened(tour="9")
    told = words(app).replace("\\", "")
    assert "The address has tour = 9, which is not used here: 1 or 2 or 3 or 4 or 5 or 6 or 7 is meant" in told
    assert "Step " not in words(app) and app.button(key="tour_start")


def test_without_a_run_the_tour_the_help_and_the_glossary_explain_themselves(cache):
    app = opened(tour="1")
    assert "There is no run yet to tell it on" in words(app) and tour.STEPS[0].why in words(app)
    app = open_page("glossary")
    app.text_input(key="help_search_text").set_value("jaccard").run()
    found = [item.value for item in app.markdown if item.value.startswith("**Jaccard**")]
    assert len(found) == 1 and not any(item.value.startswith("**MSL**") for item in app.markdown)
    app.text_input(key="help_search_text").set_value("zzz").run()
    assert "No word of the glossary matches" in words(app)


def test_the_tour_does_not_deny_a_run_that_has_just_begun(cache, monkeypatch):
    seen = work.look(str(cache))
    monkeypatch.setattr(work, "look", lambda root: seen)
    assert tour.told(story.drift_finding, None) == "There is no run yet to tell it on."
    monkeypatch.setattr(work.Situation, "active", [object()])
    assert tour.told(story.drift_finding, None).startswith("The first run has just begun")


def test_the_movers_are_those_of_the_selected_layer_else_of_the_one_that_moves_most(run):
    # the selected neuron is drawn among the movers, however little it moves
    drawn = charts(opened(layer="2", neuron="7"))
    assert any(trace.get("name") == "neuron 7" for chart in drawn for trace in chart["data"])
    assert "Layer 3, selected" in words(opened(layer="3"))
    medians = np.median(run.load(stages.drift).magnitude, axis=1)
    assert f"Layer {medians.argmax()} moves most" in words(opened())
    assert story.movers_of(run, None, None).layer == medians.argmax()


def test_each_row_of_the_layers_has_a_scale_of_its_own_and_a_cell_its_value():
    rows = {"drift": np.array([0.01, 0.02, 0.03]), "kept": np.array([0.9, 0.5, 0.7]), "same": np.full(3, 0.4)}
    figure = figures.plot_layers(rows)
    heat = figure.data[0]
    np.testing.assert_allclose(heat.z, [[0, 0.5, 1], [1, 0, 0.5], [0.5] * 3], atol=1e-6)
    assert (heat.zmin, heat.zmax, heat.colorbar.ticktext) == (0, 1, ("lowest", "highest"))
    written = {
        (x, y): text
        for trace in figure.data
        if trace.text
        for x, y, text in zip(trace.x, trace.y, trace.text, strict=True)
    }
    assert len(written) == 9 and written[0, "kept"] == "0.90" and written[2, "drift"] == "0.03"
    cells = figure.data[-1]
    np.testing.assert_allclose(cells.customdata[:, 3], np.concatenate(list(rows.values())), rtol=1e-6)
