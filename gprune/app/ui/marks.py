"""Shared parts of figures: lines, bars, scales and whiskers, clickable cells, and the mark of the selection."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from gprune.analysis import drift
from gprune.analysis.drift import Movers
from gprune.app.ui.chart_style import MAGNITUDE, TEXT_A, TEXT_B, style
from gprune.app.ui.panel import Selection
from gprune.records import Array

RING = "#E4007C"
"""outline of the selection: visible on light and dark background, and not the hue of a method or a text"""
EXCESS = "rgba(204, 74, 118, 0.25)"
"""the hue of a pair of texts, transparent so that lines show through"""
NONE = -1
"""value for no module or no neuron in the custom data of a mark"""


def unit_data(layer: Array | int, module: Array | int = NONE, neuron: Array | int = NONE) -> Array:
    """(marks, 3) custom data that say which layer, module and neuron each mark stands for."""
    parts = np.broadcast_arrays(layer, module, neuron)
    return np.stack([np.atleast_1d(part) for part in parts], axis=1).astype(np.int32)


def layer_data(layers: Iterable[int]) -> list[list[int]]:
    """Return the custom data of marks that stand for a layer each, as a list."""
    return [[layer, NONE, NONE] for layer in layers]


def add_cells(
    figure: go.Figure,
    x: Array,
    y: Array,
    layers: Array,
    values: Array,
    hover: str,
    modules: Array | int = NONE,
    **position: int,
) -> None:
    """Add invisible marks over a heat map's cells, because a heat map cannot be clicked.

    The browser draws only one of them and finds the others by position, because drawing thousands is slow.
    `x`, `y`, `layers` and `modules` (selected by a click) are (cells,). `values`, (cells,) or (cells, several), are
    `%{customdata[3]}` and the following in `hover`, a template of Plotly. `position` is row and col of the panel.
    """
    data = np.column_stack([unit_data(layers, modules), values]).astype(np.float32)
    marker = {"symbol": "square", "size": 16, "opacity": 0, "maxdisplayed": 1}
    add_points(figure, x, y, marker, f"{hover}<extra></extra>", customdata=data, showlegend=False, **position)
    # larger than the distance in pixels from a mark to the corner of its cell, so the nearest mark is found
    figure.update_layout(hoverdistance=80)


def add_outline(figure: go.Figure, x: float, y: float) -> None:
    """Draw a frame around the selected cell of a heat map."""
    corners = {"x0": x - 0.5, "x1": x + 0.5, "y0": y - 0.5, "y1": y + 0.5}
    figure.add_shape(type="rect", **corners, line={"color": RING, "width": 3}, layer="above")


def add_layer_line(figure: go.Figure, chosen: Selection, axis: str = "x") -> None:
    """Mark the selected layer on an axis of layers."""
    if chosen.layer is None:
        return
    draw: Any = figure.add_vrect if axis == "x" else figure.add_hrect
    ends = {f"{axis}0": chosen.layer - 0.5, f"{axis}1": chosen.layer + 0.5}
    draw(**ends, line={"color": RING, "width": 2}, fillcolor="rgba(0,0,0,0)", layer="above")


def add_curve(figure: go.Figure, x: Any, y: Any, name: str, line: dict[str, Any], hover: str, **more: Any) -> None:
    """Draw a named line, with marks if `more`, the options of the trace, has `symbol`.

    `hover` is the template of the hover box. It is followed by the name unless it has its own <extra> part. `size`
    in `more` is the size of the marks.
    """
    size = more.pop("size", 8)
    if symbol := more.pop("symbol", None):
        more = {"mode": "lines+markers", "marker": {"symbol": symbol, "size": size}} | more
    box = hover if "<extra>" in hover else f"{hover}<extra>{name}</extra>"
    figure.add_scatter(x=x, y=y, name=name, line=line, hovertemplate=box, **({"mode": "lines"} | more))


def add_points(figure: go.Figure, x: Any, y: Any, marker: dict[str, Any], hover: str, **more: Any) -> None:
    """Draw marks with the style `marker`.

    `hover` is the template of the hover box; `more` has options of the trace, such as its name.
    """
    figure.add_scatter(x=x, y=y, marker=marker, hovertemplate=hover, **({"mode": "markers"} | more))


def add_guide(figure: go.Figure, x: Any, y: Any, line: dict[str, Any], **more: Any) -> None:
    """Draw a line without a hover box and without a legend entry."""
    figure.add_scatter(x=x, y=y, line=line, **({"mode": "lines", "hoverinfo": "skip", "showlegend": False} | more))


def heat_map(z: Array, x: Any, y: Any, title: str, **more: Any) -> go.Figure:
    """Return a heat map with its colour bar; `add_cells` makes it respond to hover and click."""
    options = {"x": x, "y": y, "colorscale": MAGNITUDE, "colorbar": colorbar(title), "hoverinfo": "skip"}
    return go.Figure(go.Heatmap(z=z.astype(np.float32), **(options | more)))


def add_bars(figure: go.Figure, x: Any, y: Any, name: str, color: str | list[str], hover: str, **more: Any) -> None:
    """Draw bars of a colour under a name; `hover` is as in `add_curve`, and `more` has options of the trace."""
    box = hover if "<extra>" in hover else f"{hover}<extra>{name}</extra>"
    figure.add_bar(x=x, y=y, name=name, marker={"color": color}, hovertemplate=box, **more)


def colorbar(title: str, **more: Any) -> dict[str, Any]:
    """Return the colour bar of a heat map, with its title along it."""
    return {"title": {"text": title, "side": "right"}, "thickness": 12} | more


def error_bars(middle: Array, low: Array, high: Array, thickness: float, **more: Any) -> dict[str, Any]:
    """Return asymmetric error bars from `low` to `high`."""
    ends = {"array": high - middle, "arrayminus": middle - low, "thickness": thickness}
    return {"type": "data", "symmetric": False} | ends | more


def add_ring(figure: go.Figure, x: Any, y: Any, name: str) -> None:
    """Add a ring around the selected mark, which has a name."""
    marker = {"symbol": "circle-open", "size": 18, "color": RING, "line": {"width": 3}}
    add_points(figure, [x], [y], marker, f"{name}<extra>selected</extra>", name=name)


def survival_curves(
    curves: Sequence[drift.Distribution],
    lines: Mapping[str, dict[str, Any]],
    name: Callable[[drift.Distribution], str] = lambda distribution: distribution.name,
) -> tuple[go.Figure, dict[str, Array]]:
    """Plot the percentage of units that shift by d or more; the excess over the higher resampling floor is shaded.

    `lines` has the line style of each curve by name; curves without a style are left out, and `name` returns the label
    of a curve. Returns the figure, and (bins + 1,) percentages by curve.
    """
    figure, edges = go.Figure(), np.linspace(0.0, 1.0, len(curves[0].shares) + 1)
    beyond = {curve.name: drift.survival(curve) for curve in curves}
    # a curve without values is NaN
    floor = np.fmax(beyond[drift.FLOOR_PRIMARY], beyond[drift.FLOOR_AUXILIARY])
    invisible: dict[str, Any] = {"x": edges, "mode": "lines", "showlegend": False, "hoverinfo": "skip"}
    figure.add_scatter(y=floor, line={"width": 0}, **invisible)
    top = np.fmax(beyond[drift.CROSS], floor)
    figure.add_scatter(y=top, line={"width": 0}, fill="tonexty", fillcolor=EXCESS, **invisible)
    for distribution in curves:
        if distribution.name in lines:
            hover = f"%{{y:.1f}}% shift by %{{x:.3f}} or more<extra>{distribution.name}</extra>"
            values, line = np.round(beyond[distribution.name], 3), lines[distribution.name]
            add_curve(figure, edges, values, name(distribution), line, hover)
    return figure, beyond


def plot_slopes(movers: Movers, height: int, chosen: int | None = None, texts: Sequence[str] = "AB") -> go.Figure:
    """Plot one line per neuron, in the colour of the text that ranks it higher; `texts` are escaped names."""
    figure = go.Figure()
    is_higher_on_b = movers.second > movers.first
    for text, color, members in ((texts[0], TEXT_A, ~is_higher_on_b), (texts[1], TEXT_B, is_higher_on_b)):
        if members.any():
            figure.add_trace(_slope_trace(movers, np.flatnonzero(members), f"higher on {text}", color))
        x, side, shift = (1.0, "right", 8) if color == TEXT_B else (0.0, "left", -36)
        position = {"x": x, "xref": "paper", "xanchor": side, "xshift": shift, "y": 1.02, "yref": "paper"}
        count = f"higher here: {int(members.sum())}"
        figure.add_annotation(text=count, font={"color": color}, yanchor="bottom", showarrow=False, **position)
    _mark_chosen(figure, movers, chosen)
    margin = {"l": 56, "r": 40, "t": 28, "b": 32}
    style(figure, "", "rank (1 = most important)", height, margin=margin)
    figure.update_xaxes(range=[-0.12, 1.12], showgrid=False, tickvals=[0, 1], ticktext=list(texts))
    return figure.update_yaxes(range=[-0.03, 1.03], tickvals=[0, 0.25, 0.5, 0.75, 1])


def _slope_trace(movers: Movers, members: np.ndarray, name: str, color: str) -> go.Scatter:
    """Return one trace for all lines of a hue, broken between neurons."""
    # each neuron has three points: its two ranks, and a gap
    ends = zip(movers.first[members], movers.second[members], strict=True)
    neuron = np.repeat(movers.neurons[members], 3)
    shifts = np.repeat(movers.second[members] - movers.first[members], 3)
    unit = unit_data(movers.layer, NONE, neuron)
    return go.Scatter(
        x=[0.0, 1.0, None] * len(members),
        y=[rank for pair in ends for rank in (*(round(float(end), 4) for end in pair), None)],
        customdata=np.column_stack([unit, np.round(shifts, 4)]),
        mode="lines+markers",
        line={"color": color, "width": 1.5},
        marker={"color": color, "size": 7},
        name=name,
        showlegend=False,
        hovertemplate="neuron %{customdata[2]:.0f}: rank %{y:.3f}, shifts by %{customdata[3]:+.3f}<extra></extra>",
    )


def _mark_chosen(figure: go.Figure, movers: Movers, chosen: int | None) -> None:
    position = np.flatnonzero(movers.neurons == chosen) if chosen is not None else np.empty(0)
    if len(position):
        ends = [float(movers.first[position[0]]), float(movers.second[position[0]])]
        name, line, marker = f"neuron {chosen}", {"color": RING, "width": 4}, {"color": RING, "size": 10}
        box, mode = f"{name}: rank %{{y:.3f}}<extra>selected</extra>", {"mode": "lines+markers"}
        add_curve(figure, [0, 1], ends, name, line, box, **mode, marker=marker, showlegend=False)
