"""Figures of a text of one's own: its drift beside that of the run's texts, and its ranks by layer."""

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from gprune.analysis.drift import Distribution
from gprune.analysis.own_text import A_B, A_OWN, B_OWN, FLOOR
from gprune.app.ui.chart_style import GREY, PAIR, TEXT_A, TEXT_B, layer_axis, style

_HEIGHT = 380
_LOOKS: dict[str, tuple[dict[str, Any], str]] = {
    A_OWN: ({"color": TEXT_A, "width": 3}, "circle"),
    B_OWN: ({"color": TEXT_B, "width": 3}, "square"),
    A_B: ({"color": PAIR, "width": 2, "dash": "dash"}, "x"),
    FLOOR: ({"color": GREY, "width": 2, "dash": "dot"}, "square-open"),
}


def histogram(curves: list[Distribution]) -> go.Figure:
    """The drift of every pair on halves, and of the own text's two."""
    figure = go.Figure()
    for curve in curves:
        edges = np.linspace(0.0, 1.0, len(curve.shares) + 1)
        figure.add_scatter(
            x=edges,
            y=np.append(curve.shares, curve.shares[-1]),
            name=curve.name,
            mode="lines",
            line={**_LOOKS[curve.name][0], "shape": "hv"},
            hovertemplate=f"d from %{{x:.3f}}: %{{y:.2f}} % of neurons<extra>{curve.name}</extra>",
        )
    style(figure, "rank drift d between halves", "share of neurons (%)", _HEIGHT)
    last = max(int(np.flatnonzero(curve.shares).max()) for curve in curves)
    figure.update_xaxes(range=[0, min(1.0, (last + 2) / len(curves[0].shares))])
    return figure


def correlations(table: pd.DataFrame) -> go.Figure:
    """The rank correlation of every layer, on halves."""
    figure = go.Figure()
    for name in table.columns[1:]:
        line, symbol = _LOOKS[name]
        figure.add_scatter(
            x=table["layer"],
            y=table[name],
            name=name,
            mode="lines+markers",
            line=line,
            marker={"symbol": symbol, "size": 8},
            hovertemplate="layer %{x}: %{y:.3f}<extra>" + name + "</extra>",
        )
    style(figure, "layer", "Spearman correlation of ranks, halves", _HEIGHT)
    layer_axis(figure, len(table))
    return figure
