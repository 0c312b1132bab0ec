"""The field that finds a layer, module or neuron, on every page: it selects what it finds, and opens it."""

import streamlit as st

from gprune.analysis import inspection
from gprune.app.ui import places, selection, url_state
from gprune.app.ui.text import said
from gprune.app.ui.unit import Selection, there
from gprune.pipeline.runs.opened import Run
from gprune.system.errors import GpruneError

PLACE = "inspector"
"""where units are looked at"""
_LONGEST = 80
_ERROR, _ON_THE_WAY = "find_error", "find_on_the_way"


def draw(run: Run) -> None:
    """Draws the field in the frame; the page that shows units has one of its own."""
    if url_state.page() == PLACE:
        st.session_state.pop(_ON_THE_WAY, None)
        return
    if st.session_state.get(_ON_THE_WAY):
        # what a page sends while it is still being built can overtake the change to another one
        places.turn(PLACE)
    field(run, "frame_find", placeholder="Find a neuron: L5N688", label_visibility="collapsed")


def field(run: Run, key: str, **options: object) -> None:
    """Draws the field under a key of its own, and below it why nothing was found."""
    st.text_input("Find", key=key, on_change=_find, args=(run, key), **options)  # type: ignore[call-overload]
    if problem := st.session_state.pop(_ERROR, ""):
        st.error(said(problem), icon=":material/search_off:")


def _find(run: Run, key: str) -> None:
    # the field says no limit, for which a side bar has no room
    typed = str(st.session_state.get(key) or "")[:_LONGEST]
    if not typed.strip():
        return
    try:
        wanted = Selection(**inspection.asked(typed))
        lacking = there(run, wanted)[1]
    except GpruneError as error:
        st.session_state[_ERROR] = str(error)
        return
    if lacking:
        st.session_state[_ERROR] = f"this run has no {lacking}"
        return
    st.session_state[key] = ""
    st.session_state[_ON_THE_WAY] = True
    selection.select(wanted.layer, wanted.module, wanted.neuron)
