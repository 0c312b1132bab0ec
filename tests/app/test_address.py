"""The state of the pages: one value behind every widget, mirrored into the address; and no click is lost."""

from functools import partial

import pytest
from app_driver import charts, on, open_page, opened, plain_words, show, words
from streamlit.testing.v1 import AppTest, local_script_runner
from synthetic_run import a_study, write_run


def _small_page():
    import streamlit as st

    from gprune.app.ui import address

    address.read_address("small")
    slot = st.container()
    level = address.slider("Level", "level", 0.9, 0.0, 1.0, 0.005)
    address.number_field("Level", "level", 0.9, 0.0, 1.0, 0.005)
    count = address.slider("Count", "count", 5, 3, 10, 1)
    view = address.segmented_control("View", {"one": "The first", "two": "The second"}, "view", "one")
    marks = address.multiselect("Marks", {"a": "Aa", "b": "Bb", "c": "Cc"}, "marks", ["a"])
    on = address.toggle("Log", "log")
    st.button("Preset", key="preset", on_click=address.set_values, args=({"level": 0.25, "view": "two"},))
    st.text(repr((level, count, view, marks, on)))

    def clock():
        from streamlit.runtime.scriptrunner_utils.script_run_context import ThreadState

        st.session_state["clock"] = ThreadState.get().fragment_id
        # a part of a page has its own widgets
        st.session_state["bins"] = address.slider("Bins", "bins", 20, 10, 40, 10)

    address.write_address(slot)
    address.fragment(clock, 2.0)()


@pytest.fixture
def small():
    return AppTest.from_function(_small_page, default_timeout=60)


def held(app, key):
    """What the address has for a key; the driver gives a single value as text."""
    result = app.query_params[key]
    return [result] if isinstance(result, str) else list(result)


def test_what_is_not_a_default_is_in_the_address_under_stable_names(small):
    app = small.run()
    assert app.text[0].value == repr((0.9, 5, "one", ["a"], False))
    assert not list(app.query_params), "defaults leave no trace"
    app.toggle(key="log_toggle").set_value(True).run()
    app.slider(key="count_slider").set_value(7).run()
    app.multiselect(key="marks_multiselect").set_value(["c", "a"]).run()
    assert {key: held(app, key) for key in app.query_params} == {
        "log": ["1"], "count": ["7"], "marks": ["c", "a"],
    }  # fmt: skip
    app.toggle(key="log_toggle").set_value(False).run()
    assert "log" not in app.query_params


@pytest.mark.parametrize(
    ("page", "query", "is_open"),
    [
        ("drift", {"rd_layers_table": "1"}, lambda app: app.toggle(key="rd_layers_table_toggle").value),
        ("words", {"help_search": "jaccard"}, lambda app: "**Jaccard" in words(app)),
        ("words", {"help_search": "x" * 500}, lambda app: "No glossary entry" in words(app)),
        ("rasa", {"rasa_figure": "1"}, lambda app: app.toggle(key="rasa_figure_toggle").value),
    ],
)
def test_tables_and_searches_are_opened_by_a_link(page, query, is_open, name):
    app = open_page(page, **query)
    assert is_open(app) and "Unknown" not in words(app)


def test_every_view_of_a_value_follows_the_one_that_was_moved(small):
    app = small.run()
    app.number_input(key="level_number").set_value(0.315).run()
    assert app.slider(key="level_slider").value == 0.315 and "0.315" in app.text[0].value
    app.slider(key="level_slider").set_value(0.7).run()
    assert app.number_input(key="level_number").value == 0.7
    app.button(key="preset").click().run()
    assert app.slider(key="level_slider").value == 0.25 and "(0.25, 5, 'two'" in app.text[0].value
    assert held(app, "level") == ["0.25"] and held(app, "view") == ["two"]
    app.number_input(key="level_number").set_value(None).run()
    assert app.slider(key="level_slider").value == 0.25


def ticked(app, widget, monkeypatch):
    """Draw the fragment that notes its name as `clock` anew, when the browser knows the widget as it is here."""
    clock = app.session_state["clock"]
    data = partial(local_script_runner.RerunData, fragment_id_queue=[clock], is_auto_rerun=True)
    with monkeypatch.context() as patched:
        patched.setattr(local_script_runner, "RerunData", data)
        widget.run()


def test_a_click_that_the_browser_has_not_heard_of_is_not_undone(small, monkeypatch):
    app = small.run()
    app.button(key="preset").click().run()
    ticked(app, app.slider(key="level_slider").set_value(0.9), monkeypatch)
    assert app.run().text[0].value == repr((0.25, 5, "two", ["a"], False))
    assert app.slider(key="level_slider").value == 0.25 and held(app, "level") == ["0.25"]


def test_a_widget_of_a_part_that_is_drawn_by_itself_moves_its_value(small, monkeypatch):
    app = small.run()
    ticked(app, app.slider(key="bins_slider").set_value(30), monkeypatch)
    assert app.session_state["bins"] == 30 and app.run().session_state["bins"] == 30


def test_an_address_that_changes_by_itself_wins(small):
    small.query_params["level"] = "0.4"
    small.query_params["marks"] = ["b", "c"]
    app = small.run()
    assert app.text[0].value == repr((0.4, 5, "one", ["b", "c"], False))
    app.slider(key="level_slider").set_value(0.8).run()
    app.query_params["level"] = "0.4"
    app.run()
    assert app.slider(key="level_slider").value == 0.4


@pytest.mark.parametrize(
    ("key", "value", "meant"),
    [
        ("level", "7", "0 to 1"),
        ("level", "nan", "0 to 1"),
        ("count", "4.5", "3 to 10"),
        ("view", "The second", "one of: one, two"),
        ("log", "maybe", "0 or 1"),
        ("marks", "z", "one of: a, b, c"),
    ],
)
def test_a_value_that_cannot_be_used_is_named(small, key, value, meant):
    small.query_params[key] = value
    app = small.run()
    (sentence,) = [item.value.replace("\\", "") for item in app.warning]
    assert sentence == f'Unknown {key} "{value}". Use {meant}.'
    app.toggle(key="log_toggle").set_value(True).run()
    assert len(app.warning) == (0 if key == "log" else 1), "it stays until the value is chosen anew"


def test_a_single_value_that_comes_twice_is_told(small):
    small.query_params["count"] = ["4", "7"]
    app = small.run()
    (sentence,) = [item.value.replace("\\", "") for item in app.warning]
    assert sentence == 'The address has count 2 times. The last, "7", is used.'
    assert app.slider(key="count_slider").value == 7 and held(app, "count") == ["7"]


def test_choosing_nothing_is_a_choice_that_the_address_keeps(small):
    app = small.run()
    app.multiselect(key="marks_multiselect").set_value([]).run()
    assert held(app, "marks") == [""]
    fresh = AppTest.from_function(_small_page, default_timeout=60)
    fresh.query_params["marks"] = ""
    assert fresh.run().multiselect(key="marks_multiselect").value == []
    assert not fresh.warning and held(fresh, "marks") == [""]


def test_a_selection_goes_with_the_reader_from_page_to_page(cache):
    app = show("drift", cache)
    layer = 3 if app.number_input(key="rd_layer").value != 3 else 1
    app.number_input(key="rd_layer").set_value(layer).run()
    assert app.button(key="frame_selection").label == f"layer {layer}"
    app = on(app, "agreement")
    assert held(app, "layer") == [str(layer)]
    marked = [shape["x0"] for shape in charts(app)[0]["layout"]["shapes"]]
    assert marked == [layer - 0.5]
    app.button(key="frame_selection").click().run()
    assert "layer" not in app.query_params and not charts(app)[0]["layout"].get("shapes")


def test_a_selection_that_the_run_does_not_have_is_told_and_a_neuron_brings_its_module(cache, name):
    app = opened(layer="1", module="6")
    assert "This run has no module 6 in layer 1: it has 6." in words(app)
    app = show("drift", cache, {"layer": "1", "neuron": "59"})
    ring = charts(app)[2]["data"][-1]
    assert ring["name"] == "neuron 59" and len(ring["x"]) == 1


def test_the_open_tab_and_what_it_shows_are_in_the_address(cache):
    older, newer = write_run(cache), write_run(cache, study=a_study(seed=1, name="Second"))
    app = open_page("launch", jobs_tab="runs", runs_chosen=older)
    assert app.session_state["jobs_tab_tabs"] == "Runs" and held(app, "jobs_tab") == ["runs"]
    assert app.selectbox(key="runs_chosen_selectbox").value == older
    app.selectbox(key="runs_chosen_selectbox").set_value(newer).run()
    assert app.selectbox(key="runs_chosen_selectbox").value == newer
    other = open_page("launch", jobs_tab="nowhere")
    assert 'Unknown jobs_tab "nowhere"' in plain_words(other)
    assert other.session_state["jobs_tab_tabs"] == "Start"


def test_a_job_that_is_looked_at_stays_when_another_is_started(running_job):
    first = running_job(a_study(model="/nowhere")).id
    app = open_page("launch", jobs_tab="jobs")
    # an address that the page has changed by itself would take a Back of its own
    assert app.selectbox(key="jobs_job_selectbox").value == first and "jobs_job" not in app.query_params
    second = running_job(a_study(seed=1, model="/nowhere")).id
    app.run()
    assert app.selectbox(key="jobs_job_selectbox").value == first
    app.selectbox(key="jobs_job_selectbox").set_value(second).run()
    assert held(app, "jobs_job") == [second]
    assert open_page("launch").selectbox(key="jobs_job_selectbox").value == second


def _two_pages():
    import streamlit as st

    from gprune.app.ui import address

    address.read_address(st.session_state.get("page", "one"))
    slot = st.container()
    step = address.read_option("step", ["1", "2", ""], "")
    address.read_flag("log")
    st.text(step)
    if st.session_state.pop("overtaken", False):
        # as when the browser sends something before the page is finished
        st.stop()
    address.write_address(slot)


def test_a_page_that_is_overtaken_before_it_is_finished_keeps_what_came_with_the_reader():
    app = AppTest.from_function(_two_pages, default_timeout=60)
    app.query_params["step"], app.query_params["log"] = "2", "1"
    app.run()
    # a link to another page brings one value of the two
    app.session_state["page"], app.session_state["overtaken"] = "two", True
    del app.query_params["step"]
    app.run()
    assert app.run().text[0].value == "2" and held(app, "step") == ["2"]
    # taken back on a finished page, it is gone
    del app.query_params["step"]
    assert app.run().text[0].value == ""


def _interrupted_page():
    import streamlit as st

    from gprune.app.ui import address, components

    with address.drawing_page("one"):
        level = address.read_number("level", 0.9, 0.0, 1.0)
        for number in (0.5, 0.25):
            st.button(f"{number}", on_click=address.set_value, args=("level", number))
        pressed = components.button("Start", "start")
        st.text(repr((level, pressed)))
        if st.session_state.pop("overtaken", False):
            st.stop()
        address.write_address(st.container())


@pytest.mark.parametrize("overtaken", [False, True])
def test_what_was_moved_last_holds_though_the_browser_has_not_heard_of_the_address_yet(overtaken):
    app = AppTest.from_function(_interrupted_page, default_timeout=60).run()
    app.session_state["overtaken"] = overtaken
    app.button[0].click().run()
    # what a browser sends before it has the new address
    app.query_params.clear()
    app.button[1].click().run()
    assert app.text[0].value == "(0.25, False)" and held(app, "level") == ["0.25"]
    app.session_state["overtaken"] = overtaken
    app.button[0].click().run()
    app.query_params["level"] = "0.25"
    app.button(key="start").click().run()
    assert app.text[0].value == "(0.5, True)" and held(app, "level") == ["0.5"]
    # the browser's Back
    app.query_params["level"] = "0.25"
    assert app.run().text[0].value == "(0.25, False)"


PAGE = """
import streamlit as st
from gprune.app.ui import components

state = st.session_state
state.setdefault("acted", 0)
components.forget_clicks(state.get("page", "one"))
if state.pop("overtaken", False):
    # as what a chart sends interrupts the script: before the button is reached
    st.rerun()
if state.get("shown", True) and components.button("Start", "start"):
    state.acted += 1
"""


def test_a_click_is_seen_once_and_forgotten_on_a_page_that_is_left():
    app = AppTest.from_string(PAGE).run()
    app.session_state["overtaken"] = True
    app.button(key="start").click().run()
    assert app.session_state["acted"] == 1
    assert app.run().session_state["acted"] == 1
    app = AppTest.from_string(PAGE).run()
    app.session_state["shown"] = False
    app.button(key="start").click().run()
    assert app.session_state["acted"] == 0
    app.session_state["page"] = "two"
    app.run()
    app.session_state["page"], app.session_state["shown"] = "one", True
    assert app.run().session_state["acted"] == 0
