"""Figures of the compare page: perplexity of every method on a log axis."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from gprune.analysis.comparison import DENSE, Row
from gprune.views.charts.style import GREY, METHOD_COLORS, METHOD_SYMBOLS, label, style

ROW_PIXELS = 34
_STEPS: tuple[tuple[float, tuple[float, ...]], ...] = (
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
    figure.update_xaxes(type="log", range=_log_range(shown, text), **_ticks(shown, text))
    figure.update_yaxes(
        categoryorder="array", categoryarray=[name for _, name in shown][::-1], automargin=True
    )
    return figure


def _values(shown: list[tuple[Row, str]], text: str) -> list[float]:
    return [row.cells[text].perplexity for row, _ in shown if np.isfinite(row.cells[text].perplexity)]


def _log_range(shown: list[tuple[Row, str]], text: str) -> list[float] | None:
    values = _values(shown, text)
    if not values:
        return None
    low, high = np.log10(min(values)), np.log10(max(values))
    margin = max(0.06 * (high - low), 0.04)
    return [float(low - margin), float(high + margin)]


def _ticks(shown: list[tuple[Row, str]], text: str) -> dict[str, list[float] | list[str]]:
    """Ticks at round numbers, written out: the finest set that stays readable over the range."""
    values = _values(shown, text)
    if not values:
        return {}
    span = np.log10(max(values)) - np.log10(min(values))
    steps = next(steps for limit, steps in _STEPS if span <= limit)
    powers = np.arange(np.floor(np.log10(min(values))) - 1, np.ceil(np.log10(max(values))) + 1)
    ticks = [float(step * 10**power) for power in powers for step in steps]
    return {"tickvals": ticks, "ticktext": [f"{tick:,.0f}" if tick >= 1 else f"{tick:g}" for tick in ticks]}
