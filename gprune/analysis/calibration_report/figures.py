"""Figures of a card: the effect of sampling by the number of sequences, and the overlap of kept neurons.

The Plotly figures have no fonts and backgrounds: the page of the app and the file of the card set their own.
"""

import html
import math

import numpy as np
import plotly.graph_objects as go

from gprune.analysis.calibration_report.card import TextCard
from gprune.analysis.formatting import TEXTS, percent

_GREY, _LETTERS = "#8C8C8C", 13
"""hue of references; pixels of a letter"""
_CURVE_POINTS = 60
_MAX_EXTRAPOLATION = 16.0
"""largest number of sequences on the axis, as a multiple of the drawn sequences"""
_ROW_PIXELS = 78
"""height of the row of one text in the overlap figure"""


def plot_sampling_drift(card: TextCard, share: float) -> go.Figure:
    """Plot the rank drift between two samples by their size, with the fitted law.

    Horizontal lines show `share` of the drift to each other text, vertical ones the drawn and recommended sequences.
    """
    figure, color, count = go.Figure(), TEXTS[card.letter], card.size.sequences
    needed = card.recommended(share)
    last = max(count, min(needed or count, _MAX_EXTRAPOLATION * count))
    _add_measurements(figure, card, color)
    _add_law(figure, card, color, last)
    for other in card.others:
        if (height := share * other.drift_beyond) > 0:
            name = f"{percent(share)} of the drift to {html.escape(other.label)}"
            line = {"color": TEXTS[other.letter], "dash": "dash", "width": 1.5}
            figure.add_hline(y=height, line=line, name=name, showlegend=True)
    line_style = {"color": _GREY, "dash": "dot", "width": 1.5}
    figure.add_vline(x=count, line=line_style, name=f"{count:,} sequences (this run)", showlegend=True)
    if needed and needed != count and needed <= last:
        name = f"{needed:,} sequences ({percent(share)})"
        figure.add_vline(x=needed, line=line_style | {"dash": "dashdot"}, name=name, showlegend=True)
    _set_layout(figure, "sequences per sample (log scale)", "median rank drift (log scale)", 480)
    _set_axes(figure, card, share, last)
    return figure


def _add_law(figure: go.Figure, card: TextCard, color: str, last: float) -> None:
    """Add the curve of the fitted law from the smallest measured size to slightly beyond `last` sequences."""
    if not card.drift.fitted:
        return
    sizes = np.geomspace(card.resampled.sequences[0], 1.15 * last, _CURVE_POINTS)
    figure.add_scatter(
        x=sizes,
        y=[card.drift.at(size) for size in sizes],
        name="expected sampling drift",
        mode="lines",
        line={"color": color, "width": 1.5, "dash": "dot"},
        hovertemplate="expected for %{x:,.0f} sequences: %{y:.4f}<extra></extra>",
    )


def _set_axes(figure: go.Figure, card: TextCard, share: float, last: float) -> None:
    """Set logarithmic axes with ranges that include all data, with a margin at both ends."""
    samples = card.resampled
    ticks = sorted({round(float(size)) for size in samples.sequences} | {card.size.sequences} | {round(last)})
    figure.update_xaxes(
        type="log",
        tickvals=ticks,
        ticktext=[f"{tick:,}" for tick in ticks],
        range=[math.log10(samples.sequences[0] / 1.15), math.log10(1.25 * last)],
        minor={"ticks": "", "showgrid": False},
    )
    heights = [share * other.drift_beyond for other in card.others]
    # a logarithmic axis cannot show 0
    visible = [value for value in (*samples.drift.ravel(), card.drift.at(last), *heights) if value > 0]
    if visible:
        y_range = [math.log10(min(visible) / 1.3), math.log10(max(visible) * 1.6)]
        figure.update_yaxes(type="log", tickformat=".2~r", dtick="D2", range=y_range)


def _add_measurements(figure: go.Figure, card: TextCard, color: str) -> None:
    """Add a point for each size of the samples: the mean over all draws, with their range as an error bar."""
    samples = card.resampled
    mean = samples.drift.mean(axis=1)
    figure.add_scatter(
        x=samples.sequences,
        y=mean,
        name=f"two samples of {html.escape(card.label)}",
        mode="markers",
        marker={"color": color, "size": 9},
        error_y={
            "type": "data",
            "symmetric": False,
            "array": samples.drift.max(axis=1) - mean,
            "arrayminus": mean - samples.drift.min(axis=1),
            "thickness": 1,
            "width": 4,
        },
        hovertemplate="%{x:,.0f} sequences in each: %{y:.4f}<extra></extra>",
    )


def plot_overlap(card: TextCard) -> go.Figure:
    """Plot the Jaccard index of the neurons that are kept with the card's text and with each other text.

    For comparison, each row also has the index expected by chance and for another sample of the same text.
    """
    figure = go.Figure()
    rows, hues = [html.escape(other.label) for other in card.others], [TEXTS[other.letter] for other in card.others]
    markers = (
        ("by chance", "jaccard_chance", "line-ns-open", _GREY),
        ("another text", "jaccard", "circle", None),
        ("another sample", "jaccard_sampling", "diamond-open", _GREY),
    )
    for name, field, symbol, color in markers:
        figure.add_scatter(
            x=[getattr(other, field) for other in card.others],
            y=rows,
            name=name,
            mode="markers+text",
            text=[f"{getattr(other, field):.2f}" for other in card.others],
            textposition="top center",
            textfont={"size": _LETTERS},
            marker={"symbol": symbol, "size": 14, "color": color or hues, "line": {"width": 2}},
            cliponaxis=False,
            hovertemplate="%{y}: %{x:.3f}<extra>" + name + "</extra>",
        )
    _set_layout(figure, "Jaccard index of the neurons kept", "", 130 + _ROW_PIXELS * len(rows))
    figure.update_xaxes(range=[0, 1.04], dtick=0.2)
    # the range is reversed to place the first row on top, and is longer there for the numbers above its marks
    return figure.update_yaxes(type="category", range=[len(rows) - 0.5, -0.7], showgrid=False)


def _set_layout(figure: go.Figure, x: str, y: str, height: int) -> None:
    figure.update_layout(
        height=height,
        margin={"l": 72, "r": 24, "t": 24, "b": 56},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        legend={"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"},
        legend_font_size=_LETTERS,
        hoverlabel={"namelength": -1},
    )
    figure.update_xaxes(title_text=x, zeroline=False, tickfont_size=_LETTERS)
    figure.update_yaxes(title_text=y, zeroline=False, tickfont_size=_LETTERS)
