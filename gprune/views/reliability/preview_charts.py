"""Figure of the preview: held-out perplexity against retention.

Points that still lack windows are seen on different ones. What they have in common is the dense model: each
stands at the dense perplexity, over the most windows that are known, times its own paired ratio to it.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from gprune.preview import Answer
from gprune.views.frame import ticks
from gprune.views.frame.chart_style import GREY, METHOD_COLORS, METHOD_DASHES, label, style
from gprune.views.frame.marks import RING

Point = tuple[str, float, Answer]
"""method, retention, and what is known of it"""


def curve(points: list[Point], present: float) -> go.Figure:
    """Perplexity of every method at every retention that is known, on a log axis.

    Args:
        points: what is known, at least one window of each.
        present: the retention that is chosen.
    """
    figure = go.Figure()
    dense = reference(points)
    for method in dict.fromkeys(name for name, _, _ in points):
        own = sorted((level, answer) for name, level, answer in points if name == method)
        symbols = ["circle" if answer.progress == "complete" else "circle-open" for _, answer in own]
        color = METHOD_COLORS[method]
        figure.add_scatter(
            x=[level for level, _ in own],
            y=[_level(answer, dense) for _, answer in own],
            error_y={"array": [_error(answer, dense) for _, answer in own], "thickness": 1, "width": 3},
            customdata=[[answer.done, answer.windows] for _, answer in own],
            name=label(method),
            mode="lines+markers",
            line={"color": color, "dash": METHOD_DASHES[method]},
            marker={"symbol": symbols, "size": 10, "color": color, "line": {"width": 2, "color": color}},
            hovertemplate="%{x:.0%} kept: %{y:.2f}, %{customdata[0]} of %{customdata[1]} windows"
            "<extra>" + label(method) + "</extra>",
        )
    figure.add_hline(dense, line={"color": GREY, "dash": "dot"}, annotation_text="dense")
    figure.add_vline(present, line={"color": RING, "width": 2})
    style(figure, "decoder weights kept", "held-out perplexity (log scale)", 340)
    known = [_level(answer, dense) for _, _, answer in points] + [dense]
    low, high = min(known) / 1.15, max(known) * 1.15
    figure.update_yaxes(range=[np.log10(low), np.log10(high)], **ticks.logarithmic(low, high))
    figure.update_xaxes(range=[0.25, 0.95], tickformat=".0%")
    return figure


def reference(points: list[Point]) -> float:
    """The dense model's perplexity over the most windows that are known."""
    return max((answer for _, _, answer in points), key=lambda answer: answer.done).base_perplexity


def _level(answer: Answer, dense: float) -> float:
    found = answer.difference
    return dense * float(np.exp(found.nats)) if found else dense


def _error(answer: Answer, dense: float) -> float:
    """One standard error of the paired ratio; none while it is not known."""
    found = answer.difference
    return _level(answer, dense) * found.nats_error if found and np.isfinite(found.nats_error) else 0.0


def table(points: list[Point]) -> pd.DataFrame:
    """The numbers of the curve, with the difference from the dense model."""
    dense = reference(points) if points else np.nan
    rows = [
        {
            "method": label(method),
            "kept": level,
            "perplexity": _level(answer, dense),
            "log-perplexity over dense": answer.difference.nats if answer.difference else np.nan,
            "standard error": answer.difference.nats_error if answer.difference else np.nan,
            "windows": answer.done,
        }
        for method, level, answer in points
    ]
    return pd.DataFrame(rows)
