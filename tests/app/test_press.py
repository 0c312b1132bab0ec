"""A click that something overtakes is not lost."""

from __future__ import annotations

from streamlit.testing.v1 import AppTest

PAGE = """
import streamlit as st
from gprune.app.ui import sticky_button

state = st.session_state
state.setdefault("acted", 0)
sticky_button.begin(state.get("page", "one"))
if state.pop("overtaken", False):
    # as what a chart sends interrupts the script: before the button is reached
    st.rerun()
if state.get("shown", True) and sticky_button.pressed("Start", "start"):
    state.acted += 1
"""


def opened() -> AppTest:
    return AppTest.from_string(PAGE).run()


def test_a_click_is_seen_once_by_the_script_that_reaches_the_button() -> None:
    app = opened()
    app.session_state["overtaken"] = True
    app.button(key="start").click().run()
    assert app.session_state["acted"] == 1
    assert app.run().session_state["acted"] == 1


def test_a_click_on_a_page_that_is_left_is_forgotten() -> None:
    app = opened()
    app.session_state["shown"] = False
    app.button(key="start").click().run()
    assert app.session_state["acted"] == 0
    app.session_state["page"] = "two"
    app.run()
    app.session_state["page"], app.session_state["shown"] = "one", True
    assert app.run().session_state["acted"] == 0
