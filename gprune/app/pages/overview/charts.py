"""Figures of the overview: by how much more than noise ranks move, what pruning costs, and the layers."""

from typing import Any

import numpy as np
import plotly.graph_objects as go

from gprune.analysis import drift as ranks
from gprune.analysis.cost import Cost
from gprune.app.ui import chart_style, marks
from gprune.app.ui.chart_style import GREY, METHOD_COLORS, METHOD_SYMBOLS, PAIR, called, layer_axis, style
from gprune.app.ui.text import from_figure
from gprune.app.ui.unit import NOTHING, Selection
from gprune.records import Array

FIRST_SCREEN = 300
"""pixels of each figure of the first screen"""
MOST_ROWS = 9
"""methods that fit into a figure of the first screen"""
TICK_GAP = 0.28
"""share of the axis that a tick's name takes"""
_MOST_WRITTEN = 16
"""layers whose values are written into the cells"""
_ABOVE, _ABOVE_MARK, _BESIDE = 0.5, 13.0, 8.0
"""rows of room above the first mark; pixels from a mark up to a name above it, and to one beside it"""
_LETTER, _LEAST_WIDTH = 5.8, 270.0
"""pixels of a letter of a name, and of the axis in a window of 1280"""
_NARROW = {"l": 52, "r": 8, "t": 28, "b": 44}


def survival(curves: list[ranks.Distribution]) -> go.Figure:
    """Share of neurons that move by d or more, against re-sampling; what lies above is shaded."""
    figure = go.Figure()
    edges, beyond = marks.excess(figure, curves)
    lines = {
        ranks.CROSS: {"color": PAIR, "width": 3},
        ranks.FLOOR_PRIMARY: {"color": GREY, "width": 2},
        ranks.FLOOR_AUXILIARY: {"color": GREY, "width": 2, "dash": "dot"},
    }
    for name, line in lines.items():
        marks.curve(figure, edges, np.round(beyond[name], 3), name, line, "%{y:.1f} % move by %{x:.3f} or more")
    style(figure, "rank drift d", "neurons that move ≥ d (%)", FIRST_SCREEN, margin=_NARROW)
    # above a falling curve there is room for it
    place = {"orientation": "v", "x": 1, "xanchor": "right", "y": 1, "yanchor": "top"}
    figure.update_layout(legend=place | {"traceorder": "normal", "bgcolor": "rgba(0,0,0,0)"})
    figure.update_xaxes(range=[0, _right_end(beyond)])
    return figure.update_yaxes(range=[0, 101])


def _right_end(beyond: dict[str, Array]) -> float:
    """Where hardly a neuron is left, so that the curves fill the figure."""
    last = max(int(np.flatnonzero(values > 0.5).max()) for values in beyond.values())
    steps = len(next(iter(beyond.values()))) - 1
    return min(1.0, (last + 2) / steps)


def costs(found: list[Cost]) -> go.Figure:
    """Perplexity of every method, the cheapest first, over the dense one's, with the paired 95 % interval."""
    figure = go.Figure()
    drawn = _shown(found)
    known = [value for cost in drawn for value in (cost.low, cost.high) if np.isfinite(value)] or [1.0]
    low, high = 0.96 * min(1.0, *known), 1.08 * max(1.1, *known)
    for row, cost in enumerate(drawn):
        _row(figure, cost, len(drawn) - 1 - row, (low, high))
    figure.add_vline(1.0, line={"color": GREY, "dash": "dot", "width": 1.5})
    style(figure, "change of perplexity (log scale)", "", FIRST_SCREEN, margin=_NARROW | {"l": 14})
    axis = chart_style.log_ticks(low, high)
    values = _apart(axis["tickvals"], (high / low) ** TICK_GAP)
    words = [f"{100 * (value - 1):+,.0f} %" if value != 1 else "dense" for value in values]
    axis |= {"tickvals": values, "tickangle": 0, "ticktext": words}
    figure.update_xaxes(**axis, range=[np.log10(low), np.log10(high)])
    return figure.update_yaxes(visible=False, range=[-0.5, len(drawn) - 0.5 + _ABOVE])


def _apart(values: list[float], factor: float) -> list[float]:
    """The values from the first on that are at least a factor above the one before."""
    chosen: list[float] = []
    for value in values:
        if not chosen or value >= factor * chosen[-1]:
            chosen.append(value)
    return chosen


def _shown(found: list[Cost]) -> list[Cost]:
    """What fits: the cheapest, and GPrune in any case."""
    if len(found) <= MOST_ROWS:
        return found
    ours = [cost for cost in found[MOST_ROWS - 1 :] if cost.method == "gprune"]
    return [*found[: MOST_ROWS - len(ours)], *ours]


def _row(figure: go.Figure, cost: Cost, height: int, ends: tuple[float, float]) -> None:
    """Name and change of a method, beside its mark; `ends` are those of the axis."""
    name, known = called(cost.method), np.isfinite(cost.ratio)
    value = f"{100 * (cost.ratio - 1):+,.0f} %" if known else "not finite"
    words = f"{name}: <b>{value}</b>" if cost.method == "gprune" else f"{name}: {value}"
    figure.add_annotation(y=height, showarrow=False, font={"size": 11}, **_place(cost, words, ends))
    if known:
        _mark(figure, cost, height)


def _place(cost: Cost, words: str, ends: tuple[float, float]) -> dict[str, Any]:
    """Words and where they stand: right of a mark's interval or left of it, in two lines if need be.

    Where neither side has room they stand above the mark. Positions on a log axis are powers of ten.
    """
    if not np.isfinite(cost.ratio):
        return {"text": words, "x": 0, "xanchor": "left", "xshift": 3}
    left, right = np.log10(ends)
    room = right - left
    for written in (words, _two_lines(words)):
        letters = max(len(from_figure(line)) for line in written.split("<br>"))
        takes = letters * _LETTER / _LEAST_WIDTH * room
        if np.log10(cost.high) + takes <= right:
            return {"text": written, "x": float(np.log10(cost.high)), "xanchor": "left", "xshift": _BESIDE}
        if np.log10(cost.low) - takes >= left:
            return {"text": written, "x": float(np.log10(cost.low)), "xanchor": "right", "xshift": -_BESIDE}
    middle = float(np.log10(cost.ratio))
    anchor = "left" if middle - left < room / 2 else "right"
    return {"text": words, "x": middle, "xanchor": anchor, "yshift": _ABOVE_MARK}


def _two_lines(words: str) -> str:
    """Words with a line's end in place of the space that is nearest to their middle."""
    places = [place for place, letter in enumerate(words) if letter == " "]
    middle = min(places, key=lambda place: abs(place - len(words) / 2))
    return f"{words[:middle]}<br>{words[middle + 1 :]}"


def _mark(figure: go.Figure, cost: Cost, height: int) -> None:
    """The mark of a method, with its interval."""
    ends = np.array([cost.ratio]), np.array([cost.low]), np.array([cost.high])
    name, color = called(cost.method), METHOD_COLORS.get(cost.method, GREY)
    marker = {"color": color, "symbol": METHOD_SYMBOLS.get(cost.method, "circle"), "size": 11}
    hover = (
        f"{name}: perplexity {cost.perplexity:,.2f}, %{{x:.3f}} times the dense model’s "
        f"({cost.low:.3f} to {cost.high:.3f})<extra></extra>"
    )
    error = marks.around(*ends, 2, width=5)
    marks.points(figure, [cost.ratio], [height], marker, hover, name=name, showlegend=False, error_x=error)


def strip(rows: dict[str, Array], chosen: Selection = NOTHING) -> go.Figure:
    """One row a quantity, (layers,) by name from top to bottom, all on the scale from 0 to 1."""
    names = list(rows)
    values = np.stack([rows[name] for name in names])
    layers = values.shape[1]
    look = {"zmin": 0, "zmax": 1, "xgap": 1, "ygap": 3}
    figure = marks.heat(values, np.arange(layers), names, "share (0 to 1)", **look)
    if layers <= _MOST_WRITTEN:
        _numbers(figure, names, values)
    _cells(figure, names, values)
    # the title of the scale stands along it, which is as long as two rows are high
    style(figure, "layer", "", 110 + 42 * max(2, len(names)))
    figure.update_yaxes(autorange="reversed", automargin=True)
    layer_axis(figure, layers)
    marks.layer_line(figure, chosen)
    return figure


def _numbers(figure: go.Figure, names: list[str], values: Array) -> None:
    """Writes the values into their cells, dark on the light half of the scale: Plotly’s grey is too near."""
    for ink, chosen in (("#FFFFFF", values <= 0.5), ("#111111", values > 0.5)):
        row, layer = np.nonzero(chosen)
        written = {"text": [f"{value:.2f}" for value in values[chosen]], "textfont": {"color": ink}}
        marks.guide(figure, layer, [names[index] for index in row], {}, mode="text", **written)


def _cells(figure: go.Figure, names: list[str], values: Array) -> None:
    """Makes the cells answer to a click."""
    layer = np.tile(np.arange(values.shape[1]), len(names))
    row = np.repeat(names, values.shape[1])
    marks.cells(figure, layer, row, layer, values.ravel(), "layer %{x}, %{y}: %{customdata[3]:.3f}")
