"""Tab *Rank drift* (Fig. 1a): neurons whose rank changes with the calibration text, against resampling."""

from functools import partial
from typing import Any

import streamlit as st

from gprune.analysis import published
from gprune.app.figures import rank_drift as figures
from gprune.app.ui import card as cards
from gprune.app.ui import derived_cache, frame, rest_of_page, selection, url_state
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run

_FORMS = {figures.SURVIVAL: "Share that moves by d or more", figures.HISTOGRAM: "Histogram"}
_COLUMNS: dict[str, Any] = {
    name: st.column_config.NumberColumn(heading, format="%.3f", width=width, help=description)
    for name, heading, width, description in (
        ("drift d", "d", 50, "How far the rank moves from A to B"),
        ("rank on A", "on A", 52, "Rank on A; 1 = most important"),
        ("rank on B", "on B", 52, "Rank on B; 1 = most important"),
        ("A re-sampled", "noise A", 64, "How far the rank moves between halves of A"),
        ("B re-sampled", "noise B", 64, "How far the rank moves between halves of B"),
    )
} | {name: st.column_config.NumberColumn(width=width) for name, width in (("layer", 48), ("neuron", 60))}


@frame.page(
    "Rank drift", "Which neurons move when the calibration text changes, and is it above the re-sampling floor?"
)
def show(run: Run) -> None:
    """Draw the page."""
    with cards.card_of(figures.drift, run) as card:
        _show_distribution(run, card)
    left, right = st.columns(2)
    with left:
        cards.panel_card(figures.drift_by_layer, run, selection.of_point)
    with right:
        cards.panel_card(figures.correlation, run, selection.of_point)
    if rest_of_page.waits():
        return
    left, right = st.columns(2)
    with left, cards.card_of(figures.ranks, run) as card:
        layers = len(run.load(stages.scores, "primary").ffn)
        layer = selection.layer_field(run, "rd_layer", layers, figures.most_drifting_layer(run))
        card.show(figures.ranks(run, layer=layer, selected=selection.current(run)), on_point=selection.of_point)
    with right, cards.card("rd_top", "The neurons that move most", run) as card:
        _show_top_neurons(run, card)


def _show_distribution(run: Run, card: cards.Card) -> None:
    cards.await_drift(run, "rd_waiting", "The drift of every neuron is drawn here in a moment")
    run.key(stages.drift)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        form = url_state.segmented("Form", _FORMS, "rd_form", figures.SURVIVAL)
        bins, log = figures.BINS, False
        if form == figures.HISTOGRAM:
            bins = url_state.slider("Bins", "rd_bins", figures.BINS, 20, 100, 10, width=240)
            log = url_state.toggle("Log scale", "rd_log")
    card.show(figures.drift(run, form=form, bins=bins, log=log))
    card.published(published.DRIFT, run.study)


def _show_top_neurons(run: Run, card: cards.Card) -> None:
    rows = url_state.slider("Rows", "rd_rows", 50, 10, 500, 10, width=240)
    primary, auxiliary = (run.key(stages.scores, role) for role in stages.PAIR)
    read = partial(derived_cache.drift_top, run.root, run.key(stages.drift), primary, auxiliary)
    table = read(int(rows))
    card.title(f"The {len(table)} neurons that move most")
    card.asked(rows=int(rows))
    columns = [name for name in table.columns if "score" not in name and name != "signed drift"]
    selection.table(
        table[columns], "rd_top_rows", height=440, column_config=_COLUMNS, alt="neurons with the largest drift"
    )
    st.caption("Ranks run from 0 to 1. Choose a row to select its neuron on every page.")
    card.tools(
        lambda: read(derived_cache.MOST_TABLE_ROWS),
        switch=False,
        how="A neuron that also moves between halves of one text (last columns) is noisy rather than "
        "sensitive to the text. The CSV holds the first 2,000, with their scores.",
    )
