"""Figures of the module agreement page (Fig. 1b)."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from gprune.analysis import agreement as analysis
from gprune.records import Agreement, Partition
from gprune.views.charts.style import BLUE, GREY, PURPLE, SKY, layer_axis, style

_COLORS = (BLUE, SKY, PURPLE)
_SYMBOLS = ("circle", "square", "diamond", "cross", "x")
_DASHES = ("dash", "dot")


def lines(record: Agreement, measure: str) -> go.Figure:
    """One line a comparison over the layers, with its mean; controls are grey.

    Args:
        record: the agreement.
        measure: `ari` or `overlap`.
    """
    figure = go.Figure()
    values = getattr(record, measure)
    layers = values.shape[1]
    drawn = {False: 0, True: 0}
    for row, (name, series) in enumerate(zip(record.comparisons, values, strict=True)):
        control = analysis.is_control(name)
        index, drawn[control] = drawn[control], drawn[control] + 1
        mean, deviation = analysis.spread(series)
        color = GREY if control else _COLORS[index % len(_COLORS)]
        dash = _DASHES[index % len(_DASHES)] if control else "solid"
        figure.add_scatter(
            x=list(range(layers)),
            y=series,
            name=f"{name}: {mean:.2f} ± {deviation:.2f}",
            mode="lines+markers",
            line={"color": color, "dash": dash, "width": 2},
            marker={"symbol": _SYMBOLS[row % len(_SYMBOLS)], "size": 7},
            hovertemplate="layer %{x}: %{y:.3f}<extra>" + name + "</extra>",
        )
    style(figure, "layer", f"{analysis.MEASURES[measure]} (1 = identical)", 400)
    layer_axis(figure, layers)
    # the legend's long names stand below each other, right of nothing
    figure.update_layout(legend={"orientation": "v", "y": -0.22, "yanchor": "top"}, margin={"b": 150})
    low = min(0.0, float(values.min()))
    figure.update_yaxes(range=[low - 0.03, 1.03])
    return figure


def count_table(partition: Partition) -> pd.DataFrame:
    """Module counts of every layer."""
    return pd.DataFrame(
        {
            "layer": np.arange(len(partition.counts)),
            "modules": partition.counts,
            "chosen by the silhouette": partition.initial_counts,
        }
    )


def counts(partition: Partition) -> go.Figure:
    """Modules of every layer, before and after split and refinement."""
    figure = go.Figure()
    rows = (
        ("chosen by the silhouette", partition.initial_counts, GREY, "square-open"),
        ("in the end", partition.counts, BLUE, "circle"),
    )
    for name, values, color, symbol in rows:
        figure.add_scatter(
            x=np.arange(len(values)),
            y=values,
            name=name,
            mode="lines+markers",
            line={"color": color, "width": 2},
            marker={"symbol": symbol, "size": 7},
            hovertemplate="layer %{x}: %{y} modules<extra>" + name + "</extra>",
        )
    style(figure, "layer", "modules", 300)
    layer_axis(figure, len(partition.counts))
    figure.update_yaxes(rangemode="tozero", tickformat="d")
    return figure
