"""Figures of the calibration data page: the pair matrix and the sample-size curve."""

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from gprune.analysis import calibration as analysis
from gprune.app.ui import marks
from gprune.app.ui.chart_style import GREY, MAGNITUDE, PAIR, TEXT_A, TEXT_B, TEXT_C, style

_LOOKS = {"A": (TEXT_A, "circle"), "B": (TEXT_B, "square"), "C": (TEXT_C, "diamond")}
_CELL = 78
"""pixels of one row of the pair matrix"""


def matrix(table: pd.DataFrame, names: dict[str, str], highest: float) -> go.Figure:
    """A square of texts by texts with its numbers: values by letter, NaN where not known.

    `names` are safe to draw; `highest` has the brightest colour.
    """
    values = table.to_numpy(dtype=np.float64)
    titles = [f"{letter} ({names[letter]})" for letter in table.index]
    figure = go.Figure(
        go.Heatmap(
            z=values,
            x=list(table.columns),
            y=list(table.index),
            text=[["" if np.isnan(value) else f"{value:.3f}" for value in row] for row in values],
            customdata=[[f"{first} and {second}" for second in titles] for first in titles],
            texttemplate="%{text}",
            textfont={"size": 15},
            colorscale=MAGNITUDE,
            zmin=float(np.min(values, initial=0.0, where=~np.isnan(values))),
            zmax=highest,
            xgap=2,
            ygap=2,
            showscale=False,
            hovertemplate="%{customdata}: %{text}<extra></extra>",
            hoverongaps=False,
        )
    )
    style(figure, "text", "text", 84 + _CELL * len(table))
    figure.update_xaxes(type="category", showgrid=False)
    return figure.update_yaxes(type="category", autorange="reversed", showgrid=False)


def stability(curves: list[analysis.Curve], samples: int) -> go.Figure:
    """Rank correlation of two parts by their size; the chosen number of sequences is marked."""
    figure = go.Figure()
    for curve in curves:
        _draw(figure, curve, samples)
    sizes = sorted({round(float(size), 2) for curve in curves for size in curve.sequences} | {float(samples)})
    style(figure, "sequences in each part (log scale)", "Spearman correlation of ranks", 400)
    figure.update_xaxes(
        type="log",
        tickmode="array",
        tickvals=sizes,
        ticktext=[f"{size:,.0f}" if size >= 10 else f"{size:.2g}" for size in sizes],
        minor={"ticks": "", "showgrid": False},
        range=[np.log10(sizes[0] / 1.12), np.log10(samples * 1.12)],
    )
    figure.add_vline(x=samples, line={"color": GREY, "dash": "dot", "width": 1.5})
    return figure.add_annotation(
        text=f"|D| = {samples:,}",
        x=np.log10(samples),
        y=0,
        yref="paper",
        xanchor="right",
        yanchor="bottom",
        showarrow=False,
        xshift=-4,
    )


def _draw(figure: go.Figure, curve: analysis.Curve, samples: int) -> None:
    """One curve with the range of its draws; that of one text goes on to what is expected at |D|."""
    color, symbol = (PAIR, "x") if curve.crosses else _LOOKS.get(curve.name, (GREY, "cross"))
    name = curve.name if curve.crosses else f"{curve.name} with itself"
    line = {"color": color, "width": 2, "dash": "dash" if curve.crosses else "solid"}
    marks.curve(
        figure, curve.sequences, curve.mean, f"{name}: {curve.mean[-1]:.3f}", line,
        f"%{{x:.10g}} sequences: %{{y:.3f}}<extra>{curve.name}</extra>", symbol=symbol,
        error_y=marks.around(curve.mean, curve.lowest, curve.highest, 1, width=4),
    )  # fmt: skip
    expected = analysis.projected(curve, samples)
    if curve.crosses or not np.isfinite(expected):
        return
    marks.curve(
        figure, [curve.sequences[-1], samples], [curve.mean[-1], expected], f"{curve.name}, expected",
        {"color": color, "width": 1.5, "dash": "dot"},
        f"expected at %{{x:.10g}} sequences: %{{y:.3f}}<extra>{curve.name}</extra>",
        symbol=f"{symbol}-open", size=[0, 9], showlegend=False,
    )  # fmt: skip
