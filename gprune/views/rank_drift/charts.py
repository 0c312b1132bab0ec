"""Figures of the rank drift page (Fig. 1a)."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from gprune.analysis import drift as analysis
from gprune.ranking import ranks
from gprune.records import Array
from gprune.views.frame import ticks
from gprune.views.frame.chart_style import BLUE, GREY, MAGNITUDE, PURPLE, VERMILLION, layer_axis, style

MOST_POINTS = 1500
"""a layer with more neurons is drawn as a two-dimensional histogram"""
LARGEST_GRID = 48

_LINES = {
    analysis.HALVES: {"color": PURPLE, "dash": "dash", "width": 2},
    analysis.FLOOR_PRIMARY: {"color": GREY, "dash": "solid", "width": 2},
    analysis.FLOOR_AUXILIARY: {"color": GREY, "dash": "dot", "width": 2},
}


def histogram(curves: list[analysis.Distribution], log: bool) -> go.Figure:
    """Overlaid histograms of the drift, pre-binned: A|B filled, the floors as grey steps."""
    figure = go.Figure()
    for curve in curves:
        edges = np.linspace(0.0, 1.0, len(curve.shares) + 1)
        name = f"{curve.name}: median d {curve.median:.3f}, ρ {curve.correlation:.2f}"
        if curve.name == analysis.CROSS:
            figure.add_bar(
                x=(edges[:-1] + edges[1:]) / 2,
                y=curve.shares,
                width=edges[1],
                name=name,
                marker={"color": BLUE, "opacity": 0.55, "line": {"width": 0}},
                hovertemplate="d ≈ %{x:.3f}: %{y:.2f} % of neurons<extra>A | B</extra>",
            )
            continue
        figure.add_scatter(
            x=edges,
            y=np.append(curve.shares, curve.shares[-1]),
            name=name,
            mode="lines",
            line={**_LINES[curve.name], "shape": "hv"},
            hovertemplate=f"d from %{{x:.3f}}: %{{y:.2f}} % of neurons<extra>{curve.name}</extra>",
        )
    drift_axis = "rank drift d (0 = rank unchanged, 1 = from first to last)"
    style(figure, drift_axis, "share of neurons (%)", 420, bargap=0)
    figure.update_xaxes(range=[0, _right_end(curves)])
    if log:
        shares = np.concatenate([curve.shares for curve in curves])
        shown = shares[shares > 0]
        figure.update_yaxes(rangemode="normal", **ticks.logarithmic(float(shown.min()), float(shown.max())))
    return figure


def _right_end(curves: list[analysis.Distribution]) -> float:
    """Where the last curve has run out, so that the floor's narrow peak stays readable."""
    last = max(int(np.flatnonzero(curve.shares).max()) for curve in curves)
    return min(1.0, (last + 2) / len(curves[0].shares))


def correlations(table: pd.DataFrame) -> go.Figure:
    """Spearman correlation of every layer: across texts, and the re-sampling floors."""
    figure = go.Figure()
    curves = (
        ("Spearman A|B", "A | B", {"color": BLUE, "width": 2}, "circle"),
        (
            "Spearman half A|half B",
            "half A | half B",
            {"color": PURPLE, "dash": "dash", "width": 2},
            "diamond",
        ),
        ("Spearman, A re-sampled", "A re-sampled", {"color": GREY, "width": 2}, "square"),
        ("Spearman, B re-sampled", "B re-sampled", {"color": GREY, "dash": "dot", "width": 2}, "square-open"),
    )
    for column, name, line, symbol in curves:
        figure.add_scatter(
            x=table["layer"],
            y=table[column],
            name=name,
            mode="lines+markers",
            line=line,
            marker={"symbol": symbol, "size": 6},
            hovertemplate="layer %{x}: %{y:.3f}<extra>" + name + "</extra>",
        )
    style(figure, "layer", "Spearman correlation of ranks", 320)
    layer_axis(figure, len(table))
    return figure


def layers(matrix: Array) -> go.Figure:
    """Layer by drift bin: share of the layer's neurons."""
    edges = np.linspace(0.0, 1.0, matrix.shape[1] + 1)
    last = int(np.flatnonzero(matrix.sum(axis=0)).max()) + 1
    figure = go.Figure(
        go.Heatmap(
            z=matrix[:, :last].astype(np.float32),
            x=((edges[:-1] + edges[1:]) / 2)[:last],
            y=np.arange(len(matrix)),
            colorscale=MAGNITUDE,
            colorbar={"title": {"text": "% of layer", "side": "right"}, "thickness": 12},
            hovertemplate="layer %{y}, d ≈ %{x:.3f}: %{z:.2f} % of the layer<extra></extra>",
        )
    )
    style(figure, "rank drift d", "layer", 360)
    layer_axis(figure, len(matrix), "y")
    return figure


def joint(primary: Array, auxiliary: Array, layer: int) -> go.Figure:
    """Rank on A against rank on B of one layer: points while they are few, else counts in cells."""
    figure = go.Figure()
    if len(primary) <= MOST_POINTS:
        top = max(len(primary) - 1, 1)
        figure.add_scatter(
            x=(ranks(primary) / top).astype(np.float32),
            y=(ranks(auxiliary) / top).astype(np.float32),
            mode="markers",
            marker={"color": BLUE, "size": 5, "opacity": 0.75},
            name="neurons",
            showlegend=False,
            hovertemplate="rank %{x:.3f} on A, %{y:.3f} on B<extra></extra>",
        )
    else:
        figure.add_trace(_cells(analysis.joint_ranks(primary, auxiliary, LARGEST_GRID)))
    figure.add_scatter(
        x=[0, 1],
        y=[0, 1],
        mode="lines",
        line={"color": VERMILLION, "dash": "dash", "width": 1.5},
        name="same rank",
        showlegend=False,
        hoverinfo="skip",
    )
    style(figure, f"rank on A in layer {layer} (1 = most important)", "rank on B", 420)
    figure.update_xaxes(range=[-0.02, 1.02])
    figure.update_yaxes(range=[-0.02, 1.02])
    return figure


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
        colorbar={
            "title": {"text": "neurons", "side": "right"},
            "thickness": 12,
            "tickvals": powers,
            "ticktext": [f"{10**p:,}" for p in powers],
        },
        hovertemplate="rank %{x:.2f} on A, %{y:.2f} on B: %{customdata} neurons<extra></extra>",
        name="neurons",
    )
