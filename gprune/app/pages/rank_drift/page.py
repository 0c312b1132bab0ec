"""Rank drift (Fig. 1a): which neurons move when the calibration text changes, and is it above the floor?"""

from typing import Any

import streamlit as st

from gprune.analysis import published
from gprune.app.pages.rank_drift import panels
from gprune.app.pages.rank_drift.panels import HISTOGRAM, SURVIVAL
from gprune.app.ui import derived_cache, frame, rest_of_page, selection, url_state
from gprune.app.ui.card import Card, await_drift, card, card_of, panel_card
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run

_FORMS = {SURVIVAL: "Share that moves by d or more", HISTOGRAM: "Histogram"}
_COLUMNS: dict[str, Any] = {
    name: st.column_config.NumberColumn(short, format="%.3f", width=width, help=words)
    for name, short, width, words in (
        ("drift d", "d", 50, "How far the rank moves from A to B"),
        ("rank on A", "on A", 52, "Rank on A; 1 = most important"),
        ("rank on B", "on B", 52, "Rank on B; 1 = most important"),
        ("A re-sampled", "noise A", 64, "How far the rank moves between halves of A"),
        ("B re-sampled", "noise B", 64, "How far the rank moves between halves of B"),
    )
} | {name: st.column_config.NumberColumn(width=width) for name, width in (("layer", 48), ("neuron", 60))}


@frame.page(
    "Rank drift",
    "Which neurons move when the calibration text changes, and is it above the re-sampling floor?",
)
def show(run: Run) -> None:
    """Draws the page."""
    with card_of(panels.drift, run) as drawn:
        _distribution(run, drawn)
    left, right = st.columns(2)
    with left:
        panel_card(panels.drift_by_layer, run, selection.of_point)
    with right:
        panel_card(panels.correlation, run, selection.of_point)
    if rest_of_page.waits():
        return
    left, right = st.columns(2)
    with left, card_of(panels.ranks, run) as drawn:
        layer = selection.layer_field(run, "rd_layer", len(run.load(stages.scores, "primary").ffn))
        shown = panels.ranks(run, layer=layer, selected=selection.current(run))
        drawn.show(shown, on_point=selection.of_point)
    with right, card("rd_top", "The neurons that move most", run) as drawn:
        _top(run, drawn)


def _distribution(run: Run, drawn: Card) -> None:
    await_drift(run, "rd_waiting", "The drift of every neuron is drawn here in a moment")
    run.key(stages.drift)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        form = url_state.segmented("Form", _FORMS, "rd_form", SURVIVAL)
        bins, log = panels.BINS, False
        if form == HISTOGRAM:
            bins = url_state.slider("Bins", "rd_bins", 50, 20, 100, 10, width=240)
            log = url_state.toggle("Log scale", "rd_log")
    drawn.show(panels.drift(run, form=form, bins=bins, log=log))
    drawn.published(published.DRIFT, run.study)


def _top(run: Run, drawn: Card) -> None:
    count = url_state.slider("Rows", "rd_rows", 50, 10, 500, 10, width=240)
    keys = (
        run.root,
        run.key(stages.drift),
        run.key(stages.scores, "primary"),
        run.key(stages.scores, "auxiliary"),
    )
    table = derived_cache.drift_top(*keys, int(count))
    drawn.title(f"The {len(table)} neurons that move most")
    drawn.asked(rows=int(count))
    shown = [name for name in table.columns if "score" not in name and name != "signed drift"]
    selection.table(
        table[shown],
        "rd_top_rows",
        height=440,
        column_config=_COLUMNS,
        alt="neurons with the largest drift",
    )
    st.caption("Ranks run from 0 to 1. Choose a row to select its neuron on every page.")
    drawn.tools(
        lambda: derived_cache.drift_top(*keys, derived_cache.MOST_TABLE_ROWS),
        switch=False,
        how="A neuron that also moves between halves of one text (last columns) is noisy rather than "
        "sensitive to the text. The CSV holds the first 2,000, with their scores.",
    )
