"""Neuron map: which neurons of a layer are alike, and are they pruned together?"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import streamlit as st

from gprune.analysis.formatting import counted
from gprune.app.pages.neuron_map import charts, colouring, panels
from gprune.app.ui import derived_cache, frame, offered_job, places, selection, tables, url_state
from gprune.app.ui.card import Card, card, card_of
from gprune.app.ui.text import said
from gprune.models import identity
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.pruning import neuron_embedding as analysis
from gprune.pruning.neuron_embedding import BEHAVIOUR, PARAMETERS
from gprune.records import Array
from gprune.system.errors import MethodError

_REGION = "nm_region_drawn"
_NONE = (
    "Choose the lasso or the box in the toolbar of the map and draw around points: their neurons are listed "
    "here. Until then those of the selected module are."
)
_EMPTY = "No neuron lies inside what was drawn: draw around some points."
_FORMS = dict.fromkeys(("drift d", "rank on A", "rank on B"), "%.3f")
_FORMS |= dict.fromkeys(("score on A", "score on B"), "%.4g")


@frame.page("Neuron map", "Which neurons of a layer are alike, and are they pruned together?")
def show(run: Run) -> None:
    """Draws the page."""
    with card_of(panels.neuron_map, run) as drawn:
        _map(run, drawn)
    with card("nm_region", "Selected neurons", run) as drawn:
        _drawn_around(run, drawn)


def _map(run: Run, drawn: Card) -> None:
    layers = run.load(stages.shape).layers
    with st.container(horizontal=True, vertical_alignment="bottom"):
        layer = selection.layer_field(run, "nm_layer", layers)
        basis = url_state.segmented("Alike by", panels.BASES, "nm_basis", BEHAVIOUR)
        layout = url_state.segmented("Laid out by", panels.LAYOUTS, "nm_layout", panels.UMAP)
        opening = colouring.opening(run)
        colour = url_state.selectbox("Colour", colouring.COLOURS, "nm_colour", opening, width=240)
        method = _method(run, colour)
    asked: dict[str, Any] = {
        "layer": layer,
        "basis": basis,
        "layout": layout,
        "colour": colour,
        "method": method,
    }
    wanted = panels.wanted(run, layer, basis, layout)
    if wanted is None or run.there(wanted):
        _chart(run, drawn, asked)
        return
    components = panels.wanted(run, layer, basis, panels.PCA)
    if layout == panels.UMAP and (components is None or run.there(components)):
        st.caption(f"UMAP of layer {layer} is not there yet, and PCA stands in its place: see below the map.")
        _chart(run, drawn, asked | {"layout": panels.PCA})
    _offer(run, layer, basis, layout)


def _method(run: Run, colour: str) -> str:
    """The masks that a colour tells apart; empty where it needs none, or there are none."""
    if colour not in colouring.OF_MASKS or not run.masked:
        return ""
    there = {name: words for name, words in panels.others(run).items() if colour == colouring.TEXTS or name != "gprune"}
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
        on_point=lambda point: click(run, layer, point),
        on_region=lambda points: draw(run, layer, points),
    )


def _offer(run: Run, layer: int, basis: str, layout: str) -> None:
    """Says what is missing, and starts the job that makes it or says how far that is.

    Raises SettingsError where the layer has too few neurons, ModelError where the weights are needed and the
    model is not here, NumericsError where all neurons of the layer do the same.
    """
    analysis.require_enough(run.load(stages.shape).neurons)
    if basis == PARAMETERS:
        identity.locate(run.study.model)
    else:
        # what cannot be laid out is said before a job fails of it
        panels.plane(run, layer, basis, panels.PCA)
    why = "UMAP takes about half a minute" if layout == panels.UMAP else "The weights are read from the model"
    st.info(
        f"{why}: a job lays out layer {layer} by {basis}, once, and keeps it in the cache.",
        icon=":material/scatter_plot:",
    )
    title = f"Neuron map of layer {layer} by {basis}"
    offered_job.draw(run, arguments_of(run, layer, basis), title, words="Lay it out", key="nm_start")


def arguments_of(run: Run, layer: int, basis: str) -> tuple[str, ...]:
    """The command that lays out a layer, after `python -m gprune`."""
    return ("map", run.name, "--layer", str(layer), "--of", basis, "--cache", run.root)


@dataclass(frozen=True, slots=True)
class Region:
    """What a person has drawn around."""

    run: str
    layer: int
    neurons: tuple[int, ...]


def neuron_of(point: dict[str, Any]) -> int | None:
    """The neuron that a mark stands for; None for a mark that is none."""
    data = point.get("customdata")
    if isinstance(data, dict | list):
        data = next(iter(selection.custom_data(point)), None)
    return int(data) if isinstance(data, int | float) else None


def click(run: Run, layer: int, point: dict[str, Any]) -> None:
    """Selects the neuron of a mark; for callbacks."""
    neuron = neuron_of(point)
    if neuron is not None:
        labels = run.load(stages.partition).labels if run.has(stages.partition) else None
        selection.select(layer, None if labels is None else int(labels[layer][neuron]), neuron)


def draw(run: Run, layer: int, points: list[dict[str, Any]]) -> None:
    """Takes over what was drawn around; for callbacks."""
    found = {neuron for neuron in map(neuron_of, points) if neuron is not None}
    st.session_state[_REGION] = Region(run.name, layer, tuple(sorted(found)))


def _drawn_around(run: Run, drawn: Card) -> None:
    """Draws the card: what was drawn around, else the selected module, which needs no mouse.

    Raises StoreError where a result is damaged.
    """
    layer, neurons, words = _listed(run)
    if neurons is None:
        st.caption(_NONE)
        return
    if not len(neurons):
        st.info(_EMPTY, icon=":material/highlight_alt:")
        return
    drawn.title(f"{counted(len(neurons), 'neuron')} of layer {layer} {words}")
    every = panels.neuron_table(run, layer, neurons)
    most = derived_cache.MOST_TABLE_ROWS
    if len(every) > most:
        st.caption(f"{most:,} of {len(every):,} rows shown, because a table is sent whole; the CSV has all.")
    selection.table(
        every.head(most),
        "nm_region_rows",
        height=min(360, tables.height(len(every))),
        forms=_FORMS,
        alt="selected neurons",
    )
    drawn.tools(
        lambda: every,
        switch=False,
        caption="Select a row, and its neuron is selected on every page. Ranks run from 0 to 1.",
        how="The selected neurons: inside of the lasso, or of the selected group. A rank of 1 is the most "
        "important of its layer on that text; drift is how far the rank moves between A and B.",
    )
    _onward(run)


def _listed(run: Run) -> tuple[int, Array | None, str]:
    """The layer, the neurons to list and why these; None where there are none to list."""
    layer, held, chosen = _layer(run), st.session_state.get(_REGION), selection.current(run)
    if isinstance(held, Region) and held.run == run.name and held.layer == layer:
        return layer, np.array(held.neurons, dtype=np.int64), "selected"
    if chosen.module is not None and run.has(stages.partition):
        members = np.flatnonzero(run.load(stages.partition).labels[layer] == chosen.module)
        return layer, members, f"in the selected module {chosen.module}"
    return layer, None, ""


def _layer(run: Run) -> int:
    """The layer that the map shows."""
    found, layers = selection.current(run).layer, run.load(stages.shape).layers
    return found if found is not None else layers // 2


def _onward(run: Run) -> None:
    """The way to the page of the selected neuron."""
    chosen = selection.current(run)
    if chosen.neuron is None:
        return
    words = f"Open {chosen.words} in the Inspector"
    places.link("inspector", words, ":material/search:")
