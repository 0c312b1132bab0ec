"""Figures of the rank drift page (Fig. 1a)."""

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from gprune.analysis import drift as analysis
from gprune.app.ui import chart_style, marks
from gprune.app.ui.chart_style import GREY, MAGNITUDE, PAIR, layer_axis, style
from gprune.app.ui.unit import NOTHING, Selection
from gprune.pruning.ranking import ranks
from gprune.records import Array

MOST_POINTS = 1500
"""a layer with more neurons is drawn as a two-dimensional histogram"""
LARGEST_GRID = 48
LAYERS_HEIGHT, JOINT_HEIGHT = 340, 440
"""cards that stand side by side are equally high"""

DRIFT_AXIS = "rank drift d (0 = rank unchanged, 1 = from first to last)"
_LINES = {
    analysis.CROSS: {"color": PAIR, "dash": "solid", "width": 3},
    analysis.HALVES: {"color": PAIR, "dash": "dash", "width": 2},
    analysis.FLOOR_PRIMARY: {"color": GREY, "dash": "solid", "width": 2},
    analysis.FLOOR_AUXILIARY: {"color": GREY, "dash": "dot", "width": 2},
}


def survival(curves: list[analysis.Distribution]) -> go.Figure:
    """Share of neurons that move by d or more; what A|B has above the higher re-sampling floor is shaded."""
    figure = go.Figure()
    edges, beyond = marks.excess(figure, curves)
    for curve in curves:
        hover = f"%{{y:.1f}} % move by %{{x:.3f}} or more<extra>{curve.name}</extra>"
        marks.curve(figure, edges, beyond[curve.name], _named(curve), _LINES[curve.name], hover)
    style(figure, DRIFT_AXIS, "neurons that move by d or more (%)", 420)
    figure.update_xaxes(range=[0, marks.drift_end(curves)])
    return figure.update_yaxes(range=[0, 101])


def _named(curve: analysis.Distribution) -> str:
    return f"{curve.name}: median d {curve.median:.3f}, ρ {curve.correlation:.2f}"


def histogram(curves: list[analysis.Distribution], log: bool) -> go.Figure:
    """Overlaid histograms of the drift, pre-binned: A|B filled, the floors as grey steps."""
    figure = go.Figure()
    for curve in curves:
        edges = np.linspace(0.0, 1.0, len(curve.shares) + 1)
        name = _named(curve)
        if curve.name == analysis.CROSS:
            figure.add_bar(
                x=(edges[:-1] + edges[1:]) / 2,
                y=curve.shares,
                width=edges[1],
                name=name,
                marker={"color": PAIR, "opacity": 0.55, "line": {"width": 0}},
                hovertemplate="d ≈ %{x:.3f}: %{y:.2f} % of neurons<extra>A | B</extra>",
            )
            continue
        marks.drift_steps(figure, curve, name, _LINES[curve.name])
    style(figure, DRIFT_AXIS, "share of neurons (%)", 420, bargap=0)
    figure.update_xaxes(range=[0, marks.drift_end(curves)])
    if log:
        shares = np.concatenate([curve.shares for curve in curves])
        shown = shares[shares > 0]
        figure.update_yaxes(rangemode="normal", **chart_style.log_ticks(float(shown.min()), float(shown.max())))
    return figure


def correlations(table: pd.DataFrame, chosen: Selection = NOTHING) -> go.Figure:
    """Spearman correlation of every layer: across texts, and the re-sampling floors."""
    figure = go.Figure()
    curves = (
        ("Spearman A|B", "A | B", {"color": PAIR}, "circle"),
        ("Spearman half A|half B", "half A | half B", {"color": PAIR, "dash": "dash"}, "diamond-open"),
        ("Spearman, A re-sampled", "A re-sampled", {"color": GREY}, "square"),
        ("Spearman, B re-sampled", "B re-sampled", {"color": GREY, "dash": "dot"}, "square-open"),
    )
    for column, name, line, symbol in curves:
        marks.curve(
            figure, table["layer"], table[column], name, line | {"width": 2}, "layer %{x}: %{y:.3f}",
            symbol=symbol, size=6, customdata=marks.layer_data(table["layer"]),
        )  # fmt: skip
    style(figure, "layer", "Spearman correlation of ranks", LAYERS_HEIGHT)
    layer_axis(figure, len(table))
    marks.layer_line(figure, chosen)
    return figure


def layers(matrix: Array, chosen: Selection = NOTHING) -> go.Figure:
    """Layer by drift bin: share of the layer's neurons."""
    edges = np.linspace(0.0, 1.0, matrix.shape[1] + 1)
    last = int(np.flatnonzero(matrix.sum(axis=0)).max()) + 1
    middle = ((edges[:-1] + edges[1:]) / 2)[:last]
    figure = marks.heat(matrix[:, :last], middle, np.arange(len(matrix)), "% of layer")
    row, column = (part.ravel() for part in np.indices((len(matrix), last)))
    hover = "layer %{y}, d ≈ %{x:.3f}: %{customdata[3]:.2f} % of the layer"
    marks.cells(figure, middle[column].astype(np.float32), row, row, matrix[row, column], hover)
    style(figure, "rank drift d", "layer", LAYERS_HEIGHT)
    layer_axis(figure, len(matrix), "y")
    marks.layer_line(figure, chosen, "y")
    return figure


def joint(
    primary: Array,
    auxiliary: Array,
    layer: int,
    modules: Array | None = None,
    chosen: Selection = NOTHING,
) -> go.Figure:
    """Rank on A against rank on B of one layer: points while they are few, else counts in cells.

    Scores and `modules`, where there are modules, are (neurons,).
    """
    figure, top = go.Figure(), max(len(primary) - 1, 1)
    x, y = ((ranks(scores) / top).astype(np.float32) for scores in (primary, auxiliary))
    if len(primary) <= MOST_POINTS:
        _neurons(figure, x, y, layer, modules)
    else:
        figure.add_trace(_cells(analysis.joint_ranks(primary, auxiliary, LARGEST_GRID)))
    marks.guide(figure, [0, 1], [0, 1], {"color": GREY, "dash": "dash", "width": 1.5}, name="same rank")
    _mark(figure, x, y, layer, modules, chosen)
    style(figure, f"rank on A in layer {layer} (1 = most important)", "rank on B", JOINT_HEIGHT)
    figure.update_xaxes(range=[-0.02, 1.02], constrain="domain")
    return figure.update_yaxes(range=[-0.02, 1.02], constrain="domain", scaleanchor="x", scaleratio=1)


def _neurons(figure: go.Figure, x: Array, y: Array, layer: int, modules: Array | None) -> None:
    member = np.full(len(x), marks.NONE) if modules is None else modules
    where = "" if modules is None else ", module %{customdata[1]}"
    hover = f"neuron %{{customdata[2]}}{where}<br>rank %{{x:.3f}} on A, %{{y:.3f}} on B<extra></extra>"
    unit, look = marks.identity(layer, member, np.arange(len(x))), {"color": PAIR, "size": 6, "opacity": 0.6}
    marks.points(figure, x, y, look, hover, customdata=unit, name="neurons", showlegend=False)


def _mark(figure: go.Figure, x: Array, y: Array, layer: int, modules: Array | None, chosen: Selection) -> None:
    """Circles the selected neuron; of a selected module, every neuron."""
    if chosen.layer != layer:
        return
    if chosen.neuron is not None:
        marks.ring(figure, x[chosen.neuron], y[chosen.neuron], f"neuron {chosen.neuron}")
    elif chosen.module is not None and modules is not None:
        members = modules == chosen.module
        marks.ring(figure, None, None, f"module {chosen.module}")
        figure.data[-1].update(x=x[members], y=y[members], marker={"size": 9, "line": {"width": 1.5}})


def _cells(counts: Array) -> go.Heatmap:
    middle = (np.arange(len(counts)) + 0.5) / len(counts)
    shown = np.where(counts > 0, np.log10(np.maximum(counts, 1)), np.nan).astype(np.float32)
    powers = np.arange(int(np.nanmax(shown)) + 1)
    return go.Heatmap(
        z=shown,
        x=middle,
        y=middle,
        customdata=counts.astype(np.int32),
        colorscale=MAGNITUDE,
        colorbar=marks.colorbar("neurons", tickvals=powers, ticktext=[f"{10**p:,}" for p in powers]),
        hovertemplate="rank %{x:.2f} on A, %{y:.2f} on B, neurons: %{customdata}<extra></extra>",
        name="neurons",
    )
