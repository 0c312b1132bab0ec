"""Mask atlas: where does a method keep more than another one, and which units does the text decide?"""

from typing import Any

import streamlit as st

from gprune.analysis import mask_map as analysis
from gprune.analysis.formatting import percent
from gprune.app.pages.mask_atlas import charts, panels
from gprune.app.ui import frame, rest_of_page, selection, url_state
from gprune.app.ui.card import Card, card_of, panel_card
from gprune.app.ui.chart_style import label
from gprune.app.ui.text import plain, said
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import MissingResultError, Run
from gprune.system.errors import MethodError


@frame.page(
    "Mask atlas",
    "Where does a method keep more than another one, and which units does the choice of text decide?",
)
def show(run: Run) -> None:
    """Draws the page."""
    asked = _controls(run)
    left, right = st.columns(2)
    with left, card_of(panels.atlas, run) as drawn:
        _methods(run, drawn, asked)
    with right, card_of(panels.atlas_texts, run) as drawn:
        _texts(run, drawn, asked)
    if rest_of_page.waits():
        return
    own = {name: asked[name] for name in ("method", "base") if name in asked}
    panel_card(panels.atlas_groups, run, selection.of_point, **own)


def _controls(run: Run) -> dict[str, str]:
    """What all cards of the page are drawn from: methods, colours and order."""
    try:
        there = panels.methods(run)
        first, second = panels.named(run, "", "")
    except MissingResultError:
        # each card says what is missing
        return {}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        method = url_state.selectbox("Method", there, "atlas_method", first, width=200)
        others = {name: words for name, words in there.items() if name != method}
        base = ""
        if others:
            usual = panels.named(run, method, "")[1]
            base = url_state.selectbox("Baseline", others, "atlas_base", usual, width=200)
        shown = url_state.segmented("Colour", charts.SHOWN, "atlas_shown", charts.CHANGE)
        order = url_state.segmented("Modules", analysis.ORDERS, "atlas_order", analysis.BY_DRIFT)
    return {"method": method, "base": base, "shown": shown, "order": order}


def _methods(run: Run, drawn: Card, asked: dict[str, str]) -> None:
    method, base = panels.named(run, asked.get("method", ""), asked.get("base", ""))
    if method == base:
        st.info("Needs the masks of two methods, and this run has one.", icon=":material/hourglass_empty:")
        return
    _other_budget(run, method, base)
    shown = panels.atlas(run, **asked, selected=selection.current(run))
    drawn.show(shown, on_point=selection.of_point)


def _other_budget(run: Run, method: str, base: str) -> None:
    """Warns where the two methods keep another share of the decoder."""
    kept = [run.load(stages.masks, name).retention for name in (method, base)]
    if abs(kept[0] - kept[1]) > 0.005:
        st.warning(
            f"The budgets differ: {plain(label(method))} keeps {percent(kept[0], 2)} of the decoder's "
            f"weights, {plain(label(base))} {percent(kept[1], 2)}. The changes are partly that.",
            icon=":material/warning:",
        )


def _texts(run: Run, drawn: Card, asked: dict[str, str]) -> None:
    own: dict[str, Any] = {name: asked[name] for name in ("method", "shown", "order") if name in asked}
    try:
        drawn_as = panels.coloured(run, own)
    except MethodError as reason:
        st.info(
            f"{said(reason)}. A run with the texts exchanged shows it; methods that score once, as FLAP, are "
            "decided here.",
            icon=":material/info:",
        )
        return
    if drawn_as != own:
        st.caption("Either text keeps as many neurons of every module: the colour is the share decided differently.")
    shown = panels.atlas_texts(run, **drawn_as, selected=selection.current(run))
    drawn.show(shown, on_point=selection.of_point)
