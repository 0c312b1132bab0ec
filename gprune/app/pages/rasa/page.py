"""RASA thresholds (section 3.2): which modules are sensitive and weakly supported, and what if?"""

import streamlit as st

from gprune.analysis import thresholds
from gprune.app.pages.rasa import (
    changes_card,
    controls,
    grid_card,
    lines_card,
    panels,
    preview_card,
    retention_card,
    sets_card,
)
from gprune.app.pages.rasa.panels import told
from gprune.app.ui import derived_cache, frame, selection, url_state
from gprune.app.ui.card import Card, card, panel_card
from gprune.pipeline.runs.opened import Run
from gprune.study import ReliabilitySettings

VIEW = "rasa_view"
VIEWS = {"changes": "What changes", "cost": "What it costs", "sets": "Sets and modules"}
_WHOLE, _FULL, _DRAWN = "rasa_whole", "rasa_full_drawing", "rasa_view_drawn"
"""set where the frame around the page has to follow, while the whole page is drawn, and to the view drawn"""


def show() -> None:
    """Draws the page."""
    frame.page_title(
        "RASA thresholds",
        "Which modules are sensitive to the text and weakly supported by A, and what changes if the lines "
        "move?",
    )
    run = frame.require_run()
    if run is not None:
        st.session_state[_FULL] = True
        st.session_state[_DRAWN] = url_state.choice(VIEW, VIEWS, "changes")
        _laboratory(run)
        if st.session_state[_DRAWN] == "cost":
            preview_card.show(run)


@st.fragment
def _laboratory(run: Run) -> None:
    """Everything that follows the lines; a fragment, so that only this part is drawn anew."""
    whole, view = st.session_state.pop(_FULL, False), url_state.choice(VIEW, VIEWS, "changes")
    # the preview is no part of the fragment: with its view it comes and goes
    if st.session_state.pop(_WHOLE, False) or (not whole and view != st.session_state.get(_DRAWN)):
        st.rerun(scope="app")
    settings = controls.settings(run)
    lines_card.show(run, settings, _select)
    url_state.segmented("Show", VIEWS, VIEW, "changes", label_visibility="collapsed")
    if view == "cost":
        retention_card.show(run, settings)
        if not whole and preview_card.wants_to_follow(run):
            st.rerun(scope="app")
    elif view == "sets":
        _sets(run, settings)
    else:
        changes_card.show(run, settings)
        panel_card(panels.adapted_by_layer, run, **told(run, settings))


def _sets(run: Run, settings: ReliabilitySettings) -> None:
    """Rules beside each other, and what this one decides of every module."""
    sets_card.show(run, settings)
    grid_card.show(run, settings)
    with card("rasa_table", "Every module", run) as drawn:
        _table(run, drawn, settings)


def _select() -> None:
    """Has the whole page drawn: what is selected is shown beside it as well."""
    st.session_state[_WHOLE] = True


def _table(run: Run, drawn: Card, settings: ReliabilitySettings) -> None:
    statistics, adapted = derived_cache.preview(run, settings)
    table = thresholds.table(statistics, adapted)
    drawn.asked(**told(run, settings))
    decimals = st.column_config.NumberColumn(format="%.3f")
    columns = dict.fromkeys(("within-module drift", "u on A", "u on B"), decimals)
    columns["mean primary score"] = st.column_config.NumberColumn(format="%.3g")

    selection.table(
        table, "rasa_modules", _select, height=320, column_config=columns, alt="every module and its decision"
    )
    st.caption(
        "u is the expected discrepancy of the local ranks between disjoint halves of a text: smaller is "
        "steadier. A chosen row is selected on every page."
    )
    drawn.tools(lambda: table, switch=False)
