"""The retention curve: how does perplexity grow as less is kept, by each method?"""

import streamlit as st

from gprune.analysis import whatif
from gprune.app.pages.rasa import controls, lab, preview_card, retention_card
from gprune.app.ui import asking, frame, passage, story, url_state
from gprune.app.ui.card import card
from gprune.pipeline.runs.opened import Run


@frame.page("Retention curve", "How does perplexity grow as less is kept, and under which method least?")
def show(run: Run) -> None:
    """Draws the page."""
    offered = lab.methods(run)
    preview_card.show(run, [name for name in ("gprune", story.rival(run)) if name in offered])
    settings = controls.settings(run)
    retention_card.show(run, settings)
    # drawn last and by itself: it looks at its answers
    _passage(run, retention_card.choice(run, settings))


def _passage(run: Run, choice: whatif.LabChoice) -> None:
    """The card that recolours a passage while the retention is dragged; not within another fragment."""
    with card("rasa_passage", "Which words does it predict worse?", run):
        if not url_state.flag(preview_card.LIVE):
            st.caption("Switch on “Live evaluation” above: a passage is then coloured as the retention is dragged.")
        elif asking.allowed(run, wanted=True):
            passage.follow(run, choice)
