"""The selection that every page marks: a layer, and optionally a module or a neuron of it."""

from collections.abc import Callable
from typing import Any

import pandas as pd
import streamlit as st

from gprune.app.ui import address, components, tables
from gprune.app.ui.panel import KEYS, Selection, available_part
from gprune.app.ui.text import escape_error
from gprune.pipeline.runs.opened import Run
from gprune.system.errors import GpruneError

PLACE = "inspector"
"""the place that shows the selected unit"""
_LONGEST = 80
"""maximum number of characters of a search"""
_ERROR, _IS_OPENING = "find_error", "find_on_the_way"
"""session keys: the error of the last search, and whether the Inspector is being opened"""


def requested_selection() -> Selection:
    """Return the selection in the address, even if the current run lacks a part of it."""
    layer, module, neuron = (address.read_index(key) for key in KEYS)
    return Selection(layer, module, neuron) if layer is not None else Selection()


def current_selection(run: Run) -> Selection:
    """Return the part of the selection that exists in the run."""
    return available_part(run, requested_selection())[0]


def select(layer: int | None, module: int | None = None, neuron: int | None = None) -> None:
    """Select a unit, or clear the selection if `layer` is None; for callbacks."""
    parts = (layer, module, neuron) if layer is not None else (None, None, None)
    address.set_values(dict(zip(KEYS, parts, strict=True)))


def select_mark(point: dict[str, Any]) -> None:
    """Select the unit of a clicked mark, whose custom data begin with layer, module and neuron, -1 for none."""
    values = custom_data(point)[: len(KEYS)]
    parts = [int(value) if int(value) >= 0 else None for value in values]
    if parts and parts[0] is not None:
        select(*parts)


def custom_data(point: dict[str, Any]) -> list[Any]:
    """Return the custom data of a clicked mark as a list."""
    data = point.get("customdata")
    # an array that was sent to the browser as bytes comes back as a dictionary by index
    return list(data.values() if isinstance(data, dict) else data or [])


def layer_field(run: Run, key: str, layers: int, default: int | None = None) -> int:
    """Draw the field for the layer of a card, and return it: the selected one, else the default or the middle."""
    selected = current_selection(run).layer
    layer = layers // 2 if default is None else default
    if selected is not None and selected < layers:
        layer = selected
    st.session_state[key] = layer
    st.number_input("Layer", 0, layers - 1, key=key, on_change=_store_layer, args=(key,), width=160)
    return layer


def _store_layer(key: str) -> None:
    typed = st.session_state.get(key)
    if typed is not None:
        address.defer_change(key, lambda: select(int(typed)))


def draw_table(frame: pd.DataFrame, key: str, after: Callable[[], None] | None = None, **options: Any) -> None:
    """Draw a table; a click on a row selects the unit in its columns KEYS, and then calls `after`."""

    def select_row(row_number: int) -> None:
        row = frame.iloc[row_number]
        select(*(int(row[name]) if name in frame.columns else None for name in KEYS))
        if after is not None:
            after()

    tables.show(frame, key=key, on_row=select_row, **options)


def draw_chip(run: Run) -> None:
    """Draw the selection as a button that clears it."""
    requested = requested_selection()
    if not requested:
        return
    components.action_button(
        requested.words, "frame_selection", "close", select, None,
        help="Selected on every page; click to clear.", width="stretch",
    )  # fmt: skip
    if address.current_place() != PLACE:
        address.link(PLACE, "Open in Inspector", ":material/frame_inspect:", width="stretch")
    unit = current_selection(run)
    if unit.module is None and unit.neuron is not None:
        st.caption("Modules of this run are not computed yet.")


def warn_of_missing(run: Run, slot: Any) -> None:
    """Write into a slot which part of the selection the run lacks."""
    if missing := available_part(run, requested_selection())[1]:
        slot.warning(f"This run has no {missing}.", icon=":material/search_off:")


def draw_search(run: Run) -> None:
    """Draw the search field of the sidebar, except on the Inspector, which has its own."""
    if address.current_place() == PLACE:
        st.session_state.pop(_IS_OPENING, None)
        return
    if st.session_state.get(_IS_OPENING):
        # repeated until it succeeds: an event of a page that is still being drawn can interrupt the change of page
        address.open_page(PLACE)
    search_field(run, "frame_find", placeholder="Find a neuron: L5N688", label_visibility="collapsed")


def search_field(run: Run, key: str, **options: object) -> None:
    """Draw the field that finds a unit, and below it the reason if the last search failed."""
    st.text_input("Find", key=key, on_change=_start_search, args=(run, key), **options)  # type: ignore[call-overload]
    if problem := st.session_state.pop(_ERROR, ""):
        st.error(escape_error(problem), icon=":material/search_off:")


def _start_search(run: Run, key: str) -> None:
    # the field itself has no limit, because the sidebar has no room to display the limit
    typed = str(st.session_state.get(key) or "")[:_LONGEST]
    if typed.strip():
        address.defer_change(key, lambda: _find_unit(run, key, typed))


def _find_unit(run: Run, key: str, typed: str) -> None:
    from gprune.analysis import inspection

    try:
        unit = Selection(**inspection.parse_unit(typed))
        missing = available_part(run, unit)[1]
    except GpruneError as error:
        st.session_state[_ERROR] = str(error)
        return
    if missing:
        st.session_state[_ERROR] = f"this run has no {missing}"
        return
    st.session_state[key] = ""
    st.session_state[_IS_OPENING] = True
    select(unit.layer, unit.module, unit.neuron)
