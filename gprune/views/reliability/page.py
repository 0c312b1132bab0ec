"""RASA thresholds (section 3.2): which modules are sensitive and weakly supported, and what if?"""

from __future__ import annotations

import streamlit as st

from gprune.analysis import thresholds
from gprune.study import ReliabilitySettings
from gprune.views.frame import address, derived, frame, picture, selection
from gprune.views.frame.card import Card, card
from gprune.views.frame.loaders import Run
from gprune.views.frame.text import plain
from gprune.views.reliability import (
    changes_card,
    controls,
    grid_card,
    lines_card,
    preview_card,
    retention_card,
    sets_card,
)
from gprune.views.reliability import charts as figures
from gprune.views.reliability.pictures import told

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
        st.session_state[_DRAWN] = address.choice(VIEW, VIEWS, "changes")
        _laboratory(run)
        if st.session_state[_DRAWN] == "cost":
            preview_card.show(run)


@st.fragment
def _laboratory(run: Run) -> None:
    """Everything that follows the lines; a fragment, so that only this part is drawn anew."""
    whole, view = st.session_state.pop(_FULL, False), address.choice(VIEW, VIEWS, "changes")
    # the preview is no part of the fragment: with its view it comes and goes
    if st.session_state.pop(_WHOLE, False) or (not whole and view != st.session_state.get(_DRAWN)):
        st.rerun(scope="app")
    settings = controls.settings(run)
    lines_card.show(run, settings, _select)
    address.segmented("Show", VIEWS, VIEW, "changes", label_visibility="collapsed")
    if view == "cost":
        retention_card.show(run, settings)
        if not whole and preview_card.wants_to_follow(run):
            st.rerun(scope="app")
    elif view == "sets":
        _sets(run, settings)
    else:
        changes_card.show(run, settings)
        _layers(run, settings)


def _sets(run: Run, settings: ReliabilitySettings) -> None:
    """Rules beside each other, and what this one decides of every module."""
    sets_card.show(run, settings)
    grid_card.show(run, settings)
    with card("rasa_table", "Every module", run) as drawn:
        _table(run, drawn, settings)


def _select() -> None:
    """Has the whole page drawn: what is selected is shown beside it as well."""
    st.session_state[_WHOLE] = True


def _layers(run: Run, settings: ReliabilitySettings) -> None:
    with card("rasa_layers", "Which layers are adapted?", run) as drawn:
        statistics, adapted = derived.preview(run, settings)
        counts = thresholds.by_layer(statistics, adapted, len(adapted.scores))
        drawn.chart(
            picture.shown("adapted_by_layer", figures.by_layer(counts), **told(run, settings)),
            _layer_caption(run, int(counts.sum())),
            how=_how_layers(settings),
        )


def _layer_caption(run: Run, adapted: int) -> str:
    """What the bars count; where there are none, that there are none."""
    if not adapted:
        return "No module of any layer is adapted with these settings, so there are no bars."
    return (
        "Each bar counts the adapted modules of a layer, stacked by the text that scores them "
        f"(A = {plain(run.study.primary)}, B = {plain(run.study.auxiliary)})."
    )


def _how_layers(settings: ReliabilitySettings) -> str:
    if settings.selection != "drift_and_score" or settings.score_scale != "raw":
        return ""
    return (
        "One score line serves all layers: where raw scores differ much between layers, "
        "those with small scores fall below it as a whole."
    )


def _table(run: Run, drawn: Card, settings: ReliabilitySettings) -> None:
    statistics, adapted = derived.preview(run, settings)
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
