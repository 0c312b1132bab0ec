"""Every page in every situation, without a browser: no exception, the right words, no torch."""

import ast
import json
from pathlib import Path

import pytest
from app_driver import CHARTS, PAGES, PROJECT, charts, on, open_page, opened, plain_words, show, words
from synthetic_run import a_study, change_record, names, write_run
from unwritable import unwritable

from gprune.app.ui import page_names
from gprune.jobs import processes
from gprune.records import ModelShape
from gprune.study import EvaluationSettings

pytestmark = pytest.mark.slow


@pytest.fixture
def attempts(cache, name):
    """What is tried to be written below the cache of a finished run, which is closed to writing."""
    with unwritable(cache) as tried:
        yield tried


def test_a_finished_run_fills_every_page_and_nothing_is_written_or_computed_of_a_closed_tab(name, attempts):
    app = opened()
    for page in PAGES:
        on(app, page)
        tabs = page_names.PAGE_OF[page].places
        filled = {tab.label for tab in app.tabs if tab.children} & set(tabs.values())
        assert filled == ({tabs[page]} if len(tabs) > 1 else set()), page
        assert app.title[0].value == tabs[page]
        assert len(charts(app)) == CHARTS[page], page
        assert not app.error and "demo" in words(app), page
        assert sum(item.value.startswith("#### ") for item in app.markdown) <= 4, "cards"
        assert app.run().selectbox(key="frame_run").value == name, page
    assert attempts == []


def test_an_empty_cache_leads_to_the_demo_from_every_page_and_is_told_once(cache):
    app = opened()
    for page in PAGES:
        on(app, page)
        assert "There is no run yet" in words(app)
        assert app.button(key="frame_demo").label == "Start the bundled demo"
    app = opened()
    assert words(app).count(page_names.PURPOSE) == 1
    assert "they appear here as soon as there is a run" in words(app)
    assert "Start one on the Runs & export page, Launch & jobs tab" in words(app)
    # nobody is sent to where he is
    assert "Start one below, or start the demo" in words(on(app, "launch"))


@pytest.mark.parametrize("inner", [False, True])
def test_a_cache_that_is_a_file_is_told_on_every_page(tmp_path, monkeypatch, inner):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("GPRUNE_CACHE", str(tmp_path / "file" / "inner" if inner else tmp_path / "file"))
    app = opened()
    for page in PAGES:
        on(app, page)
        assert not app.exception and "There is no run yet" not in words(app), page
        messages = [error.value for error in app.error if "cannot be a folder" in error.value]
        assert messages and "to another folder, or move" in messages[0], page


def test_half_a_run_draws_what_is_there_and_says_what_is_missing(cache):
    write_run(cache, stages="drift", state="cancelled")
    app = opened()
    assert len(charts(on(app, "drift"))) == CHARTS["drift"]
    assert f"This run stopped after 11 of {len(names())} steps" in words(app)
    assert app.button(key="frame_continue").label == "Resume this run"


NO_GPRUNE = {"study": a_study(methods=("dense", "flap"))}
NO_DENSE = {"study": a_study(methods=("gprune", "flap"), evaluation=EvaluationSettings(tasks=("piqa",)))}
WITH_TASKS = {"study": a_study(evaluation=EvaluationSettings(tasks=("piqa",)))}
NO_STATISTICS = [name for name in names() if not name.startswith(("statistics_aux", "statistics_sub"))]


@pytest.mark.parametrize(
    ("page", "query", "options", "sentence", "count"),
    [
        ("agreement", {}, {"stages": "drift"}, "Needs “module agreement”", 0),
        ("rasa", {}, {"stages": "drift"}, "Needs “modules”", 1),
        ("rasa", {}, {"stages": "adapted"}, "masks of GPrune", 2),
        ("rasa", {}, NO_GPRUNE, "without GPrune", 1),
        ("decisions", {}, {"stages": "drift"}, "Needs “modules”", 0),
        ("compare", {}, {"stages": "drift"}, "Needs “the perplexity of any method”", 0),
        ("lens", {}, {"stages": "drift"}, "masks of GPrune", 0),
        ("lens", {}, {"stages": "adapted"}, "masks of GPrune", 0),
        ("map", {"nm_colour": "drift"}, {"stages": "drift"}, "", 1),
        ("map", {"nm_colour": "methods"}, {"stages": "drift"}, "Needs “masks of", 0),
        ("map", {"nm_colour": "methods"}, {"stages": "adapted"}, "Needs “masks of", 0),
        ("map", {"layer": "99"}, {}, "This run has no layer 99: its layers are 0 to 3", 1),
        ("map", {"nm_layout": "tsne"}, {}, "tsne", 1),
        ("map", {"nm_colour": "texts", "nm_method": "wanda_sp"}, {}, "need a pass of the model", 0),
        ("atlas", {}, {"stages": "drift"}, "Needs “masks of", 0),
        ("atlas", {}, {"stages": "adapted"}, "Needs “masks of", 0),
        ("atlas", {}, NO_GPRUNE, "this run has one", 2),
        ("calibration", {}, {"stages": ("norms",)}, "Needs “drawing calibration text python-reference”", 0),
        ("calibration", {}, {"stages": ("norms",)}, "Needs “rank drift between python-reference and science-docs”", 0),
        ("card", {"cd_view": "A"}, {"stages": ["tokens_primary"]}, "“activation statistics on python-reference”", 0),
        ("card", {"cd_view": "A"}, {"stages": NO_STATISTICS}, "no other text to compare it with", 1),
        ("speed", {}, {"stages": "drift"}, "has not been measured", 0),
        ("export", {}, {"stages": "masks"}, "has not written its model", 0),
        ("export", {}, {"stages": "drift"}, "No method of this run has masks yet", 0),
        ("questions", {}, WITH_TASKS | {"stages": "drift"}, "Needs “answers of dense, task 1”", 0),
        ("questions", {}, NO_DENSE, "Needs a run that includes the dense model", 0),
    ],
)
def test_what_a_run_lacks_is_said_in_place_of_its_figure(cache, page, query, options, sentence, count):
    app = show(page, cache, query, **options)
    # the lines of the RASA page are a component
    assert len(charts(app)) + len(app.get("bidi_component")) == count and not app.error
    assert sentence in plain_words(app)


def test_a_failed_run_gives_its_reason(cache):
    write_run(cache, stages="drift", state="failed")
    assert "It failed: the disk is full" in words(opened())


def test_a_corrupt_run_is_named_and_the_others_stay(cache, name):
    (cache / "runs" / "broken").mkdir()
    (cache / "runs" / "broken" / "run.json").write_text("{", encoding="utf-8")
    app = open_page("drift")
    assert len(charts(app)) == CHARTS["drift"]
    assert "**broken**" in words(app) and "is not JSON" in words(app)


def test_a_run_that_is_gone_is_told_on_every_page_and_no_other_run_is_shown(name, cache):
    app = opened(run=f"{name[:-1]}x")
    for page in PAGES:
        visible = on(app, page)
        assert f"The run {name[:-1]}x of the address is not in this cache" in plain_words(visible), page
        assert not charts(visible) and not visible.metric, page
        # the list of runs, and published figures
        assert page in ("launch", "studies") or not visible.dataframe, page
        assert app.selectbox(key="frame_run").value is None and not app.exception
    app.button(key="frame_go_on").click().run()
    assert app.query_params["run"] in (name, [name]) and app.selectbox(key="frame_run").value == name


def test_a_chosen_run_stands_in_the_address_by_its_folder(cache):
    done = write_run(cache)
    failed = write_run(cache, study=a_study(seed=3), stages="drift", state="failed")
    app = opened()
    # there from the start, so that a copied address goes on showing this run
    assert app.selectbox(key="frame_run").value == done and app.query_params["run"] in (done, [done])
    app.selectbox(key="frame_run").set_value(failed).run()
    assert app.query_params["run"] in (failed, [failed])
    assert on(app, "drift").selectbox(key="frame_run").value == failed


@pytest.mark.long
def test_a_model_of_one_layer_and_one_module_fills_every_page(cache):
    write_run(cache, ModelShape(1, 13, 4, 1, 2, 8), modules=1)
    app = opened()
    for page in PAGES:
        assert len(charts(on(app, page))) == CHARTS[page], page


def test_names_from_outside_are_text_and_nothing_else(cache):
    evil = "<script>alert(1)</script> ![x](http://example.org/x.png)"
    write_run(cache, study=a_study(primary=evil, name=evil))
    app = opened()
    for page in PAGES:
        on(app, page)
        assert "![x](" not in words(app) and "<script>" not in json.dumps(charts(app)), page
        assert not any(item.proto.allow_html for item in app.markdown), page


def test_both_budgets_stand_beside_each_other_and_a_mistake_of_ours_is_no_fault_of_the_run(cache, monkeypatch):
    app = show("drift", cache)
    assert "median rank correlation of 0.62" in plain_words(app)
    badges = [item.value for item in app.markdown if "published" in item.value]
    assert any(badge.endswith("different setting]") for badge in badges)

    def mistaken(*_):
        raise KeyError("no such column")

    monkeypatch.setattr("gprune.app.ui.derived_cache.compute_drift_by_layer", mistaken)
    app.run()
    assert len(app.exception) == 1 and not app.error


def test_the_chart_of_a_live_run_appears_with_its_stage(cache):
    name = write_run(cache, stages=names("drift")[:-1], state="running")
    change_record(cache, name, owner=processes.identify_process())
    app = open_page("drift")
    assert "Waiting for “rank drift between python-reference and science-docs”" in plain_words(app)
    write_run(cache, stages="drift", state="running")
    assert len(charts(app.run())) == CHARTS["drift"]


def test_page_files_are_short_and_their_addresses_differ_from_their_names():
    entry = (PROJECT / "app.py").read_text(encoding="utf-8")
    assert len(entry.splitlines()) <= 35
    files = {f"pages/{path.name}": path for path in (PROJECT / "pages").glob("*.py")}
    assert set(files) == {page.file for page in page_names.PAGES} and len(files) == 9
    for page in page_names.PAGES:
        tree = ast.parse(files[page.file].read_text(encoding="utf-8"))
        (views,) = [node for node in ast.walk(tree) if isinstance(node, ast.Dict)]
        # the file draws what the table of all pages says
        assert [ast.literal_eval(key) for key in views.keys] == list(page.places)
        assert Path(page.file).stem not in (page.url, *page_names.PAGE_OF)


def test_a_tab_that_is_not_there_is_told_and_the_first_one_shown(name):
    app = open_page("drift", tab="atlas")
    message = 'Unknown tab "atlas". Use one of: drift, agreement.'
    assert message in plain_words(app) and app.title[0].value == "Rank drift"
