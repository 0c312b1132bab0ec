"""Every page in every situation, without a browser: no exception, the right words, no torch."""

import ast
import json
from pathlib import Path

import pytest
from app_driver import CHARTS, PAGES, PLACES, PROJECT, charts, on, open_page, opened, show, words
from synthetic_run import a_study, names, read, write_run
from unwritable import unwritable

from gprune.app.ui import page_names
from gprune.pipeline import runs
from gprune.records import ModelShape
from gprune.store import Store
from gprune.system import processes

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
        location = PLACES[page]
        tabs = page_names.PAGE_OF[location].places
        filled = {tab.label for tab in app.tabs if tab.children} & set(tabs.values())
        assert filled == ({tabs[location]} if len(tabs) > 1 else set()), page
        assert app.title[0].value == tabs[location]
        assert len(charts(app)) == CHARTS[page], page
        assert not app.error and "demo" in words(app), page
        assert sum(item.value.startswith("#### ") for item in app.markdown) <= 4, "cards"
        assert app.run().selectbox(key="frame_run").value == name, page
    assert attempts == []


def test_an_empty_cache_leads_to_the_demo_from_every_page(cache):
    app = opened()
    for page in PAGES:
        on(app, page)
        assert "There is no run yet" in words(app)
        assert app.button(key="frame_demo").label == "Start the bundled demo"


def test_an_empty_cache_is_told_once_and_promises_no_stage_of_a_run(cache):
    app = opened()
    assert words(app).count(page_names.PURPOSE) == 1
    assert "they appear here as soon as there is a run" in words(app)
    assert "Start one on the Runs & export page, Launch & jobs tab" in words(app)
    # nobody is sent to where he is
    assert "Start one below, or start the demo" in words(on(app, "jobs"))


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
    assert len(charts(on(app, "rank_drift"))) == CHARTS["rank_drift"]
    for page, missing in {
        "module_agreement": "Needs “module agreement”",
        "reliability": "Needs “modules”",
        "pruning_decisions": "Needs “modules”",
        "comparison": "Needs “the perplexity of any method”",
    }.items():
        assert missing in words(on(app, page)), page
        assert f"This run stopped after 11 of {len(names())} steps" in words(app)
        assert app.button(key="frame_continue").label == "Resume this run"


def test_a_failed_run_gives_its_reason(cache):
    write_run(cache, stages="drift", state="failed")
    assert "It failed: the disk is full" in words(opened())


def test_a_corrupt_run_is_named_and_the_others_stay(cache, name):
    (cache / "runs" / "broken").mkdir()
    (cache / "runs" / "broken" / "run.json").write_text("{", encoding="utf-8")
    app = opened()
    for page in PAGES:
        on(app, page)
        assert len(charts(app)) == CHARTS[page]
        assert "**broken**" in words(app) and "is not JSON" in words(app)


def test_a_run_that_is_gone_is_told_on_every_page_and_no_other_run_is_shown(name, cache):
    app = opened(run=f"{name[:-1]}x")
    for page in PAGES:
        visible = on(app, page)
        assert f"The run {name[:-1]}x of the address is not in this cache" in words(visible).replace("\\", ""), page
        assert not charts(visible) and not visible.metric, page
        # the list of runs, and published figures
        assert page in ("jobs", "studies") or not visible.dataframe, page
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
    assert on(app, "rank_drift").selectbox(key="frame_run").value == failed


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
    app = show("rank_drift", cache)
    assert "median rank correlation 0.62" in words(app).replace("\\", "")
    badges = [item.value for item in app.markdown if "published" in item.value]
    assert any(badge.endswith("different setting]") for badge in badges)

    def mistaken(*_):
        raise KeyError("no such column")

    monkeypatch.setattr("gprune.app.ui.derived_cache.compute_drift_by_layer", mistaken)
    app.run()
    assert len(app.exception) == 1 and not app.error


def test_the_chart_of_a_live_run_appears_with_its_stage(cache):
    name = write_run(cache, stages=names("drift")[:-1], state="running")
    values = read(cache, name) | {"owner": processes.identify_process()}
    runs.save(Store(cache), name, values)
    app = open_page("rank_drift")
    assert "Waiting for “rank drift between A and B”" in words(app)
    write_run(cache, stages="drift", state="running")
    assert len(charts(app.run())) == CHARTS["rank_drift"]


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
    app = open_page("rank_drift", tab="atlas")
    message = 'Unknown tab "atlas". Use one of: drift, agreement.'
    assert message in words(app).replace("\\", "") and app.title[0].value == "Rank drift"
