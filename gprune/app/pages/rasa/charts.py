"""Figures of the RASA page (section 3.2)."""

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from gprune.analysis import thresholds
from gprune.app.ui import chart_style, marks
from gprune.app.ui.chart_style import GREY, TEXT_A, TEXT_B, layer_axis, style
from gprune.app.ui.text import in_figure
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
        figure.add_scatter(
            x=statistics.drift[chosen].astype(np.float32),
            y=statistics.score[chosen].astype(np.float32),
            customdata=details[chosen],
            name=f"{name} ({int(chosen.sum())})",
            mode="markers",
            marker={
                "color": color,
                "symbol": symbol,
                "size": size[chosen],
                "opacity": opacity,
                "line": {"width": 0},
            },
            hovertemplate=_HOVER,
        )
    style(
        figure, "mean within-module rank drift", "mean primary score" + (" (log scale)" if log else ""), 480
    )
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


def _rule(
    figure: go.Figure, adapted: AdaptedScores, log: bool, selection: str, scores: tuple[float, float]
) -> None:
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


def sets(table: pd.DataFrame) -> go.Figure:
    """Modules that each threshold set adapts, stacked by scoring text; one set a row of the table."""
    figure = go.Figure()
    counts = (table["adapted"] - table["from B"], table["from B"])
    names = [in_figure(name) for name in table["set"]]
    for count, (value, color, *_) in zip(counts, _GROUPS[1:], strict=True):
        look = thresholds.OUTCOMES[value], color, "%{customdata}, modules: %{x}"
        rules = [in_figure(rule) for rule in table["rule"]]
        # two sets can have one name
        marks.bars(figure, count, list(range(len(names))), *look, customdata=rules, orientation="h")
    style(figure, "adapted modules", "", 120 + 34 * len(names), barmode="stack")
    figure.update_xaxes(tickformat="d", rangemode="tozero")
    figure.update_yaxes(
        tickvals=list(range(len(names))), ticktext=names, autorange="reversed", automargin=True
    )
    return figure
