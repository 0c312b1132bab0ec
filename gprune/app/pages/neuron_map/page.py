"""Neuron map: which neurons of a layer are alike, and do those that are alike share a fate?"""

from typing import Any

import streamlit as st

from gprune.app.pages.neuron_map import charts, colouring, layout_job, panels, region
from gprune.app.ui import frame, selection, url_state
from gprune.app.ui.card import Card, card, card_of
from gprune.app.ui.text import said
from gprune.pipeline.runs.opened import Run
from gprune.pruning.neuron_embedding import BEHAVIOUR
from gprune.system.errors import MethodError


def show() -> None:
    """Draws the page."""
    frame.page_title(
        "Neuron map", "Which neurons of a layer are alike, and do neurons that are alike share a fate?"
    )
    run = frame.require_run()
    if run is None:
        return
    with card_of(panels.neuron_map, run) as drawn:
        _map(run, drawn)
    with card("nm_region", "The neurons that were drawn around", run) as drawn:
        region.show(run, drawn)


def _map(run: Run, drawn: Card) -> None:
    layers = panels.layers_of(run)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        layer = selection.layer_field(run, "nm_layer", layers)
        basis = url_state.segmented("Alike by", panels.BASES, "nm_basis", BEHAVIOUR)
        layout = url_state.segmented("Laid out by", panels.LAYOUTS, "nm_layout", panels.PCA)
        colour = url_state.selectbox("Colour", colouring.COLOURS, "nm_colour", colouring.MODULE, width=240)
        method = _method(run, colour)
    asked: dict[str, Any] = {
        "layer": layer,
        "basis": basis,
        "layout": layout,
        "colour": colour,
        "method": method,
    }
    wanted = panels.wanted(run, layer, basis, layout)
    if wanted is not None and not run.there(wanted):
        layout_job.offer(run, layer, basis, layout)
        return
    _chart(run, drawn, asked)


def _method(run: Run, colour: str) -> str:
    """The masks that a colour tells apart; empty where it needs none, or there are none."""
    if colour not in colouring.OF_MASKS or not run.masked:
        return ""
    there = {
        name: words
        for name, words in panels.others(run).items()
        if colour == colouring.TEXTS or name != "gprune"
    }
    words = "Masks of" if colour == colouring.TEXTS else "GPrune or"
    if not there:
        return ""
    return url_state.selectbox(words, there, "nm_method", panels.preferred(run, colour), width=200)


def _chart(run: Run, drawn: Card, asked: dict[str, Any]) -> None:
    layer = asked["layer"]
    found = panels.plane(run, layer, asked["basis"], asked["layout"])
    try:
        shown = panels.neuron_map(run, **asked, selected=selection.current(run))
    except MethodError as reason:
        st.info(f"{said(reason)}. Choose another method, as FLAP.", icon=":material/info:")
        return
    neurons = len(found.places)
    if neurons > charts.MOST_POINTS:
        st.caption(
            f"{charts.MOST_POINTS:,} of {neurons:,} neurons shown, evenly spaced by number, because more "
            "points take longer to send than to look at; tables and CSV hold all."
        )
    drawn.show(
        shown,
        on_point=lambda point: region.click(run, layer, point),
        on_region=lambda points: region.draw(run, layer, points),
    )
