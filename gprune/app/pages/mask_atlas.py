"""Tab *Mask atlas*: where a method keeps more than another, and which units the choice of text decides."""

import streamlit as st

from gprune.analysis import mask_map as analysis
from gprune.app.figures import mask_atlas as figures
from gprune.app.ui import card as cards
from gprune.app.ui import frame, rest_of_page, selection, url_state
from gprune.app.ui.masks import budget_warning
from gprune.app.ui.text import said
from gprune.pipeline.runs.opened import MissingResultError, Run
from gprune.system.errors import MethodError


@frame.page(
    "Mask atlas", "Where does a method keep more than another one, and which units does the choice of text decide?"
)
def show(run: Run) -> None:
    """Draw the page."""
    options = _show_controls(run)
    left, right = st.columns(2)
    with left, cards.card_of(figures.atlas, run) as card:
        _compare_methods(run, card, options)
    with right, cards.card_of(figures.atlas_texts, run) as card:
        _compare_texts(run, card, {name: value for name, value in options.items() if name != "base"})
    if rest_of_page.waits():
        return
    masks = {name: options[name] for name in ("method", "base") if name in options}
    cards.panel_card(figures.atlas_groups, run, selection.of_point, **masks)


def _show_controls(run: Run) -> dict[str, str]:
    try:
        labels = figures.mask_labels(run)
        default, _ = figures.choose_masks(run, "", "")
    except MissingResultError:
        # each card says what is missing
        return {}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        method = url_state.selectbox("Method", labels, "atlas_method", default, width=200)
        baselines = {name: label for name, label in labels.items() if name != method}
        base = ""
        if baselines:
            usual = figures.choose_masks(run, method, "")[1]
            base = url_state.selectbox("Baseline", baselines, "atlas_base", usual, width=200)
        color = url_state.segmented("Colour", figures.COLORS, "atlas_shown", figures.CHANGE)
        order = url_state.segmented("Modules", analysis.ORDERS, "atlas_order", analysis.BY_DRIFT)
    return {"method": method, "base": base, "shown": color, "order": order}


def _compare_methods(run: Run, card: cards.Card, options: dict[str, str]) -> None:
    method, base = figures.choose_masks(run, options.get("method", ""), options.get("base", ""))
    if method == base:
        st.info("Needs the masks of two methods, and this run has one.", icon=":material/hourglass_empty:")
        return
    if warning := budget_warning(run, method, base):
        st.warning(warning, icon=":material/warning:")
    card.show(figures.atlas(run, **options, selected=selection.current(run)), on_point=selection.of_point)


def _compare_texts(run: Run, card: cards.Card, options: dict[str, str]) -> None:
    try:
        panel = figures.atlas_texts(run, **options, selected=selection.current(run))
    except MethodError as error:
        st.info(
            f"{said(error)}. A run with the texts exchanged shows it; methods that score once, as FLAP, are "
            "decided here.",
            icon=":material/info:",
        )
        return
    card.show(panel, on_point=selection.of_point)
