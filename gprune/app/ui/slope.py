"""The slope chart: neurons of one layer, from their rank on A to their rank on B."""

import numpy as np
import plotly.graph_objects as go

from gprune.analysis.neurons import Movers
from gprune.app.ui import marks
from gprune.app.ui.chart_style import TEXT_A, TEXT_B, style

_GOES_UP, _GOES_DOWN = "higher on B", "higher on A"


def slopes(found: Movers, height: int, chosen: int | None = None) -> go.Figure:
    """One line a neuron, in the hue of the text that ranks it higher."""
    figure = go.Figure()
    up = found.second > found.first
    for name, color, members in ((_GOES_DOWN, TEXT_A, ~up), (_GOES_UP, TEXT_B, up)):
        if members.any():
            figure.add_trace(_lines(found, np.flatnonzero(members), name, color))
        figure.add_annotation(
            text=f"{name}: {int(members.sum())}",
            font={"color": color},
            x=1.0 if color == TEXT_B else 0.0,
            xref="paper",
            xanchor="right" if color == TEXT_B else "left",
            xshift=8 if color == TEXT_B else -36,
            y=1.02,
            yref="paper",
            yanchor="bottom",
            showarrow=False,
        )
    _mark(figure, found, chosen)
    margin = {"l": 56, "r": 12, "t": 28, "b": 32}
    style(figure, "", "rank (1 = most important)", height, margin=margin)
    ticks = {"tickvals": [0, 1], "ticktext": ["on text A", "on text B"]}
    figure.update_xaxes(range=[-0.12, 1.12], showgrid=False, **ticks)
    figure.update_yaxes(range=[-0.03, 1.03], tickvals=[0, 0.25, 0.5, 0.75, 1])
    return figure


def _lines(found: Movers, members: np.ndarray, name: str, color: str) -> go.Scatter:
    """One trace for all lines of a hue, broken between neurons."""
    ends = zip(found.first[members], found.second[members], strict=True)
    neuron = np.repeat(found.neurons[members], 3)
    moves = np.repeat(found.second[members] - found.first[members], 3)
    identity = marks.identity(found.layer, marks.NONE, neuron)
    return go.Scatter(
        x=[0.0, 1.0, None] * len(members),
        y=[rank for pair in ends for rank in (*(round(float(end), 4) for end in pair), None)],
        customdata=np.column_stack([identity, np.round(moves, 4)]),
        mode="lines+markers",
        line={"color": color, "width": 1.5},
        marker={"color": color, "size": 7},
        name=name,
        showlegend=False,
        hovertemplate="neuron %{customdata[2]:.0f}: rank %{y:.3f}, moves by "
        "%{customdata[3]:+.3f}<extra></extra>",
    )


def _mark(figure: go.Figure, found: Movers, chosen: int | None) -> None:
    place = np.flatnonzero(found.neurons == chosen) if chosen is not None else np.empty(0)
    if len(place):
        ends = [float(found.first[place[0]]), float(found.second[place[0]])]
        figure.add_scatter(
            x=[0, 1],
            y=ends,
            mode="lines+markers",
            line={"color": marks.RING, "width": 4},
            marker={"color": marks.RING, "size": 10},
            name=f"neuron {chosen}",
            showlegend=False,
            hovertemplate=f"neuron {chosen}: rank %{{y:.3f}}<extra>selected</extra>",
        )
