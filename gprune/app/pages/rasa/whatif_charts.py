"""Figures of the lab: what other thresholds and another retention would change."""

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from gprune.analysis.decisions import Bins
from gprune.analysis.mask_diff import Flips
from gprune.app.ui import marks
from gprune.app.ui.chart_style import (
    BLUE,
    GREY,
    MAGNITUDE,
    METHOD_COLORS,
    METHOD_SYMBOLS,
    ORANGE,
    PALE,
    label,
    layer_axis,
    style,
)
from gprune.app.ui.marks import RING
from gprune.records import Array

REMOVED, ADDED = "#E08214", "#8073AC"
"""hues of the purple-orange scale, which shows signs; seen on light and dark ground"""
_PAPER = {"paper, LLaMA2": (0.90, 0.90), "paper, Vicuna": (0.90, 0.85)}


def flips_by_layer(found: Flips) -> go.Figure:
    """Neurons that change sides in each layer: those removed below zero, those added above."""
    figure = go.Figure()
    layers = np.arange(len(found.removed))
    for values, sign, name, color in (
        (found.added, 1, "removed → kept", ADDED),
        (found.removed, -1, "kept → removed", REMOVED),
    ):
        hover = f"layer %{{x}}, neurons: %{{customdata:,}}<extra>{name}</extra>"
        named = f"{name} ({int(values.sum()):,})"
        marks.bars(figure, layers, sign * values, named, color, hover, customdata=values)
    style(figure, "layer", "neurons that change sides", 280, barmode="relative")
    layer_axis(figure, len(layers))
    most = max(int(found.removed.max()), int(found.added.max()))
    if most < 5:
        figure.update_yaxes(dtick=1, range=[-max(most, 1) - 0.2, max(most, 1) + 0.2])
    figure.add_hline(0, line={"color": GREY, "width": 1})
    return figure


def retention(before: Bins, after: Bins, method: str) -> go.Figure:
    """Share of neurons kept in every drift bin: the base method, the run, and these thresholds."""
    figure = go.Figure()
    series = (
        (before.base, label(method), METHOD_COLORS[method], METHOD_SYMBOLS[method], "dot"),
        (before.ours, "this run", BLUE, "circle-open", "dash"),
        (after.ours, "these thresholds", BLUE, "circle", "solid"),
    )
    for values, name, color, symbol, dash in series:
        _line(figure, before.names, values, name, (color, symbol, dash))
    style(figure, "drift bin of the modules", "share of neurons kept", 300)
    return figure


def jaccard(before: Bins, after: Bins, base: str) -> go.Figure:
    """Overlap with the neurons that the base method keeps, in every drift bin."""
    figure = go.Figure()
    _line(figure, after.names, after.chance, "by chance", (GREY, "line-ew-open", "dot"))
    _line(figure, before.names, before.jaccard, "this run", (BLUE, "circle-open", "dash"))
    _line(figure, after.names, after.jaccard, "these thresholds", (BLUE, "circle", "solid"))
    return style(figure, "drift bin of the modules", f"Jaccard with {base}", 300)


def _line(figure: go.Figure, x: list[str], y: Array, name: str, look: tuple[str, str, str]) -> None:
    color, symbol, dash = look
    line, hover = {"color": color, "dash": dash, "width": 2}, "%{x}: %{y:.3f}"
    marker = {"symbol": symbol, "size": 10, "color": color, "line": {"width": 2, "color": color}}
    marks.curve(figure, x, y, name, line, hover, mode="lines+markers", marker=marker)


def bin_table(before: Bins, after: Bins, base: str) -> pd.DataFrame:
    """The numbers of both figures."""
    return pd.DataFrame(
        {
            "drift bin": before.names,
            f"retained, {base}": before.base,
            "retained, this run": before.ours,
            "retained, these thresholds": after.ours,
            f"Jaccard with {base}, this run": before.jaccard,
            f"Jaccard with {base}, these thresholds": after.jaccard,
            "Jaccard by chance": after.chance,
        }
    )


def grid(levels: Array, counts: Array, modules: int, present: tuple[float, float]) -> go.Figure:
    """Share of modules adapted, drift quantile across and score quantile up; a click finds both.

    `levels` are (levels,) quantiles of both axes, `counts` (levels, levels) modules adapted of `modules`, by
    drift quantile and score quantile; `present` are those of the lines.
    """
    share = 100.0 * counts.T / modules
    figure = go.Figure(
        go.Heatmap(
            x=levels,
            y=levels,
            z=np.round(share, 3),
            colorscale=MAGNITUDE,
            colorbar={"title": {"text": "% adapted"}, "thickness": 12},
            hoverinfo="skip",
        )
    )
    drift, score = (axis.ravel() for axis in np.meshgrid(levels, levels))
    figure.add_scatter(
        x=drift,
        y=score,
        customdata=np.column_stack([drift, score, counts.T.ravel()]),
        mode="markers",
        marker={"symbol": "square", "size": 16, "opacity": 0},
        hovertemplate="γ_drift %{x:.3f}, γ_score %{y:.3f}, modules: %{customdata[2]}"
        "<extra>click to set</extra>",
        showlegend=False,
    )
    edge = 0.5 * float(levels[1] - levels[0])
    for (name, (x, y)), symbol in zip(_PAPER.items(), ("star", "star-diamond"), strict=True):
        _spot(figure, (x, y), name, {"symbol": symbol, "size": 13, "color": ORANGE})
    if all(levels[0] - edge <= level <= levels[-1] + edge for level in present):
        _spot(figure, present, "present lines", {"symbol": "circle-open", "size": 18, "color": RING})
    style(figure, "γ_drift", "γ_score", 380)
    for update in (figure.update_xaxes, figure.update_yaxes):
        update(range=[levels[0] - edge, levels[-1] + edge], tickformat=".2f")
    return figure


def _spot(figure: go.Figure, at: tuple[float, float], name: str, marker: dict[str, object]) -> None:
    figure.add_scatter(
        x=[at[0]],
        y=[at[1]],
        name=name,
        mode="markers",
        customdata=[[*at, 0]],
        marker=marker
        | {"line": {"width": 2, "color": None if marker["symbol"] == "circle-open" else "white"}},
        hovertemplate=f"{name}: γ_drift %{{x:.3f}}, γ_score %{{y:.3f}}<extra></extra>",
    )


def grid_table(levels: Array, counts: Array) -> pd.DataFrame:
    """Modules adapted, one row a drift quantile and one column a score quantile."""
    columns = {f"γ_score {level:.2f}": counts[:, place] for place, level in enumerate(levels)}
    return pd.DataFrame({"γ_drift": levels} | columns)


def kept_by_layer(own: Array, chosen: Array, name: str) -> go.Figure:
    """Share of each layer's neurons that the run keeps, and that a choice keeps."""
    figure = go.Figure()
    layers = np.arange(len(own))
    hover = "layer %{x}: %{y:.1f} % kept"
    marks.bars(figure, layers, 100.0 * own, "this run's GPrune", PALE, hover)
    marker = {"color": BLUE, "size": 9, "symbol": "circle"}
    marks.curve(figure, layers, 100.0 * chosen, name, {}, hover, mode="markers", marker=marker)
    style(figure, "layer", "neurons kept (%)", 260)
    layer_axis(figure, len(layers))
    figure.update_yaxes(range=[0, 102])
    return figure
