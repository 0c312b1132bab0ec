"""The neurons inside a box or a lasso: their table, and the way to each of them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import streamlit as st

from gprune.app.pages.neuron_map import panels
from gprune.app.ui import derived_cache, navigation, selection, tables, url_state
from gprune.app.ui.card import Card
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.records import Array

_KEY = "nm_region_drawn"
_NONE = (
    "Choose the lasso or the box in the toolbar of the map and draw around points: their neurons are listed "
    "here. Until then those of the selected module are."
)
_EMPTY = "No neuron lies inside what was drawn: draw around some points."
_COLUMNS: dict[str, Any] = {
    name: st.column_config.NumberColumn(format="%.3f") for name in ("drift d", "rank on A", "rank on B")
} | {name: st.column_config.NumberColumn(format="%.4g") for name in ("score on A", "score on B")}


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
        selection.select(layer, _module(run, layer, neuron), neuron)


def draw(run: Run, layer: int, points: list[dict[str, Any]]) -> None:
    """Takes over what was drawn around; for callbacks."""
    found = {neuron for neuron in map(neuron_of, points) if neuron is not None}
    st.session_state[_KEY] = Region(run.name, layer, tuple(sorted(found)))


def _module(run: Run, layer: int, neuron: int) -> int | None:
    return int(run.load(stages.partition).labels[layer][neuron]) if run.has(stages.partition) else None


def show(run: Run, drawn: Card) -> None:
    """Draws the card: what was drawn around, else the selected module, which needs no mouse.

    Raises:
        StoreError: a result is damaged.
    """
    layer, neurons, words = _listed(run)
    if neurons is None:
        st.caption(_NONE)
        return
    if not len(neurons):
        st.info(_EMPTY, icon=":material/highlight_alt:")
        return
    drawn.title(f"{len(neurons):,} neurons of layer {layer} {words}")
    every = panels.neuron_table(run, layer, neurons)
    most = derived_cache.MOST_TABLE_ROWS
    if len(every) > most:
        st.caption(f"{most:,} of {len(every):,} rows shown, because a table is sent whole; the CSV has all.")
    selection.table(
        every.head(most),
        "nm_region_rows",
        height=min(360, tables.height(len(every))),
        column_config=_COLUMNS,
        alt="neurons that were drawn around",
    )
    drawn.tools(
        lambda: every,
        switch=False,
        caption="Choose a row to select its neuron on every page. Ranks run from 0 to 1.",
    )
    _onward(run)


def _listed(run: Run) -> tuple[int, Array | None, str]:
    """The layer, the neurons to list and why these; None where there are none to list."""
    layer, held, chosen = _layer(run), st.session_state.get(_KEY), selection.current(run)
    if isinstance(held, Region) and held.run == run.name and held.layer == layer:
        return layer, np.array(held.neurons, dtype=np.int64), "were drawn around"
    if chosen.module is not None and run.has(stages.partition):
        members = np.flatnonzero(run.load(stages.partition).labels[layer] == chosen.module)
        return layer, members, f"are module {chosen.module}, which is selected"
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
    where = url_state.link("inspector", navigation.SHARED)
    words = f"Open {chosen.words} in the Inspector"
    st.page_link("pages/inspection.py", label=words, icon=":material/search:", query_params=where or None)
