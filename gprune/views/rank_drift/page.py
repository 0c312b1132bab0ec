"""Rank drift (Fig. 1a): which neurons move when the calibration text changes, and is it above the floor?"""

from __future__ import annotations

from typing import Any

import streamlit as st

from gprune import stages
from gprune.analysis import drift as analysis
from gprune.analysis import published
from gprune.views.frame import address, derived, frame, selection, work
from gprune.views.frame.card import Card, card
from gprune.views.frame.chart_style import waiting
from gprune.views.frame.loaders import Run
from gprune.views.frame.text import plain
from gprune.views.rank_drift import pictures
from gprune.views.rank_drift.pictures import FINE, HISTOGRAM, SURVIVAL

_FORMS = {SURVIVAL: "Share that moves by d or more", HISTOGRAM: "Histogram"}
_CAPTIONS = {
    SURVIVAL: "How many neurons move by d or more; shaded is what lies above the re-sampling floor (grey).",
    HISTOGRAM: "Share of the neurons by how far their rank moves; grey is what re-sampling one text does.",
}
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


def show() -> None:
    """Draws the page."""
    frame.page_title(
        "Rank drift",
        "Which neurons move when the calibration text changes, and is it above the re-sampling floor?",
    )
    run = frame.require_run()
    if run is None:
        return
    with card("rd_histogram", "Rank drift of all neurons", run) as drawn:
        _distribution(run, drawn)
    left, right = st.columns(2)
    with left, card("rd_layers", "Which layers drift?", run) as drawn:
        _layers(run, drawn)
    with right, card("rd_correlation", "How well do the ranks agree, layer by layer?", run) as drawn:
        _correlations(run, drawn)
    left, right = st.columns(2)
    with left, card("rd_joint", "Rank on A against rank on B", run) as drawn:
        _joint(run, drawn)
    with right, card("rd_top", "The neurons that move most", run) as drawn:
        _top(run, drawn)


def _distribution(run: Run, drawn: Card) -> None:
    if not run.has(stages.drift) and work.is_live(run):
        sentence = "The drift of every neuron is drawn here in a moment"
        st.plotly_chart(waiting(sentence), key="rd_waiting", config={"displayModeBar": False}, alt=sentence)
    key = run.key(stages.drift)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        form = address.segmented("Form", _FORMS, "rd_form", SURVIVAL)
        bins, log = FINE, False
        if form == HISTOGRAM:
            bins = address.slider("Bins", "rd_bins", 50, 20, 100, 10, width=240)
            log = address.toggle("Log scale", "rd_log")
    curves = derived.drift_curves(run.root, key, bins)
    figure = pictures.drift(run, form=form, bins=bins if form == HISTOGRAM else pictures.BINS, log=log)
    drawn.title(analysis.headline(curves))
    cross, _, floor_a, _ = curves
    drawn.chart(
        figure,
        _CAPTIONS[form],
        alt=f"median drift {cross.median:.3f} across texts, {floor_a.median:.3f} re-sampled",
        table=lambda: analysis.distribution_table(curves),
        how=_how(run),
    )
    drawn.published(published.DRIFT, run.study)


def _how(run: Run) -> str:
    neurons = run.load(stages.drift).magnitude.size
    return (
        f"The drift d of a neuron is how far its rank within the layer moves when the importance scores "
        f"({plain(run.study.metric)}) come from B = {plain(run.study.auxiliary)} instead of "
        f"A = {plain(run.study.primary)}; {neurons:,} FFN neurons. Grey: two disjoint halves of one text, "
        "what noise alone does. Dashed: halves of A against halves of B, equal in size to the grey ones. "
        "ρ is the Spearman correlation, median over layers."
    )


def _layers(run: Run, drawn: Card) -> None:
    table = derived.drift_layers(run.root, run.key(stages.drift))
    worst = int(table["median drift A|B"].to_numpy().argmax())
    if len(table) > 1:
        drawn.title(f"Layer {worst} drifts most: median d {table['median drift A|B'][worst]:.3f}")
    drawn.chart(
        pictures.drift_by_layer(run, selected=selection.current(run)),
        "Each row is a layer; colour is the share of its neurons. Click one to select it.",
        table=lambda: table,
        on_point=selection.of_point,
    )


def _correlations(run: Run, drawn: Card) -> None:
    table = derived.drift_layers(run.root, run.key(stages.drift))
    drawn.chart(
        pictures.correlation(run, selected=selection.current(run)),
        "Spearman correlation of the ranks in each layer; grey is what re-sampling one text leaves.",
        table=lambda: table,
        on_point=selection.of_point,
    )


def _joint(run: Run, drawn: Card) -> None:
    layer = selection.layer_field(run, "rd_layer", len(run.load(stages.scores, "primary").ffn))
    rho = float(run.load(stages.drift).correlation[layer])
    drawn.title(f"Rank on A against rank on B in layer {layer}: Spearman {rho:.2f}")
    drawn.chart(
        pictures.ranks(run, layer=layer, selected=selection.current(run)),
        "On the dashed line a neuron has the same rank on both texts; 1 = most important.",
        on_point=selection.of_point,
    )


def _top(run: Run, drawn: Card) -> None:
    count = address.slider("Rows", "rd_rows", 50, 10, 500, 10, width=240)
    keys = (
        run.root,
        run.key(stages.drift),
        run.key(stages.scores, "primary"),
        run.key(stages.scores, "auxiliary"),
    )
    table = derived.drift_top(*keys, int(count))
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
        lambda: derived.drift_top(*keys, derived.MOST_TABLE_ROWS),
        switch=False,
        how="A neuron that also moves between halves of one text (last columns) is noisy rather than "
        "sensitive to the text. The CSV holds the first 2,000, with their scores.",
    )
