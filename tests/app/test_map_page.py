"""The neuron map and the mask atlas: what points, cells and colours say, and every state of the pages."""

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from app_driver import charts, open_page, words
from synthetic_run import a_study, exchange, the_run, write_run

from gprune.analysis import whatif
from gprune.analysis.formatting import MODULES
from gprune.app.figures import masks as atlas
from gprune.app.figures import neurons as figures
from gprune.app.figures.drift import _LOOKS, SUBSTITUTION
from gprune.app.pages import neuron_map as map_page
from gprune.app.ui import derived_cache
from gprune.app.ui.chart_style import GREY, METHOD_COLORS, PAIR
from gprune.app.ui.panel import Selection
from gprune.pipeline import stages
from gprune.pipeline.stages import neuron_map
from gprune.pruning import neuron_embedding as analysis
from gprune.pruning.neuron_embedding import BEHAVIOUR
from gprune.records import ModelShape, NeuronMap
from gprune.store import Store
from gprune.study.methods import METHODS
from gprune.system.errors import MethodError, SettingsError

TEXTS = ("primary", "auxiliary", "substitute")


def put_map(run, layer=2):
    """Keeps a made-up layout where the job would."""
    stage = neuron_map(run.graph, layer, BEHAVIOUR, TEXTS)
    places = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
    Store(Path(run.root)).put(stage.kind, stage.key, NeuronMap(layer, BEHAVIOUR, np.full(60, 0.4, np.float32), places))
    return places


def test_a_point_is_a_neuron_and_its_colour_tells_the_decisions(small_run):
    figure = figures.neuron_map(small_run, layer=2, colour="module").figure
    measured = [small_run.load(stages.statistics, text) for text in TEXTS]
    expected = analysis.behaviour(measured, 2).places
    labels = small_run.load(stages.partition).labels[2]
    rendered = 0
    for module, trace in enumerate(figure.data):
        assert (labels[trace.customdata] == module).all()
        assert np.array_equal(np.stack([trace.x, trace.y], axis=1), expected[trace.customdata, :2])
        rendered += len(trace.customdata)
    assert rendered == 60 and figure.data[0].type == "scattergl"
    colours = figures.color_neurons(small_run, 1, figures.TEXT_MASKS, "flap")
    item, other = (
        derived_cache.masks_of_text(small_run, "flap", text).ffn[1] for text in (whatif.PRIMARY, whatif.AUXILIARY)
    )
    counts = [int(group.members.sum()) for group in colours.groups]
    assert counts == [
        int((~item & ~other).sum()),
        int((item & other).sum()),
        int((item & ~other).sum()),
        int((~item & other).sum()),
    ]
    assert figures.differing_share(colours) == (counts[2] + counts[3]) / 60 > 0
    # every text's masks are the baseline's own rule at the run's own budget
    results, retained = small_run.results, small_run.study.retention
    assert np.array_equal(item, whatif.decide(results, "flap", retained, whatif.PRIMARY).ffn[1])
    against = figures.color_neurons(small_run, 1, figures.METHOD_MASKS, "flap")
    actual, base = (small_run.load(stages.masks, name).ffn[1] for name in ("gprune", "flap"))
    assert [group.name for group in against.groups[2:]] == ["kept only by GPrune", "kept only by FLAP"]
    assert np.array_equal(against.groups[2].members, actual & ~base)


def _linear(hue):
    part = np.array([int(hue[location : location + 2], 16) for location in (1, 3, 5)]) / 255
    return np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)


# how a colour looks without one kind of cone (Machado, Oliveira and Fernandes 2009, severity 1)
def _matrix(numbers):
    return np.array(numbers.split(), float).reshape(3, 3)


EYES = {
    "all cones": "1 0 0 0 1 0 0 0 1",
    "protan": "0.152286 1.052583 -0.204868 0.114503 0.786281 0.099216 -0.003882 -0.048116 1.051998",
    "deutan": "0.367322 0.860646 -0.227968 0.280085 0.672501 0.047413 -0.011820 0.042940 0.968881",
    "tritan": "1.255528 -0.076749 -0.178779 -0.078411 0.930809 0.147602 0.004733 0.691367 0.303900",
}
TO_CONES = "0.41222147 0.53633254 0.05144599 0.2119035 0.68069955 0.10739696 0.08830246 0.28171884 0.6299787"
TO_LAB = "0.21045426 0.79361778 -0.00407205 1.9779985 -2.42859221 0.45059371 0.02590404 0.78277177 -0.80867577"


@pytest.mark.parametrize("eye", EYES)
def test_the_hues_of_modules_stay_apart_for_every_eye_on_either_ground(eye):
    observed = [np.clip(_matrix(EYES[eye]) @ _linear(hue), 0, 1) for hue in MODULES]
    uniform = [_matrix(TO_LAB) @ np.cbrt(_matrix(TO_CONES) @ light) for light in observed]
    assert min(np.linalg.norm(item - other) for item, other in combinations(uniform, 2)) > 0.15
    assert min(_contrast(hue, page) for hue in MODULES for page in ("#ffffff", "#11161d")) > 2.4


def _contrast(first, second):
    luminances = sorted(float(_linear(hue) @ [0.2126, 0.7152, 0.0722]) + 0.05 for hue in (first, second))
    return luminances[1] / luminances[0]


def test_the_marks_of_every_method_stand_out_on_each_page():
    hues = {METHOD_COLORS[name] for name, reference in METHODS.items() if reference.plugin is None}
    # 3 is what marks are to have; orange, sky and mustard are paler on white, and have symbols
    for page, least in (("#ffffff", 2.2), ("#11161d", 3.0), ("#1a212b", 3.0)):
        assert min(_contrast(hue, page) for hue in hues) > least, page
        assert min(_contrast(hue, page) for hue in (PAIR, GREY, *_LOOKS[SUBSTITUTION][0][::2])) > 3, page


def test_no_two_modules_of_a_layer_look_the_same():
    for count in (2, 5, 6, 15, 50):
        groups = figures.group_by_module(np.arange(2 * count) % count)
        assert len({(group.color, group.symbol) for group in groups}) == len(groups) == count
        assert all(group.members.sum() == 2 for group in groups)


@pytest.mark.parametrize("colour", figures.COLORINGS)
def test_a_layer_of_a_large_model_stays_within_a_charts_bytes(large_run, colour):
    figure = figures.neuron_map(large_run, layer=3, colour=colour).figure
    assert sum(len(trace.x) for trace in figure.data) == 11_008
    assert len(figure.to_json().encode()) < 300_000


def test_of_more_neurons_than_a_chart_can_bear_some_are_drawn_and_it_says_so():
    places = np.zeros((28_672, 2), np.float32)
    visible = analysis.select_neurons(28_672, figures.MOST_POINTS)
    values = figures.Coloring(values=np.arange(28_672), title="rank drift d")
    figure = figures.plot_plane(places, ("x", "y"), values, visible)
    assert len(figure.data[0].x) == figures.MOST_POINTS == len(figure.data[0].marker.color)
    assert figure.data[0].customdata[-1] == 28_671


def test_the_page_draws_behaviour_at_once_and_offers_the_job_for_what_takes_long(cache, started, name):
    app = open_page("map", layer="2")
    # it opens in UMAP, by who keeps a neuron; until that is there PCA stands in its place
    assert app.segmented_control(key="nm_layout_segmented").value == "umap" and not app.error
    assert app.selectbox(key="nm_colour_selectbox").value == "methods"
    assert len(charts(app)) == 1 and "showing PCA" in words(app)
    assert "In layer 2, GPrune and FLAP decide" in words(app)
    assert "A job computes the map of layer 2 by behaviour" in words(app)
    app.button(key="nm_start").click().run()
    arguments = ("map", name, "--layer", "2", "--of", "behaviour", "--cache", str(cache))
    assert [message for _, message in started] == [arguments]
    assert any("python -m gprune map" in block.value for block in app.code)


def test_a_layout_that_is_there_is_drawn_with_its_seed_and_what_it_keeps(cache, name):
    places = put_map(the_run(cache))
    app = open_page("map", layer="2", nm_colour="drift")
    assert "map preserves 40% of the 15 nearest" in words(app) and "seed 0" in words(app)
    (chart,) = charts(app)
    assert chart["layout"]["xaxis"]["title"]["text"] == "UMAP 1 (no unit)"
    run = the_run(cache)
    figure = figures.neuron_map(run, layer=2, colour="drift").figure
    assert np.array_equal(np.stack([figure.data[0].x, figure.data[0].y], axis=1), places)


def test_umap_of_a_layer_of_eight_neurons_says_what_it_needs(cache):
    small = ModelShape(layers=2, neurons=8, heads=2, kv_heads=2, head_width=4, hidden=8)
    write_run(cache, small, modules=2)
    app = open_page("map", nm_layout="umap")
    assert "needs 16 neurons; this layer has 8" in "".join(error.value for error in app.error)
    assert not [button for button in app.button if button.key == "nm_start"]
    app.segmented_control(key="nm_layout_segmented").set_value("pca").run()
    assert len(charts(app)) == 1 and not app.error


def test_a_layer_of_equal_neurons_is_a_sentence_and_starts_no_job(cache, run, name):
    for text in TEXTS:
        result = run.load(stages.statistics, text)
        mean, moment = result.ffn_mean.copy(), result.ffn_moment.copy()
        mean[:, 1], moment[:, 1] = 0.1, 3.0
        exchange(cache, name, replace(result, ffn_mean=mean, ffn_moment=moment), stages.statistics, text)
    for layout in ("pca", "umap"):
        app = open_page("map", layer="1", nm_layout=layout)
        assert "all 60 neurons are equal" in "".join(error.value for error in app.error)
        assert not [button for button in app.button if button.key == "nm_start"]


def test_parameters_of_a_model_that_is_gone_are_a_sentence(cache, tmp_path):
    write_run(cache, study=a_study(model=str(tmp_path / "gone")))
    app = open_page("map", nm_basis="parameters")
    assert "there is no model folder" in "".join(error.value for error in app.error)


def test_what_was_drawn_around_is_listed_with_all_that_is_known_and_nothing_is_a_sentence(run):
    app = open_page("map", layer="2")
    app.session_state["nm_region_drawn"] = map_page.Region(run.name, 2, (3, 17, 40))
    app.run()
    rows = app.dataframe[0].value
    assert rows["neuron"].tolist() == [3, 17, 40] and "3 neurons of layer 2 selected" in words(app)
    assert rows["drift d"].tolist() == run.load(stages.drift).magnitude[2][[3, 17, 40]].tolist()
    assert rows["module"].tolist() == run.load(stages.partition).labels[2][[3, 17, 40]].tolist()
    assert rows["kept, FLAP"].tolist() == run.load(stages.masks, "flap").ffn[2][[3, 17, 40]].tolist()
    app.session_state["nm_region_drawn"] = map_page.Region(run.name, 2, ())
    assert "No neuron is inside the region" in words(app.run())
    # of another layer nothing was drawn: a selected module is listed instead, without a mouse
    app.query_params["layer"], app.query_params["module"] = "1", "4"
    app.run()
    members = np.flatnonzero(run.load(stages.partition).labels[1] == 4)
    assert app.dataframe[0].value["neuron"].tolist() == members.tolist()


def test_a_mark_names_its_neuron_however_the_browser_sends_it():
    for sent in (7, [7], {"0": 7}):
        assert map_page.neuron_of({"customdata": sent}) == 7
    assert map_page.neuron_of({}) is map_page.neuron_of({"customdata": []}) is None


def test_a_cell_is_the_change_of_its_modules_retention_and_the_text_decides_it(small_run):
    figure = atlas.atlas(small_run).figure
    cells, hidden = figure.data
    actual, base = (small_run.load(stages.masks, name).ffn for name in ("gprune", "flap"))
    labels = small_run.load(stages.partition).labels
    for x, y, message in zip(hidden.x, hidden.y, hidden.customdata, strict=True):
        module = message[1]
        members = labels[y] == module
        change = actual[y][members].mean() - base[y][members].mean()
        assert cells.z[y][x] == pytest.approx(100 * change, abs=1e-4)
        assert message[:4].tolist() == [y, module, -1, members.sum()]
    assert len(hidden.x) == small_run.load(stages.partition).modules
    assert (cells.zmid, cells.zmin) == (0, -cells.zmax)
    (framed,) = atlas.atlas(small_run, selected=Selection(2, 3)).figure.layout.shapes
    (column,) = hidden.x[(hidden.customdata[:, :2] == (2, 3)).all(axis=1)]
    assert (framed.x0, framed.x1, framed.y0, framed.y1) == (column - 0.5, column + 0.5, 1.5, 2.5)
    (row,) = atlas.atlas(small_run, selected=Selection(1)).figure.layout.shapes
    assert (row.y0, row.y1) == (0.5, 1.5)
    figure = atlas.atlas_groups(small_run, method="gprune", base="flap").figure
    rendered = [trace for trace in figure.data if trace.type == "heatmap"]
    for trace, name in zip(rendered, ("gprune", "flap"), strict=False):
        assert np.array_equal(np.array(trace.z, bool), small_run.load(stages.masks, name).heads)
    titles = [note.text for note in figure.layout.annotations]
    assert titles[2:] == ["score on python-reference", "score on science-docs"] and len(rendered) == 4
    for draw in (atlas.atlas, atlas.atlas_texts, atlas.atlas_groups):
        figure = draw(small_run).figure
        # thousands of marks that are drawn would take the browser seconds
        unseen = [trace for trace in figure.data if trace.type != "heatmap"]
        assert unseen and all(trace.marker.maxdisplayed == 1 for trace in unseen)
    result = atlas.compare_texts(small_run, "flap")
    results, retained = small_run.results, small_run.study.retention
    item, other = (whatif.decide(results, "flap", retained, text) for text in (whatif.AUXILIARY, whatif.PRIMARY))
    assert result.neurons == (item.ffn != other.ffn).mean() > 0
    assert result.groups == (item.heads != other.heads).mean()
    # the run's own masks are those from A
    learned = atlas.compare_texts(small_run, "gprune")
    # its thresholds fix how many of a module are kept, whichever text ranks them
    assert np.abs(learned.change).max() < 0.2 and learned.neurons > 0 and learned.groups == 0
    with pytest.raises(MethodError, match="need a pass of the model"):
        atlas.compare_texts(small_run, "wanda_sp")
    for wrong in ({"method": "nothing"}, {"base": "nothing"}, {"shown": "x"}):
        with pytest.raises(SettingsError):
            atlas.atlas(small_run, **wrong)


def test_the_page_says_how_much_the_text_decides_and_draws_all_cards(name):
    app = open_page("atlas", atlas_method="flap", layer="1", module="2")
    assert len(charts(app)) == 3 and not app.error
    assert "depend on the calibration text" in words(app) and "of the key/value groups of FLAP" in words(app)
    for toggle in [toggle.key for toggle in app.toggle if toggle.label == "Table"]:
        app.toggle(key=toggle).set_value(True)
    app.run()
    assert len(app.dataframe) == 3 and not app.exception
    app.selectbox(key="atlas_method_selectbox").set_value("gprune").run()
    # its groups are scored from A either way
    assert "of the neurons of GPrune" in words(app) and "groups of GPrune" not in words(app)
    app.selectbox(key="atlas_method_selectbox").set_value("wanda_sp").run()
    assert "need a pass of the model" in words(app) and len(charts(app)) == 2
