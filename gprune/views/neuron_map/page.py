"""Neuron map: which neurons of a layer are alike, and do those that are alike share a fate?"""

from __future__ import annotations

from typing import Any

import numpy as np
import streamlit as st

from gprune.analysis import neuron_map as analysis
from gprune.analysis.neuron_map import BEHAVIOUR, PARAMETERS
from gprune.analysis.signs import percent
from gprune.errors import MethodError
from gprune.views.frame import address, frame, selection
from gprune.views.frame.card import Card, card
from gprune.views.frame.chart_style import label
from gprune.views.frame.loaders import Run
from gprune.views.frame.text import plain, said
from gprune.views.neuron_map import charts, colouring, layout_job, pictures, region

_CAPTIONS = {
    pictures.PCA: "A point is a neuron; near each other: alike in the two directions in which the layer's "
    "neurons differ most. Click one to select it; the toolbar's lasso and box list those inside.",
    pictures.UMAP: "A point is a neuron; neighbours are alike, while axes and wide distances say nothing. "
    "Click one to select it; the toolbar's lasso and box list those inside.",
}


def show() -> None:
    """Draws the page."""
    frame.page_title(
        "Neuron map", "Which neurons of a layer are alike, and do neurons that are alike share a fate?"
    )
    run = frame.require_run()
    if run is None:
        return
    with card("nm_map", "The neurons of a layer", run) as drawn:
        _map(run, drawn)
    with card("nm_region", "The neurons that were drawn around", run) as drawn:
        region.show(run, drawn)


def _map(run: Run, drawn: Card) -> None:
    layers = pictures.layers_of(run)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        layer = selection.layer_field(run, "nm_layer", layers)
        basis = address.segmented("Alike by", pictures.BASES, "nm_basis", BEHAVIOUR)
        layout = address.segmented("Laid out by", pictures.LAYOUTS, "nm_layout", pictures.PCA)
        colour = address.selectbox("Colour", colouring.COLOURS, "nm_colour", colouring.MODULE, width=240)
        method = _method(run, colour)
    asked: dict[str, Any] = {
        "layer": layer,
        "basis": basis,
        "layout": layout,
        "colour": colour,
        "method": method,
    }
    wanted = pictures.wanted(run, layer, basis, layout)
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
        for name, words in pictures.others(run).items()
        if colour == colouring.TEXTS or name != "gprune"
    }
    words = "Masks of" if colour == colouring.TEXTS else "GPrune or"
    if not there:
        return ""
    return address.selectbox(words, there, "nm_method", pictures.preferred(run, colour), width=200)


def _chart(run: Run, drawn: Card, asked: dict[str, Any]) -> None:
    layer, layout, colour = asked["layer"], asked["layout"], asked["colour"]
    found = pictures.plane(run, layer, asked["basis"], layout)
    try:
        colours = colouring.of(run, layer, colour, asked["method"] or pictures.preferred(run, colour))
    except MethodError as reason:
        st.info(f"{said(reason)}. Choose another method, as FLAP.", icon=":material/info:")
        return
    drawn.title(_finding(asked, found.told, colours))
    neurons = len(found.places)
    if neurons > charts.MOST_POINTS:
        st.caption(
            f"{charts.MOST_POINTS:,} of {neurons:,} neurons shown, evenly spaced by number, because more "
            "points take longer to send than to look at; tables and CSV hold all."
        )
    drawn.chart(
        pictures.neuron_map(run, **asked, selected=selection.current(run)),
        _CAPTIONS[layout],
        alt=found.told,
        table=lambda: region.table(run, layer, np.arange(neurons), found.places),
        how=_how(run, asked),
        on_point=lambda point: region.click(run, layer, point),
        on_region=lambda points: region.draw(run, layer, points),
    )


def _finding(asked: dict[str, Any], told: str, colours: colouring.Colouring) -> str:
    """What the map shows, in words."""
    if asked["colour"] not in colouring.OF_MASKS:
        return f"Layer {asked['layer']} by {asked['basis']}: {plain(told)}"
    share = percent(colouring.decided_differently(colours), 1)
    of = plain(label(asked["method"])) if asked["method"] else "the run's masks"
    if asked["colour"] == colouring.TEXTS:
        return f"In layer {asked['layer']} the text decides {share} of the neurons of {of}"
    return f"In layer {asked['layer']} GPrune and {of} decide {share} of the neurons differently"


def _how(run: Run, asked: dict[str, Any]) -> str:
    """How the neurons became points."""
    if asked["basis"] == PARAMETERS:
        points = "A neuron is the direction of its weights: its rows of gate and up and its column of down."
    else:
        texts = pictures.letters(pictures.texts_of(run))
        points = (
            f"A neuron is what it does on {texts}: for every shard of each text the mean of its activation "
            "and its standard deviation over tokens, each standardised over the layer."
        )
    laid = (
        "PCA shows the two components of largest variance."
        if asked["layout"] == pictures.PCA
        else f"UMAP is given at most {analysis.MOST_COMPONENTS} principal components, takes "
        f"{analysis.NEIGHBOURS} neighbours, least distance {analysis.APART} and seed {run.study.seed}; "
        "another seed gives another picture."
    )
    scores = "Colours of scores are ranks within the layer, 0 least and 1 most important."
    kept = (
        "“Only A's scores”: kept by the method from the scores on A and not from those on B, at one budget."
    )
    return f"{points} {laid} {scores} {kept}"
