"""Asking the worker from a page: whether it may be asked, who asks, and looking again until all is there."""

import uuid
from collections.abc import Callable, Iterable

import streamlit as st

from gprune.app import preview
from gprune.app.preview import Source
from gprune.app.ui import packed, url_state
from gprune.app.ui.text import said
from gprune.pipeline.runs.opened import Run
from gprune.study.methods import knowing

EVERY = 0.7
"""seconds between two looks while windows are still coming"""
_WORDS = {"loading": "The worker loads the model.", "waiting": "The worker waits for its turn."}


def owner(place: str) -> str:
    """Who asks: this session, for one place of a page, where a new question takes the place of the last."""
    return f"{st.session_state.setdefault('preview_owner', uuid.uuid4().hex)}:{place}"


def allowed(run: Run, wanted: bool) -> bool:
    """Whether the worker can be asked where a reader wants it; else says what a packed run lacks."""
    missing = packed.lacking(run) if wanted else ""
    if missing:
        st.info(said(missing), icon=":material/inventory_2:")
    return wanted and not missing


def coming(asked: Iterable[str]) -> bool:
    """Whether windows of some answers are still coming."""
    found = [preview.pool().latest(identity) for identity in asked]
    return any(one is None or one.progress == "open" for one in found)


def waits(run: Run, otherwise: str, **words: str) -> str:
    """Why an answer is not there yet; `words` are of phases of the worker, and else there is `otherwise`."""
    state = preview.pool().state(Source(run.root, run.graph))
    return said(state.reason or (_WORDS | words).get(state.phase, otherwise))


def standing(run: Run, otherwise: str) -> None:
    """Draws where the worker stands: a bar while it fits weights, else the words of `waits`."""
    state = preview.pool().state(Source(run.root, run.graph))
    if state.phase == "fitting":
        st.progress(state.share, text=said(state.reason))
    else:
        st.caption(waits(run, otherwise))


def look(run: Run, more: Callable[[], bool], draw: Callable[[bool], None], every: float = EVERY) -> None:
    """Shows answers, and looks again after so many seconds as long as there will be more.

    `draw` is told whether there was more to come when the page was drawn.
    """
    refining = more()

    def answers() -> None:
        if refining and url_state.in_fragment() and not more():
            # all is there: the timer goes with the next drawing, in which the card gets its title; not while
            # the page itself is drawn, of which fields would then show the browser their defaults
            st.rerun(scope="app")
        draw(refining)

    st.fragment(run_every=every if refining else None)(knowing(run.told)(answers))()
