"""Rank drift (Fig. 1a): which neurons move when the calibration text changes, and is it above the floor?"""

from __future__ import annotations

import streamlit as st

from gprune import stages
from gprune.analysis import drift as analysis
from gprune.analysis import published
from gprune.views.frame import derived, frame, work
from gprune.views.frame.card import Card, card
from gprune.views.frame.chart_style import waiting
from gprune.views.frame.loaders import Run
from gprune.views.frame.text import plain
from gprune.views.rank_drift import charts as figures


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
        _histogram(run, drawn)
    left, right = st.columns(2)
    with left, card("rd_layers", "Which layers drift?", run) as drawn:
        _layers(run, drawn)
    with right, card("rd_correlation", "How well do the ranks agree, layer by layer?", run) as drawn:
        _correlations(run, drawn)
    left, right = st.columns([2, 3])
    with left, card("rd_joint", "Rank on A against rank on B", run) as drawn:
        _joint(run, drawn)
    with right, card("rd_top", "The neurons that move most", run) as drawn:
        _top(run, drawn)


def _histogram(run: Run, drawn: Card) -> None:
    if not run.has(stages.drift) and work.is_live(run):
        sentence = "The drift of every neuron is drawn here in a moment"
        st.plotly_chart(waiting(sentence), key="rd_waiting", config={"displayModeBar": False}, alt=sentence)
    key = run.key(stages.drift)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        bins = st.slider("Bins", 20, 100, 50, 10, key="rd_bins", bind="query-params", width=240)
        log = st.toggle("Log scale", key="rd_log", bind="query-params")
    curves = derived.drift_curves(run.root, key, bins)
    drawn.title(analysis.headline(curves))
    neurons = run.load(stages.drift).magnitude.size
    cross, _, floor_a, _ = curves
    drawn.chart(
        figures.histogram(curves, log),
        f"Share of the {neurons:,} FFN neurons by how far their rank within the layer moves "
        f"(A = {plain(run.study.primary)}, B = {plain(run.study.auxiliary)}, metric "
        f"{plain(run.study.metric)}). Grey: "
        "two disjoint halves of one text, what noise alone does; dashed: halves of A against halves of B, "
        "equal "
        "in size to the grey ones. ρ is the Spearman correlation, median over layers.",
        alt=f"median drift {cross.median:.3f} across texts, {floor_a.median:.3f} re-sampled",
        table=lambda: analysis.distribution_table(curves),
    )
    drawn.published(published.DRIFT, run.study)


def _layers(run: Run, drawn: Card) -> None:
    matrix = derived.drift_by_layer(run.root, run.key(stages.drift), 40)
    table = derived.drift_layers(run.root, run.key(stages.drift))
    worst = int(table["median drift A|B"].to_numpy().argmax())
    if len(table) > 1:
        drawn.title(f"Layer {worst} drifts most: median d {table['median drift A|B'][worst]:.3f}")
    drawn.chart(
        figures.layers(matrix),
        "Each row is a layer; colour is the share of its neurons in a bin of drift A | B.",
        table=lambda: table,
    )


def _correlations(run: Run, drawn: Card) -> None:
    table = derived.drift_layers(run.root, run.key(stages.drift))
    drawn.chart(
        figures.correlations(table),
        "Spearman correlation of the ranks within each layer; grey is what re-sampling one text leaves.",
        table=lambda: table,
    )


def _joint(run: Run, drawn: Card) -> None:
    primary, auxiliary = (run.load(stages.scores, role) for role in stages.PAIR)
    layers = len(primary.ffn)
    layer = st.number_input(
        "Layer", 0, layers - 1, min(layers // 2, layers - 1), key="rd_layer", bind="query-params", width=160
    )
    layer = min(max(int(layer or 0), 0), layers - 1)
    rho = float(run.load(stages.drift).correlation[layer])
    drawn.title(f"Rank on A against rank on B in layer {layer}: Spearman {rho:.2f}")
    drawn.chart(
        figures.joint(primary.ffn[layer], auxiliary.ffn[layer], layer),
        "On the dashed line a neuron has the same rank on both texts; ranks are scaled to 0 … 1, 1 = most "
        "important.",
    )


def _top(run: Run, drawn: Card) -> None:
    count = st.slider("Rows", 10, 500, 50, 10, key="rd_rows", bind="query-params", width=240)
    keys = (
        run.root,
        run.key(stages.drift),
        run.key(stages.scores, "primary"),
        run.key(stages.scores, "auxiliary"),
    )
    table = derived.drift_top(*keys, int(count))
    drawn.title(f"The {len(table)} neurons that move most")
    decimals = st.column_config.NumberColumn(format="%.3f")
    shown = [name for name in table.columns if "score" not in name and name != "signed drift"]
    st.dataframe(
        table[shown],
        hide_index=True,
        height=460,
        column_config={name: decimals for name in shown[2:]},
        alt="neurons with the largest drift",
    )
    st.caption(
        "Ranks are scaled to 0 … 1. A neuron that also moves between halves of one text (last columns) is "
        "noisy rather than sensitive to the text. The CSV holds the first 2,000, with their scores."
    )
    drawn.tools(lambda: derived.drift_top(*keys, derived.MOST_TABLE_ROWS), switch=False)
