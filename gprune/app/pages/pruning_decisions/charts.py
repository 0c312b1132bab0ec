"""Figures of the pruning decisions page (Fig. 3)."""

from typing import Any

import numpy as np
import plotly.graph_objects as go

from gprune.analysis.ablation_effect import LEAST, AblationEffect, Explained, kinds
from gprune.analysis.decisions import Bins, layer_retention
from gprune.analysis.scales import scale_histogram
from gprune.app.ui import marks
from gprune.app.ui.chart_style import (
    GREY,
    METHOD_COLORS,
    METHOD_DASHES,
    METHOD_SYMBOLS,
    PALE,
    family,
    label,
    layer_axis,
    style,
)
from gprune.app.ui.unit import NOTHING, Selection
from gprune.records import Array, LearnedScales, PruningMasks

MOST_LINES = 8
"""lines that can be told apart in one chart"""
_DRIFT_AXIS = "modules by mean rank drift, most stable to most unstable"


def retention(result: Bins, base: str) -> go.Figure:
    """Fig. 3a: retention of each bin's neurons under GPrune and the baseline."""
    figure = go.Figure()
    for method, values in ((base, result.base), ("gprune", result.ours)):
        # two digits: three of neighbouring bars touch where the card is narrow
        written: dict[str, Any] = {"text": [f"{value:.2f}" for value in values], "textposition": "outside"}
        look = label(method), METHOD_COLORS[method], "%{x}: %{y:.3f} kept"
        marks.bars(figure, result.names, values, *look, cliponaxis=False, **written)
    style(figure, _DRIFT_AXIS, "retention of neurons", 380, barmode="group", bargap=0.25)
    figure.update_yaxes(range=[0, min(1.08, 1.15 * max(result.ours.max(), result.base.max(), 0.05))])
    return figure.update_xaxes(type="category")


def jaccard(result: Bins, base: str) -> go.Figure:
    """Fig. 3b: overlap of the kept neurons of each bin, over its chance level."""
    figure = go.Figure()
    name, line = "two independent masks of these retentions", {"color": GREY, "dash": "dash", "width": 2}
    hover = "%{x}: %{y:.3f} by chance<extra></extra>"
    marks.curve(figure, result.names, result.chance, name, line, hover, symbol="line-ew-open", size=12)
    marks.curve(
        figure, result.names, result.jaccard, f"GPrune and {label(base)}",
        {"color": METHOD_COLORS["gprune"], "width": 2}, "%{x}: Jaccard %{y:.3f}<extra></extra>",
        symbol=METHOD_SYMBOLS["gprune"], size=10, mode="lines+markers+text", cliponaxis=False,
        text=[f"{value:.3f}" for value in result.jaccard], textposition="top center",
    )  # fmt: skip
    style(figure, _DRIFT_AXIS, "Jaccard of the kept neurons", 380)
    figure.update_yaxes(range=[0, 1.08])
    return figure.update_xaxes(type="category")


def scales(found: LearnedScales) -> go.Figure:
    """Share of each layer's kept neurons by their learned scale."""
    edges, neurons, _ = scale_histogram(found)
    shown = 100 * neurons / np.maximum(neurons.sum(axis=1, keepdims=True), 1)
    figure = marks.heat(
        shown, (edges[1:] + edges[:-1]) / 2, list(range(len(shown))), "% of the layer's kept neurons",
        hoverinfo=None, hovertemplate="layer %{y}, scale %{x:.3f}: %{z:.1f} %<extra></extra>",
    )  # fmt: skip
    figure.add_vline(1, line={"color": GREY, "dash": "dash"})
    style(figure, "learned scale of a kept neuron (1: unchanged)", "layer", 380)
    layer_axis(figure, len(shown), "y")
    return figure


def shares(result: Bins, base: str) -> go.Figure:
    """Who keeps the neurons of each bin: both, one, or none."""
    figure = go.Figure()
    rows = (
        ("both", result.shares[0], "#5B7F95"),
        ("only GPrune", result.shares[1], METHOD_COLORS["gprune"]),
        (f"only {label(base)}", result.shares[2], METHOD_COLORS[base]),
        ("neither", result.shares[3], PALE),
    )
    for name, values, color in rows:
        marks.bars(figure, values, result.names, name, color, "%{y}: %{x:.1f} %", orientation="h")
    style(figure, "share of the bin's neurons (%)", "drift bin", 320, barmode="stack", bargap=0.25)
    figure.update_yaxes(type="category", autorange="reversed", title_standoff=8)
    figure.update_layout(legend={"traceorder": "normal"}, margin={"l": 92})
    return figure.update_xaxes(range=[0, 100])


def by_layer(masks: dict[str, PruningMasks], part: str, chosen: Selection = NOTHING) -> go.Figure:
    """Retained share of each layer's neurons or key/value groups (`heads`), one line a method.

    Of more methods than can be told apart, forms and controls wait in the legend for a click.
    """
    figure, many = go.Figure(), len(masks) > MOST_LINES
    for method, mask in masks.items():
        values: Array = layer_retention(mask)[0 if part == "neurons" else 1]
        line = {"color": METHOD_COLORS[method], "dash": METHOD_DASHES[method], "width": 2}
        marks.curve(
            figure, np.arange(len(values)), values, label(method), line, "layer %{x}: %{y:.3f} kept",
            symbol=METHOD_SYMBOLS[method], size=7, customdata=marks.layer_data(range(len(values))),
            visible="legendonly" if many and family(method) != method else True,
        )  # fmt: skip
    unit = "neurons" if part == "neurons" else "key/value groups"
    # the legend stands above in two columns, and may take half of the height
    style(figure, "layer", f"share of {unit} kept", 320 + (14 * len(masks) if many else 0))
    layer_axis(figure, len(next(iter(masks.values())).ffn))
    marks.layer_line(figure, chosen)
    return figure.update_yaxes(range=[-0.03, 1.05])


def acting(found: AblationEffect) -> go.Figure:
    """Share of the decisions that each part changes; a part that acts on next to none is hollow."""
    names, shares = list(found.decisions_changed), [100 * share for share in found.decisions_changed.values()]
    color = METHOD_COLORS["gprune"]
    figure = go.Figure()
    figure.add_bar(
        y=names,
        x=shares,
        orientation="h",
        marker={
            "color": [color if share >= 100 * LEAST else "rgba(0,0,0,0)" for share in shares],
            "line": {"color": color, "width": 2},
        },
        hovertemplate="without %{y}: %{x:.2f} % of the decisions change<extra></extra>",
        showlegend=False,
    )
    # beside the line where the bar ends before it
    written = {"text": [f" {share:.1f} %" for share in shares], "textposition": "middle right"}
    x = [max(share, 100 * LEAST) for share in shares]
    marks.guide(figure, x, names, {}, mode="text", cliponaxis=False, **written)
    style(figure, "neurons decided otherwise without it (%)", "part of GPrune", 260, bargap=0.4)
    figure.add_vline(x=100 * LEAST, line={"color": GREY, "dash": "dash", "width": 2})
    figure.update_yaxes(type="category", autorange="reversed")
    return figure.update_xaxes(range=[0, 1.2 * max(*shares, 200 * LEAST)])


def explained(found: Explained) -> go.Figure:
    """Share of the drift's variance between modules: the run's, those before refinement, random ones."""
    shares = {name: 100 * share for name, share in kinds(found).items()}
    colors = [METHOD_COLORS["gprune"] if name == "modules of the run" else PALE for name in shares]
    figure = go.Figure()
    figure.add_bar(
        y=list(shares),
        x=list(shares.values()),
        orientation="h",
        marker={"color": colors},
        text=[f"{share:.0f} %" for share in shares.values()],
        textposition="outside",
        cliponaxis=False,
        hovertemplate="%{y}: %{x:.1f} % explained<extra></extra>",
    )
    style(figure, "variance of rank drift explained (%)", "", 260, bargap=0.4)
    figure.update_yaxes(type="category", autorange="reversed")
    return figure.update_xaxes(range=[0, min(112, 1.2 * max(shares.values(), default=1.0) + 1)])
