"""Figures of the RASA page (section 3.2), and of what other thresholds and another retention would change."""

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from gprune.analysis import thresholds
from gprune.analysis.decisions import Bins
from gprune.analysis.mask_diff import Flips
from gprune.app.ui import chart_style, marks
from gprune.app.ui.chart_style import BLUE, GREY, TEXT_A, TEXT_B, layer_axis, style
from gprune.records import AdaptedScores, Array, ModuleStatistics

_GROUPS = (
    (thresholds.KEPT, GREY, "circle", 0.45),
    (thresholds.FROM_PRIMARY, TEXT_A, "square", 0.9),
    (thresholds.FROM_AUXILIARY, TEXT_B, "diamond", 0.95),
)
_HOVER = (
    "layer %{customdata[0]:.0f}, module %{customdata[1]:.0f}, neurons: %{customdata[2]:.0f}<br>"
    "drift %{x:.3f}, mean score %{y:.4g}<br>"
    "u on A %{customdata[3]:.3f}, u on B %{customdata[4]:.3f}<extra></extra>"
)
SMALLEST, LARGEST, LARGEST_OF_MANY = 4.0, 16.0, 9.0
"""diameters in pixels: the least, the largest module's, and the same where there are many modules"""
MANY = 300
REMOVED, ADDED = "#E08214", "#8073AC"
"""hues of the purple-orange scale, which shows signs; seen on light and dark ground"""
_PAPER = {"paper, LLaMA2": (0.90, 0.90), "paper, Vicuna": (0.90, 0.85)}


def scatter(
    statistics: ModuleStatistics, adapted: AdaptedScores, log: bool, selection: str = "drift_and_score"
) -> go.Figure:
    """Modules by drift and mean score, with the lines of the rule and the region that it adapts.

    That is the corner of both lines, all right of the drift line, or nothing, by `selection`.
    """
    figure = go.Figure()
    size, group = _diameters(statistics.size), thresholds.groups(adapted)
    module = thresholds.labels_within_layer(statistics.layer)
    details = np.column_stack(
        [statistics.layer, module, statistics.size, statistics.u_primary, statistics.u_auxiliary]
    ).astype(np.float32)
    for value, color, symbol, opacity in _GROUPS:
        name, chosen = thresholds.OUTCOMES[value], group == value
        x, y = (values[chosen].astype(np.float32) for values in (statistics.drift, statistics.score))
        look = {"color": color, "symbol": symbol, "opacity": opacity, "line": {"width": 0}}
        named = f"{name} ({int(chosen.sum())})"
        marks.points(figure, x, y, look | {"size": size[chosen]}, _HOVER, name=named, customdata=details[chosen])
    style(figure, "mean within-module rank drift", "mean primary score" + (" (log scale)" if log else ""), 480)
    low, high = _ranges(figure, statistics, log)
    _rule(figure, adapted, log, selection, (low, high))
    return figure


def _diameters(sizes: Array) -> Array:
    """(modules,) marker diameters; the area grows with the number of neurons."""
    largest = LARGEST if len(sizes) <= MANY else LARGEST_OF_MANY
    scaled = largest * np.sqrt(sizes / sizes.max())
    return np.maximum(scaled, SMALLEST).astype(np.float32)


def _ranges(figure: go.Figure, statistics: ModuleStatistics, log: bool) -> tuple[float, float]:
    """Sets the range of both axes; returns the lowest and highest score that is drawn."""
    figure.update_xaxes(range=list(_padded(statistics.drift)))
    positive = statistics.score[statistics.score > 0]
    if not (log and positive.size):
        low, high = _padded(statistics.score)
        figure.update_yaxes(range=[low, high], type="log" if log else "linear", exponentformat="power")
        return (10.0**low, 10.0**high) if log else (low, high)
    low, high = _padded(np.log10(positive))
    figure.update_yaxes(range=[low, high], **chart_style.log_ticks(10.0**low, 10.0**high))
    return 10.0**low, 10.0**high


def _rule(figure: go.Figure, adapted: AdaptedScores, log: bool, selection: str, scores: tuple[float, float]) -> None:
    """Draws the lines that the rule goes by and shades what it adapts."""
    x, y = adapted.drift_threshold, adapted.score_threshold
    if selection not in ("drift", "drift_and_score"):
        return
    both = selection == "drift_and_score"
    top = y if both else scores[1]
    if top > scores[0]:
        figure.add_shape(
            type="rect",
            x0=x,
            x1=figure.layout.xaxis.range[1],
            y0=scores[0],
            y1=top,
            fillcolor=TEXT_B,
            opacity=0.10,
            line_width=0,
            layer="below",
        )
    line = {"color": GREY, "dash": "dash", "width": 2}
    note = {"showarrow": False, "xshift": 4, "yshift": -4, "xanchor": "left", "yanchor": "top"}
    figure.add_vline(x, line=line)
    figure.add_annotation(x=x, y=1, yref="paper", text=f"drift ≥ {x:.3f}", **note)
    if not both:
        return
    figure.add_hline(y, line=line)
    if y > 0 or not log:
        # annotations on a log axis are placed by exponent, shapes by value
        height = float(np.log10(y)) if log else y
        figure.add_annotation(x=0, xref="paper", y=height, text=f"score ≤ {y:.3g}", **note)


def _padded(values: Array) -> tuple[float, float]:
    """Range of the values with a margin of 4 % on both sides; of one value, a range around it."""
    low, high = float(np.min(values)), float(np.max(values))
    margin = 0.04 * (high - low) or max(abs(high), 1.0) * 0.04
    return low - margin, high + margin


def by_layer(counts: Array) -> go.Figure:
    """Adapted modules of every layer, stacked by scoring text."""
    figure = go.Figure()
    for row, (value, color, *_) in zip(counts, _GROUPS[1:], strict=True):
        name = thresholds.OUTCOMES[value]
        marks.bars(figure, np.arange(len(row)), row, name, color, "layer %{x}, modules: %{y}")
    style(figure, "layer", "adapted modules", 280, barmode="stack")
    figure.update_layout(legend={"traceorder": "normal"})
    layer_axis(figure, counts.shape[1])
    figure.update_yaxes(tickformat="d", rangemode="tozero")
    if counts.max() < 5:
        figure.update_yaxes(dtick=1)
    return figure


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
    return figure.add_hline(0, line={"color": GREY, "width": 1})


def retention(before: Bins, after: Bins, method: str) -> go.Figure:
    """Share of neurons kept in every drift bin: the baseline, the run, and these thresholds."""
    figure = go.Figure()
    look = chart_style.METHOD_COLORS[method], chart_style.METHOD_SYMBOLS[method], "dot"
    _line(figure, before.names, before.base, chart_style.label(method), look)
    _line(figure, before.names, before.ours, "this run", (BLUE, "circle-open", "dash"))
    _line(figure, before.names, after.ours, "these thresholds", (BLUE, "circle", "solid"))
    return style(figure, "drift bin of the modules", "share of neurons kept", 300)


def jaccard(before: Bins, after: Bins, base: str) -> go.Figure:
    """Overlap with the neurons that the baseline keeps, in every drift bin."""
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
    bar = {"title": {"text": "% adapted"}, "thickness": 12}
    figure = marks.heat(np.round(share, 3), levels, levels, "", colorbar=bar)
    drift, score = (axis.ravel() for axis in np.meshgrid(levels, levels))
    data = np.column_stack([drift, score, counts.T.ravel()])
    unseen = {"symbol": "square", "size": 16, "opacity": 0}
    hover = "γ_drift %{x:.3f}, γ_score %{y:.3f}, modules: %{customdata[2]}<extra>click to set</extra>"
    marks.points(figure, drift, score, unseen, hover, customdata=data, showlegend=False)
    edge = 0.5 * float(levels[1] - levels[0])
    for (name, (x, y)), symbol in zip(_PAPER.items(), ("star", "star-diamond"), strict=True):
        _spot(figure, (x, y), name, {"symbol": symbol, "size": 13, "color": chart_style.ORANGE})
    if all(levels[0] - edge <= level <= levels[-1] + edge for level in present):
        _spot(figure, present, "present lines", {"symbol": "circle-open", "size": 18, "color": marks.RING})
    style(figure, "γ_drift", "γ_score", 380)
    for update in (figure.update_xaxes, figure.update_yaxes):
        update(range=[levels[0] - edge, levels[-1] + edge], tickformat=".2f")
    return figure


def _spot(figure: go.Figure, at: tuple[float, float], name: str, marker: dict[str, object]) -> None:
    line = {"width": 2, "color": None if marker["symbol"] == "circle-open" else "white"}
    hover = f"{name}: γ_drift %{{x:.3f}}, γ_score %{{y:.3f}}<extra></extra>"
    marks.points(figure, [at[0]], [at[1]], marker | {"line": line}, hover, name=name, customdata=[[*at, 0]])


def grid_table(levels: Array, counts: Array) -> pd.DataFrame:
    """Modules adapted, one row a drift quantile and one column a score quantile."""
    columns = {f"γ_score {level:.2f}": counts[:, place] for place, level in enumerate(levels)}
    return pd.DataFrame({"γ_drift": levels} | columns)


def kept_by_layer(own: Array, chosen: Array, name: str) -> go.Figure:
    """Share of each layer's neurons that the run keeps, and that a choice keeps."""
    figure = go.Figure()
    layers = np.arange(len(own))
    hover = "layer %{x}: %{y:.1f} % kept"
    marks.bars(figure, layers, 100.0 * own, "this run's GPrune", chart_style.PALE, hover)
    marker = {"color": BLUE, "size": 9, "symbol": "circle"}
    marks.curve(figure, layers, 100.0 * chosen, name, {}, hover, mode="markers", marker=marker)
    style(figure, "layer", "neurons kept (%)", 260)
    layer_axis(figure, len(layers))
    return figure.update_yaxes(range=[0, 102])
