"""The figure of the page: the neurons of one layer as points."""

from typing import Any

import numpy as np
import plotly.graph_objects as go

from gprune.app.pages.neuron_map.colouring import Colouring
from gprune.app.ui import marks
from gprune.app.ui.chart_style import GREY, MAGNITUDE, style
from gprune.app.ui.text import in_figure
from gprune.app.ui.unit import NOTHING, Selection
from gprune.records import Array

MOST_POINTS = 12_000
"""neurons that a chart shows at most: more would take longer to send than to look at"""
LARGE = 1500
"""points beyond which they are drawn smaller"""


def scatter(
    places: Array,
    axes: tuple[str, str],
    colouring: Colouring,
    numbers: Array,
    labels: Array | None = None,
    chosen: Selection = NOTHING,
) -> go.Figure:
    """Neurons of a layer as points of a plane; `numbers` (shown,) are drawn.

    `places` (neurons, 2), `colouring` and `labels` (neurons,) are of the whole layer.
    """
    figure = go.Figure()
    size = 4 if len(numbers) > LARGE else 6
    if colouring.values is not None:
        bar = marks.colorbar(in_figure(colouring.title))
        shown = colouring.values[numbers].astype(np.float32)
        marker = {"color": shown, "colorscale": MAGNITUDE, "size": size, "opacity": 0.85, "colorbar": bar}
        # the ends of the scale are as dark and as light as the page can be
        marker["line"] = {"color": GREY, "width": 0.5}
        hover = f"neuron %{{customdata}}: {in_figure(colouring.title)} %{{marker.color:.3f}}<extra></extra>"
        _points(figure, places, numbers, marker, hover, "neurons", legend=False)
    for group in colouring.groups:
        members = numbers[group.members[numbers]]
        marker = {"color": group.color, "symbol": group.symbol, "size": size, "opacity": 0.85}
        name = f"{in_figure(group.name)} ({int(group.members.sum()):,})"
        _points(figure, places, members, marker, "neuron %{customdata}<extra>%{fullData.name}</extra>", name)
    _mark(figure, places, labels, chosen)
    # a click selects while the pointer moves the plane, and not while it draws
    style(figure, *axes, 560, dragmode="pan")
    return figure.update_layout(legend={"itemsizing": "constant"})


def _points(
    figure: go.Figure,
    places: Array,
    numbers: Array,
    marker: dict[str, Any],
    hover: str,
    name: str,
    legend: bool = True,
) -> None:
    """Draws some neurons, each with its number; few bytes for each, since there are many."""
    kind = np.int16 if not len(numbers) or numbers.max() < 2**15 else np.int32
    figure.add_scattergl(
        x=places[numbers, 0].astype(np.float32),
        y=places[numbers, 1].astype(np.float32),
        customdata=numbers.astype(kind),
        mode="markers",
        marker=marker,
        name=name,
        showlegend=legend,
        hovertemplate=hover,
    )


def _mark(figure: go.Figure, places: Array, labels: Array | None, chosen: Selection) -> None:
    """Circles the selected neuron; of a selected module every neuron."""
    if chosen.neuron is not None:
        x, y = places[chosen.neuron]
        marks.ring(figure, float(x), float(y), f"neuron {chosen.neuron}")
    elif chosen.module is not None and labels is not None:
        members = labels == chosen.module
        figure.add_scattergl(
            x=places[members, 0].astype(np.float32),
            y=places[members, 1].astype(np.float32),
            mode="markers",
            marker={"symbol": "circle-open", "size": 8, "color": marks.RING, "line": {"width": 1}},
            name=f"selected: module {chosen.module}",
            hoverinfo="skip",
        )
