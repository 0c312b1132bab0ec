"""Figures of the compare page: perplexity of every method on a log axis."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import plotly.graph_objects as go

from gprune.analysis.comparison import DENSE, Row
from gprune.views.frame.chart_style import GREY, METHOD_COLORS, METHOD_SYMBOLS, label, style

ROW_PIXELS = 34
_STEPS: tuple[tuple[float, tuple[float, ...]], ...] = (
    (0.1, tuple(1 + number / 5 for number in range(45))),
    (0.3, (1, 1.1, 1.2, 1.4, 1.6, 1.8, 2, 2.25, 2.5, 3, 3.5, 4, 4.5, 5, 5.5, 6, 6.5, 7, 7.5, 8, 9)),
    (0.7, (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8)),
    (1.5, (1, 2, 3, 5, 7)),
    (float("inf"), (1, 3)),
)
"""steps within a tenfold, by the number of tenfolds shown"""


def dots(rows: list[Row], text: str, names: list[str]) -> go.Figure:
    """Perplexity on one text as dots with their own standard error; the dense model is a dotted line.

    The methods read the same windows: whiskers that overlap do not decide whether two of them differ.

    Args:
        rows: rows of the table, top first.
        text: evaluation text.
        names: what to call each row.
    """
    figure = go.Figure()
    shown = [(row, name) for row, name in zip(rows, names, strict=True) if text in row.cells]
    for method in dict.fromkeys(row.method for row, _ in shown):
        chosen = [(row.cells[text], name) for row, name in shown if row.method == method]
        values = np.array([cell.perplexity for cell, _ in chosen])
        figure.add_scatter(
            x=values,
            y=[name for _, name in chosen],
            name=label(method),
            mode="markers",
            marker={
                "color": METHOD_COLORS.get(method, GREY),
                "symbol": METHOD_SYMBOLS.get(method, "circle"),
                "size": 11,
            },
            error_x={
                "type": "data",
                "array": [cell.standard_error for cell, _ in chosen],
                "thickness": 1.5,
                "width": 5,
            },
            showlegend=False,
            hovertemplate="%{y}: %{x:.2f} ± %{error_x.array:.2f}<extra></extra>",
        )
    for value in sorted({row.cells[text].perplexity for row, _ in shown if row.method == DENSE}):
        figure.add_vline(value, line={"color": GREY, "dash": "dot", "width": 1.5})
    style(figure, f"perplexity on {text} (log scale, lower is better)", "", 96 + ROW_PIXELS * len(shown))
    figure.update_xaxes(**logarithmic([row.cells[text].perplexity for row, _ in shown]))
    figure.update_yaxes(
        categoryorder="array", categoryarray=[name for _, name in shown][::-1], automargin=True
    )
    return figure


def logarithmic(values: Iterable[float]) -> dict[str, Any]:
    """A log axis of perplexities: its range, and ticks at round numbers, the finest set that stays readable.

    Args:
        values: what is drawn; those that are not finite and positive are left out.
    """
    known = np.array([value for value in values if np.isfinite(value) and value > 0])
    if not len(known):
        return {"type": "log"}
    low, high = float(np.log10(known.min())), float(np.log10(known.max()))
    margin = max(0.06 * (high - low), 0.04)
    steps = next(steps for limit, steps in _STEPS if high - low <= limit)
    powers = np.arange(np.floor(low) - 1, np.ceil(high) + 1)
    ticks = [float(step * 10**power) for power in powers for step in steps]
    return {
        "type": "log",
        "range": [low - margin, high + margin],
        "tickvals": ticks,
        "ticktext": [f"{tick:,.0f}" if tick >= 1 and tick == int(tick) else f"{tick:g}" for tick in ticks],
    }
