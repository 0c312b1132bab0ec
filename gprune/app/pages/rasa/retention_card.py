"""The card of retention, method and scoring text."""

import streamlit as st

from gprune.analysis import whatif
from gprune.app.pages.rasa import controls, lab, panels
from gprune.app.pages.rasa.panels import told
from gprune.app.ui import url_state
from gprune.app.ui.card import card_of
from gprune.pipeline.runs.opened import Run
from gprune.study import ReliabilitySettings

TEXT, METHOD = "rasa_text", "rasa_method"


def choice(run: Run, settings: ReliabilitySettings) -> whatif.LabChoice:
    """Return the choice that the address holds."""
    return whatif.LabChoice(
        url_state.choice(METHOD, lab.methods(run), "gprune"),
        controls.retention(run),
        url_state.choice(TEXT, lab.texts(run), whatif.ADAPTED),
        settings,
    )


def show(run: Run, settings: ReliabilitySettings) -> None:
    """Draws the card."""
    with card_of(panels.kept, run) as drawn:
        left, right = st.columns([2, 1], vertical_alignment="bottom")
        with left:
            controls.retention_slider(run)
        with right:
            url_state.selectbox("Method", lab.methods(run), METHOD, "gprune")
        url_state.segmented("Scored from", lab.texts(run), TEXT, whatif.ADAPTED)
        wanted = choice(run, settings)
        drawn.show(
            panels.kept(
                run,
                method=wanted.method,
                retention=None if wanted.retention == run.study.retention else wanted.retention,
                scoring=wanted.scoring,
                **told(run, wanted.settings),
            )
        )
