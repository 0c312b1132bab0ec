"""Figures of the module agreement page (Fig. 1b)."""

from collections.abc import Collection
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from gprune.analysis import agreement as analysis
from gprune.app.ui import marks
from gprune.app.ui.chart_style import GREY, METHOD_COLORS, layer_axis, style
from gprune.app.ui.unit import NOTHING, Selection
from gprune.pipeline.stages.comparisons import COMPARISONS, CONTROL, FANG, SUBSTITUTION, SWAP, Comparison
from gprune.records import Agreement, Partition

# comparisons of one kind share a hue, and differ in shade, marker and dash; controls are dashed and hollow
_MODULES, _GROUPS = METHOD_COLORS["gprune"], METHOD_COLORS["fang"]
_COLORS = {
    SUBSTITUTION: (_MODULES, "#5BA3D9", "#2E5FA3"),
    SWAP: (_MODULES,),
    FANG: (_GROUPS,),
    CONTROL: (_MODULES,),
}
_SYMBOLS = {
    SUBSTITUTION: ("circle", "square", "diamond"),
    SWAP: ("pentagon",),
    FANG: ("triangle-up", "triangle-down", "star"),
    CONTROL: ("circle-open", "square-open", "diamond-open"),
}
_DASHES = {
    SUBSTITUTION: ("solid",),
    SWAP: ("dashdot",),
    FANG: ("solid", "longdash", "dashdot"),
    CONTROL: ("dash", "dot"),
}
_PLOT, _ENTRY = 290, 21
"""pixels of the plot itself and of one line of its legend"""


def lines(
    record: Agreement,
    measure: str,
    chosen: Collection[str] | None = None,
    selected: Selection = NOTHING,
) -> go.Figure:
    """One line a comparison over the layers, with its mean; controls are dashed and hollow.

    `measure` is `ari` or `overlap`; all comparisons are drawn where none are `chosen`.
    """
    figure, values = go.Figure(), getattr(record, measure)
    drawn = dict.fromkeys(_COLORS, 0)
    for name, series in zip(record.comparisons, values, strict=True):
        kind, title = COMPARISONS[name].kind, COMPARISONS[name].title
        # a comparison keeps its look whatever else is chosen
        look, drawn[kind] = _look(COMPARISONS[name], drawn[kind]), drawn[kind] + 1
        if chosen is not None and name not in chosen:
            continue
        mean, deviation = analysis.spread(series)
        layers, called = list(range(values.shape[1])), f"{title}: {mean:.2f} ± {deviation:.2f}"
        hover = f"layer %{{x}}: %{{y:.3f}}<extra>{title}</extra>"
        marks.curve(figure, layers, series, called, hover=hover, customdata=marks.layer_data(layers), **look)
    framed = _framed(figure, measure, values.shape[1])
    marks.layer_line(framed, selected)
    return framed


def _look(comparison: Comparison, index: int) -> dict[str, Any]:
    """Line and marker of the comparison that comes `index`-th of its kind."""
    kind = comparison.kind
    colors = (_GROUPS,) if comparison.fang else _COLORS[kind]
    symbols, dashes = _SYMBOLS[kind], _DASHES[kind]
    return {
        "line": {"color": colors[index % len(colors)], "dash": dashes[index % len(dashes)], "width": 2},
        "symbol": symbols[index % len(symbols)],
    }


def _framed(figure: go.Figure, measure: str, layers: int) -> go.Figure:
    """Axes, and the legend's long names below each other under the plot."""
    below = 58 + _ENTRY * len(figure.data)
    style(figure, "layer", f"{analysis.MEASURES[measure]} (1 = identical)", _PLOT + below + 16)
    layer_axis(figure, layers)
    legend = {"orientation": "v", "y": -52 / _PLOT, "yanchor": "top"}
    figure.update_layout(legend=legend, margin={"b": below}, showlegend=True)
    lowest = min([0.0, *(float(np.min(trace.y)) for trace in figure.data)])
    return figure.update_yaxes(range=[lowest - 0.03, 1.03])


def confusion(shared: analysis.Confusion, first: str, second: str) -> go.Figure:
    """Where the neurons of each module of `first`, a row each in matched order, are in the other."""
    hover = f"module %{{y}} of {first}, module %{{x}} of {second}: %{{z:.0f}} % of the row, neurons: "
    told: dict[str, Any] = {"hoverinfo": "all", "hovertemplate": hover + "%{customdata}<extra></extra>"}
    told |= {"customdata": shared.counts.astype(np.int32), "zmin": 0, "zmax": 100}
    columns, rows = list(shared.columns), list(shared.rows)
    figure = marks.heat(100.0 * shared.shares.astype(np.float32), columns, rows, "share of row (%)", **told)
    across = f"module of {second}, in the order of the best match"
    style(figure, across, f"module of {first}", 140 + 17 * max(len(shared.rows), 8))
    # numbers are names here, not quantities
    figure.update_xaxes(type="category", showgrid=False, tickangle=0)
    figure.update_yaxes(type="category", autorange="reversed", showgrid=False)
    return figure.update_layout(margin={"l": 88})


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
        ("in the end", partition.counts, METHOD_COLORS["gprune"], "circle"),
    )
    for name, values, color, symbol in rows:
        line, hover = {"color": color, "width": 2}, "layer %{x}, modules: %{y}"
        marks.curve(figure, np.arange(len(values)), values, name, line, hover, symbol=symbol, size=7)
    style(figure, "layer", "modules", 300)
    layer_axis(figure, len(partition.counts))
    return figure.update_yaxes(rangemode="tozero", tickformat="d")
