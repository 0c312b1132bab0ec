"""RASA thresholds (section 3.2): which modules are sensitive and weakly supported, and what if?"""

from typing import Any

import streamlit as st

from gprune.analysis import mask_diff, thresholds
from gprune.app.pages.rasa import controls, lines_card, panels, preview_card, retention_card
from gprune.app.pages.rasa.panels import NOT_LEARNED, told
from gprune.app.ui import derived_cache, frame, selection, url_state
from gprune.app.ui.card import Card, card, card_of, panel_card
from gprune.pipeline.runs.opened import Run
from gprune.study import ReliabilitySettings

VIEW = "rasa_view"
VIEWS = {"changes": "What changes", "cost": "What it costs", "modules": "Modules"}
_WHOLE, _FULL, _DRAWN = "rasa_whole", "rasa_full_drawing", "rasa_view_drawn"
"""set where the frame around the page has to follow, while the whole page is drawn, and to the view drawn"""


@frame.page(
    "RASA thresholds",
    "Which modules are sensitive to the text and weakly supported by A, and what changes if the lines move?",
)
def show(run: Run) -> None:
    """Draws the page."""
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
    elif view == "modules":
        _modules(run, settings)
    else:
        _changes(run, settings)
        panel_card(panels.adapted_by_layer, run, **told(run, settings))


def _modules(run: Run, settings: ReliabilitySettings) -> None:
    """Draw the plane of quantiles and the table of every module."""
    _grid(run, settings)
    with card("rasa_table", "Every module", run) as drawn:
        _table(run, drawn, settings)


def _select() -> None:
    """Has the whole page drawn: what is selected is shown beside it as well."""
    st.session_state[_WHOLE] = True


def _table(run: Run, drawn: Card, settings: ReliabilitySettings) -> None:
    statistics, adapted = derived_cache.preview(run, settings)
    table = thresholds.decision_table(statistics, adapted)
    drawn.asked(**told(run, settings))
    forms = {"within-module drift": "%.3f", "u on A": "%.3f", "u on B": "%.3f", "mean primary score": "%.3g"}
    selection.table(table, "rasa_modules", _select, height=320, forms=forms, alt="every module and its decision")
    st.caption(
        "u is the expected discrepancy of the local ranks between disjoint halves of a text: smaller is "
        "steadier. A selected row is selected on every page."
    )
    drawn.tools(
        lambda: table,
        switch=False,
        how="Each row is a module. It is adapted where its drift is above the one line and its score below "
        "the other, and is then scored from the text with the smaller u.",
    )


def _grid(run: Run, settings: ReliabilitySettings) -> None:
    """The plane of both quantiles: how much is adapted anywhere, and where the present lines stand."""
    with card_of(panels.quantiles, run) as drawn:
        derived_cache.preview(run, settings)
        if settings.selection != "drift_and_score":
            st.info("Both lines decide only where modules are adapted by drift and score.")
            return
        reach = url_state.segmented("Range of both quantiles", panels.RANGES, "rasa_range", "near")
        drawn.show(panels.quantiles(run, span=reach, **panels.told(run, settings)), on_point=_set)


def _set(point: dict[str, Any]) -> None:
    """Sets both lines to a clicked cell."""
    found = selection.custom_data(point)
    if len(found) >= 2:
        controls.put(round(float(found[0]), 3), round(float(found[1]), 3))


def _changes(run: Run, settings: ReliabilitySettings) -> None:
    """The neurons that other thresholds decide differently, as far as that is known unlearned."""
    with card_of(panels.changes, run) as drawn:
        changed = panels.changed_by(run, settings)
        if changed.total or changed.heads:
            drawn.show(panels.changes(run, **told(run, settings)))
        else:
            drawn.title(mask_diff.flips_title(changed))
            st.caption("With the lines where they are, the masks of this run come out again.")
        st.caption(NOT_LEARNED)
    with card_of(panels.changed_retention, run) as drawn:
        _bins(run, drawn, settings)


def _bins(run: Run, drawn: Card, settings: ReliabilitySettings) -> None:
    """Retention and Jaccard by drift bin, beside the run's own and the baseline's."""
    bases = panels.bases(run)
    if not bases:
        st.info("Needs the masks of a baseline.", icon=":material/hourglass_empty:")
        return
    first = panels.base_of(run)
    base = url_state.selectbox("Baseline", bases, "rasa_base", first, width=260)
    asked = {"base": "" if base == first else base} | told(run, settings)
    both = panels.changed_retention(run, **asked), panels.changed_overlap(run, **asked)
    drawn.title(both[0].title)
    for column, name, one in zip(st.columns(2), ("retention", "jaccard"), both, strict=True):
        drawn.offers(one)
        column.plotly_chart(one.figure, key=f"rasa_bins_{name}", alt=one.alt or one.title)
    st.caption(both[0].caption)
    drawn.tools(both[0].table, how=both[0].how)
