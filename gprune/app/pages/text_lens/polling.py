"""How a card waits for the worker: it looks again as long as more will come."""

import uuid
from collections.abc import Callable

import streamlit as st

from gprune.app import preview
from gprune.app.preview import Reading, Source
from gprune.app.ui import url_state
from gprune.app.ui.text import plain, said
from gprune.pipeline.runs.opened import Run

LIVE = "lens_live"
"""whether the model may be asked, in the address"""
EVERY = 0.5
"""seconds between two looks"""
_ME = "lens_owner"
_WAITING = {
    "loading": "The worker loads the model.",
    "waiting": "The worker waits for its turn.",
    "warm": "The worker reads.",
}


def owner(place: str) -> str:
    """Who asks: this session, for one place of the page."""
    return f"{st.session_state.setdefault(_ME, uuid.uuid4().hex)}:{place}"


def look(run: Run, identity: str, show: Callable[[Reading], None]) -> None:
    """Shows a reading, and looks again as long as it is not complete."""
    now = preview.pool().reading(identity)
    refining = now is None or now.progress == "open"

    def answers() -> None:
        found = preview.pool().reading(identity)
        if refining and found is not None and found.progress != "open" and url_state.in_fragment():
            # all is there: the timer goes with the next drawing, in which the card gets its title; not while
            # the page itself is drawn, of which fields would then show the browser their defaults
            st.rerun(scope="app")
        if found is not None and found.problem:
            st.error(said(found.problem), icon=":material/error:")
        elif found is not None:
            show(found)
        if not refining:
            return
        state = preview.pool().state(Source(run.root, run.graph))
        st.caption(plain(state.reason) or _WAITING.get(state.phase, "The worker is asked."))

    st.fragment(run_every=EVERY if refining else None)(answers)()
