"""The card that recolours a passage while the retention is dragged."""

import streamlit as st

from gprune.analysis import whatif
from gprune.app.pages.rasa.preview_card import LIVE
from gprune.app.ui import asking, passage, story, url_state
from gprune.app.ui.card import card
from gprune.pipeline.runs.opened import Run


def show(run: Run, choice: whatif.LabChoice) -> None:
    """Draws the card for a choice of the page; not within another fragment."""
    with card("rasa_passage", "Which words does it predict worse?", run):
        if not url_state.flag(LIVE):
            st.caption(
                "Switch on “Live evaluation” above: a passage is then coloured anew as the retention moves."
            )
            return
        if not asking.allowed(run, wanted=True):
            return
        text, _ = story.on_unseen(run)
        passage.show(run, choice, text, "rasa_passage")
