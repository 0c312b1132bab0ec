"""The Neuron map tab: neurons of a layer that are alike, and whether they are pruned together."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import streamlit as st

from gprune.analysis.formatting import format_count
from gprune.app.figures import neurons as figures
from gprune.app.ui import address, derived_cache, frame, selection, tables, work
from gprune.app.ui import card as cards
from gprune.app.ui.chart_style import label
from gprune.app.ui.panel import module_labels
from gprune.app.ui.text import escape_error, name_texts
from gprune.models import identity
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.pruning import neuron_embedding
from gprune.pruning.neuron_embedding import BEHAVIOUR, PARAMETERS
from gprune.records import Array
from gprune.system.errors import MethodError

_REGION = "nm_region_drawn"
"""session key of the latest Region"""
_NO_REGION = (
    "Draw around points with the lasso or box of the map's toolbar to list their neurons here. Without a region, the "
    "neurons of the selected module are listed."
)
_EMPTY_REGION = "No neuron is inside the region. Draw around some points."
_FORMATS = dict.fromkeys(("drift d", "rank on A", "rank on B"), "%.3f")
_FORMATS |= dict.fromkeys(("score on A", "score on B"), "%.4g")


@dataclass(frozen=True, slots=True)
class Region:
    """Neurons of a layer inside a lasso or a box."""

    run: str
    layer: int
    neurons: tuple[int, ...]


@frame.declare_page("Neuron map", "Which neurons of a layer are alike, and are they pruned together?")
def show(run: Run) -> None:
    """Draw the page."""
    with cards.card_of(figures.neuron_map, run) as card:
        _show_map(run, card)
    with cards.card("nm_region", "Selected neurons", run) as card:
        _show_region(run, card)


def _show_map(run: Run, card: cards.Card) -> None:
    layers = run.load(stages.shape).layers
    with st.container(horizontal=True, vertical_alignment="bottom"):
        layer = selection.layer_field(run, "nm_layer", layers)
        basis = address.segmented_control("Similarity", figures.BASES, "nm_basis", BEHAVIOUR)
        layout = address.segmented_control("Layout", figures.LAYOUTS, "nm_layout", figures.UMAP)
        default = figures.default_coloring(run)
        colorings = {key: name_texts(words, run.study) for key, words in figures.COLORINGS.items()}
        colour = address.selectbox("Colour", colorings, "nm_colour", default, width=240)
        method = _choose_method(run, colour)
    options = {"layer": layer, "basis": basis, "layout": layout, "colour": colour, "method": method}
    if _is_available(run, layer, basis, layout):
        _draw_map(run, card, options)
        return
    if layout == figures.UMAP and _is_available(run, layer, basis, figures.PCA):
        st.caption(f"UMAP of layer {layer} is not computed yet; showing PCA. The card below the map computes it.")
        _draw_map(run, card, options | {"layout": figures.PCA})
    _offer_job(run, layer, basis, layout)


def _is_available(run: Run, layer: int, basis: str, layout: str) -> bool:
    stage = figures.plane_stage(run, layer, basis, layout)
    return stage is None or run.has_result(stage)


def _choose_method(run: Run, colour: str) -> str:
    labels = {name: label(name) for name in figures.mask_choices(run, colour)}
    if colour not in figures.MASK_COLORINGS or not labels:
        return ""
    heading = "Masks of" if colour == figures.TEXT_MASKS else "Compare GPrune with"
    return address.selectbox(heading, labels, "nm_method", figures.default_masks(run, colour), width=200)


def _draw_map(run: Run, card: cards.Card, options: dict[str, Any]) -> None:
    layer = options["layer"]
    neurons = len(figures.load_plane(run, layer, options["basis"], options["layout"]).points)
    try:
        panel = figures.neuron_map(run, **options, selected=selection.current_selection(run))
    except MethodError as error:
        st.info(f"{escape_error(error)}. Choose another method, such as FLAP.", icon=":material/info:")
        return
    if neurons > figures.MOST_POINTS:
        st.caption(
            f"{figures.MOST_POINTS:,} of {neurons:,} neurons shown, evenly spaced by number; tables and CSV have all."
        )
    card.show(
        panel,
        on_point=lambda point: select_point(run, layer, point),
        on_region=lambda points: _store_region(run, layer, points),
    )


def _offer_job(run: Run, layer: int, basis: str, layout: str) -> None:
    neuron_embedding.require_enough_neurons(run.load(stages.shape).neurons)
    # a job that would fail is not offered: the card shows the error
    if basis == PARAMETERS:
        identity.locate(run.study.model)
    else:
        figures.load_plane(run, layer, basis, figures.PCA)
    cost = "UMAP takes about half a minute" if layout == figures.UMAP else "The weights are read from the model"
    st.info(
        f"{cost}. A job computes the map of layer {layer} by {basis} once and caches it.",
        icon=":material/scatter_plot:",
    )
    title = f"Neuron map of layer {layer} by {basis}"
    arguments = ("map", run.name, "--layer", str(layer), "--of", basis, "--cache", run.root)
    work.draw_job_form(run, arguments, title, words="Compute map", key="nm_start")


def neuron_of(point: dict[str, Any]) -> int | None:
    """Return the neuron that a clicked point stands for, or None if it is not a neuron."""
    data = point.get("customdata")
    if isinstance(data, dict | list):
        data = next(iter(selection.custom_data(point)), None)
    return int(data) if isinstance(data, int | float) else None


def select_point(run: Run, layer: int, point: dict[str, Any]) -> None:
    """Select the neuron that a clicked mark stands for; called from callbacks."""
    neuron = neuron_of(point)
    if neuron is not None:
        labels = module_labels(run, layer)
        selection.select(layer, None if labels is None else int(labels[neuron]), neuron)


def _store_region(run: Run, layer: int, points: list[dict[str, Any]]) -> None:
    neurons = {neuron for neuron in map(neuron_of, points) if neuron is not None}
    st.session_state[_REGION] = Region(run.name, layer, tuple(sorted(neurons)))


def _show_region(run: Run, card: cards.Card) -> None:
    """Draw the neurons of the region or, without one, of the selected module, which can be selected without a mouse."""
    selected = selection.current_selection(run)
    layer = selected.layer if selected.layer is not None else run.load(stages.shape).layers // 2
    neurons, phrase = _region_neurons(run, layer)
    if neurons is None:
        st.caption(_NO_REGION)
        return
    if not len(neurons):
        st.info(_EMPTY_REGION, icon=":material/highlight_alt:")
        return
    card.set_title(f"{format_count(len(neurons), 'neuron')} of layer {layer} {phrase}")
    table, limit = figures.neuron_table(run, layer, neurons), derived_cache.MOST_TABLE_ROWS
    if len(table) > limit:
        st.caption(f"{limit:,} of {len(table):,} rows shown; the CSV has all.")
    height = min(360, tables.height(len(table)))
    selection.draw_table(
        table.head(limit), "nm_region_rows", height=height, forms=_FORMATS,
        heading=partial(name_texts, settings=run.study), alt="selected neurons",
    )  # fmt: skip
    card.tools(
        lambda: table,
        switch=False,
        caption="Select a row to select its neuron on every page. Ranks run from 0 to 1.",
        how="The listed neurons are inside the lasso or in the selected module. A rank of 1 is the most important of "
        "the layer on that text; drift is the shift of the rank between the two.",
    )
    if selected.neuron is not None:
        address.link("inspector", f"Open {selected.words} in the Inspector", ":material/search:")


def _region_neurons(run: Run, layer: int) -> tuple[Array | None, str]:
    """Return the neurons of the region or selected module, and a phrase for the title; None if there is neither."""
    region, module, labels = (
        st.session_state.get(_REGION),
        selection.current_selection(run).module,
        module_labels(run, layer),
    )
    if isinstance(region, Region) and (region.run, region.layer) == (run.name, layer):
        return np.array(region.neurons, dtype=np.int64), "selected"
    if module is not None and labels is not None:
        return np.flatnonzero(labels == module), f"in the selected module {module}"
    return None, ""
