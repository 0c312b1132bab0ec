"""The overview's sentence, the slides and the help, on finished, unfinished and missing runs."""

import numpy as np
import pytest
from app_driver import charts, open_page, opened, plain_words, words
from synthetic_run import a_study, change_record, names, the_run, write_run

from gprune.app.figures import overview as figures
from gprune.app.ui import derived_cache, slides, story, work
from gprune.app.ui.text import escape, join_numbers
from gprune.jobs import processes
from gprune.pipeline import stages
from gprune.study import EvaluationSettings

UNSEEN = EvaluationSettings(texts=("python-reference", "c4"), windows=96)


def headline(app):
    """The largest line of the overview."""
    return next(item.value[3:] for item in app.markdown if item.value.startswith("## ")).replace("\u00a0", " ")


def test_the_overview_opens_with_what_pruning_costs_on_unseen_text(cache):
    write_run(cache, study=a_study(evaluation=UNSEEN))
    app = opened()
    run = the_run(cache)
    cells = {item.method: item for item in derived_cache.measurements(run) if item.text == "c4"}
    said = headline(app).replace("\\", "")
    assert said.startswith("At 50% retention, perplexity on unseen text ")
    change = 100 * abs(cells["flap"].perplexity / cells["dense"].perplexity - 1)
    assert f"{change:,.{0 if change >= 9.95 else 1}f}%" in said
    assert "Perplexity over 96 windows" in words(app)
    assert [spec["layout"]["height"] for spec in charts(app)[:3]] == [figures.FIRST_SCREEN] * 3


def test_half_a_run_says_what_is_there_and_what_is_to_come(cache):
    name = write_run(cache, stages="drift", state="running")
    change_record(cache, name, owner=processes.identify_process())
    app = opened()
    assert "Changing the calibration text shifts ranks" in headline(app)
    assert "The result appears here once it is measured" in words(app)
    # the two figures of the drift are there, the costs are to come
    assert len(charts(app)) == 2
    needs = "Waiting for “the perplexity of any pruned model on python-reference”"
    assert needs in plain_words(app)


def test_before_the_drift_the_places_of_the_figures_are_kept(cache):
    name = write_run(cache, stages=names("drift")[:-1], state="running")
    change_record(cache, name, owner=processes.identify_process())
    app = opened()
    assert headline(app) == "Nothing is measured yet"
    retained = [spec["layout"]["annotations"][0]["text"] for spec in charts(app)]
    assert retained == ["Computing the drift"] * 2


def test_a_run_that_was_asked_for_its_drift_only_says_so(cache):
    name = write_run(cache, stages="drift")
    change_record(cache, name, until="drift", result=None)
    app = opened()
    assert "Changing the calibration text shifts ranks" in headline(app)
    assert "This run does not prune or measure" in words(app)


def test_a_run_without_gprune_tells_of_the_method_that_it_has(cache):
    write_run(cache, study=a_study(methods=("dense", "flap"), evaluation=UNSEEN))
    app = opened()
    assert headline(app).endswith("GPrune is not part of this run")


@pytest.mark.slow
def test_each_slide_has_its_sentence_and_its_figure(cache, monkeypatch):
    write_run(cache, study=a_study(evaluation=UNSEEN))
    # no slide asks the worker
    monkeypatch.setattr("gprune.app.ui.run_status.missing_inputs", lambda run: "Needs the model.")
    run = the_run(cache)
    for number, slide in enumerate(slides.SLIDES, start=1):
        app = opened(slide=str(number))
        assert not app.exception and not app.error and not app.title
        assert f"# {join_numbers(escape(slide.sentence(run)))}" in [item.value for item in app.markdown]
        assert f"{number} / 8] {slide.title}" in words(app)
        assert len(charts(app)) == (slide.place != "lens"), number


def test_a_slide_whose_result_is_missing_says_so(cache):
    write_run(cache, stages="drift", state="cancelled")
    run = the_run(cache)
    assert "shifts ranks" in slides.SLIDES[1].sentence(run)
    for slide in (slides.SLIDES[2], slides.SLIDES[3], slides.SLIDES[5]):
        assert "is not part of this run" in slide.sentence(run), slide.title


def test_slides_end_on_their_page_and_a_wrong_number_is_named(cache, name):
    app = opened()
    app.button(key="ov_slides").click().run()
    assert app.query_params["slide"] in ("1", ["1"]) and "1 / 8" in words(app)
    app.button(key="slide_end").click().run()
    assert "1 / 8" not in words(app) and "slide" not in app.query_params and not app.exception
    text = plain_words(opened(slide="9"))
    assert 'Unknown slide "9". Use one of: 1, 2, 3, 4, 5, 6, 7, 8.' in text


def test_without_a_run_the_slides_and_the_glossary_explain_themselves(cache, monkeypatch):
    assert "There is no run yet" in words(opened(slide="1"))
    app = open_page("words")
    app.text_input(key="help_search_text").set_value("jaccard").run()
    entries = [item.value for item in app.markdown if item.value.startswith("**Jaccard**")]
    assert len(entries) == 1 and not any(item.value.startswith("**MSL**") for item in app.markdown)
    app.text_input(key="help_search_text").set_value("zzz").run()
    assert "No glossary entry matches" in words(app)
    monkeypatch.setattr(work.Situation, "active", [object()])
    assert slides.SLIDES[1].sentence(None) == "The first run has just begun."


def test_the_movers_are_those_of_the_selected_layer_else_of_the_one_that_moves_most(run):
    # the selected neuron is drawn among the movers, however little it moves
    figure = charts(opened(layer="2", neuron="7"))
    assert any(trace.get("name") == "neuron 7" for chart in figure for trace in chart["data"])
    assert "Layer 3, selected" in words(opened(layer="3"))
    medians = np.median(run.load(stages.drift).magnitude, axis=1)
    assert f"Layer {medians.argmax()} shifts most" in words(opened())
    assert story.find_movers(run, None, None).layer == medians.argmax()
