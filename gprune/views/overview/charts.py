"""The overview's layer strip."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from gprune.records import Array
from gprune.views.frame.chart_style import MAGNITUDE, layer_axis, style


def strip(rows: dict[str, Array]) -> go.Figure:
    """One row a quantity, one column a layer, all on the scale from 0 to 1.

    Args:
        rows: (layers,) values by name, drawn from top to bottom.
    """
    names = list(rows)
    values = np.stack([rows[name] for name in names])
    layers = values.shape[1]
    figure = go.Figure(
        go.Heatmap(
            z=values.astype(np.float32),
            x=np.arange(layers),
            y=names,
            zmin=0,
            zmax=1,
            colorscale=MAGNITUDE,
            xgap=1,
            ygap=3,
            text=[[f"{value:.2f}" for value in row] for row in values] if layers <= 16 else None,
            texttemplate="%{text}" if layers <= 16 else None,
            colorbar={"thickness": 12, "title": {"text": "share (0 to 1)", "side": "right"}},
            hovertemplate="layer %{x}, %{y}: %{z:.3f}<extra></extra>",
        )
    )
    style(figure, "layer", "", 110 + 42 * len(names))
    figure.update_yaxes(autorange="reversed", automargin=True)
    layer_axis(figure, layers)
    return figure
