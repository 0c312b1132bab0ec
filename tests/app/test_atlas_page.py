"""The mask atlas: its cells against the masks, what the text decides, and every state of the page."""

import numpy as np
import pytest
from app_driver import charts, linked, show, words
from synthetic_run import a_study, write_run

from gprune.analysis import whatif
from gprune.app.pages.mask_atlas import panels
from gprune.app.ui.unit import Selection
from gprune.pipeline import stages
from gprune.system.errors import MethodError, SettingsError


def test_a_cell_is_the_change_of_its_modules_retention(small_run):
    figure = panels.atlas(small_run, order="number").figure
    cells, hidden = figure.data
    ours, base = (small_run.load(stages.masks, name).ffn for name in ("gprune", "flap"))
    labels = small_run.load(stages.partition).labels
    for x, y, told in zip(hidden.x, hidden.y, hidden.customdata, strict=True):
        members = labels[y] == x
        change = ours[y][members].mean() - base[y][members].mean()
        assert cells.z[y][x] == pytest.approx(change, abs=1e-6)
        assert told[:4].tolist() == [y, x, -1, members.sum()]
    assert len(hidden.x) == small_run.load(stages.partition).modules
    assert (cells.zmid, cells.zmin) == (0, -cells.zmax)
    (framed,) = panels.atlas(small_run, order="number", selected=Selection(2, 3)).figure.layout.shapes
    assert (framed.x0, framed.x1, framed.y0, framed.y1) == (2.5, 3.5, 1.5, 2.5)
    (row,) = panels.atlas(small_run, selected=Selection(1)).figure.layout.shapes
    assert (row.y0, row.y1) == (0.5, 1.5)
    figure = panels.atlas_groups(small_run, method="gprune", base="flap").figure
    drawn = [trace for trace in figure.data if trace.type == "heatmap"]
    for trace, name in zip(drawn, ("gprune", "flap"), strict=False):
        assert np.array_equal(np.array(trace.z, bool), small_run.load(stages.masks, name).heads)
    titles = [note.text for note in figure.layout.annotations]
    assert titles == ["GPrune keeps", "FLAP keeps", "score on A", "score on B"] and len(drawn) == 4
    for draw in (panels.atlas, panels.atlas_texts, panels.atlas_groups):
        figure = draw(small_run).figure
        # thousands of marks that are drawn would take the browser seconds
        unseen = [trace for trace in figure.data if trace.type != "heatmap"]
        assert unseen and all(trace.marker.maxdisplayed == 1 for trace in unseen)


def test_the_text_decides_what_exchanging_the_scores_changes(small_run):
    found = panels.between_texts(small_run, "flap")
    results, kept = small_run.results, small_run.study.retention
    one, other = (whatif.decide(results, "flap", kept, text) for text in (whatif.AUXILIARY, whatif.PRIMARY))
    assert found.neurons == (one.ffn != other.ffn).mean() > 0
    assert found.groups == (one.heads != other.heads).mean()
    # the run's own masks are those from A
    learned = panels.between_texts(small_run, "gprune")
    # its thresholds fix how many of a module are kept, whichever text ranks them
    assert np.abs(learned.change).max() < 0.2 and learned.neurons > 0 and learned.groups == 0


def test_what_cannot_be_had_without_a_run_is_said(small_run):
    with pytest.raises(MethodError, match="need a pass of the model"):
        panels.between_texts(small_run, "wanda_sp")
    for wrong in ({"method": "nothing"}, {"base": "nothing"}, {"shown": "x"}, {"order": "x"}):
        with pytest.raises(SettingsError):
            panels.atlas(small_run, **wrong)


def test_the_page_says_how_much_the_text_decides_and_draws_all_cards(cache):
    write_run(cache)
    app = linked("mask_atlas", atlas_method="flap", layer="1", module="2")
    assert len(charts(app)) == 3 and not app.error
    assert "The text decides" in words(app) and "of the key/value groups of FLAP" in words(app)
    for toggle in [toggle.key for toggle in app.toggle if toggle.label == "Table"]:
        app.toggle(key=toggle).set_value(True)
    app.run()
    assert len(app.dataframe) == 3 and not app.exception
    app.selectbox(key="atlas_method_selectbox").set_value("gprune").run()
    # its groups are scored from A either way
    assert "of the neurons of GPrune" in words(app) and "groups of GPrune" not in words(app)
    app.selectbox(key="atlas_method_selectbox").set_value("wanda_sp").run()
    assert "need a pass of the model" in words(app) and len(charts(app)) == 2


@pytest.mark.parametrize("until", ["drift", "adapted"])
def test_a_run_without_masks_says_what_it_needs(cache, until):
    app = show("mask_atlas", cache, stages=until)
    assert "Needs “masks of" in words(app) and not app.error and not charts(app)


def test_a_run_of_one_method_says_that_there_is_no_other(cache):
    app = show("mask_atlas", cache, study=a_study(methods=("dense", "flap")))
    assert "this run has one" in words(app) and not app.error
