"""The figure of the page: how likely every model finds the options of a question."""

import math

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from gprune.analysis.changed_answers import ACC, UNITS
from gprune.app.ui.chart_style import GREY, METHOD_COLORS, METHOD_SYMBOLS, label, style

MOST_OPTIONS = 12
"""options that are drawn; the table below has all"""
_RIGHT = " ✓"
_ROW = 44
"""pixels of one option"""


def likelihoods(table: pd.DataFrame, rule: str) -> go.Figure:
    """A line an option, a mark a model; the right option is marked and shaded.

    `table` is that of `flipped.of_question`; `rule` is ACC or ACC_NORM.
    """
    drawn = _drawn(table)
    rows = [f"{name}{_RIGHT if right else ''}" for name, right in zip(drawn.option, drawn.right, strict=True)]
    figure = go.Figure()
    for name in drawn.columns[2:]:
        figure.add_scatter(
            x=[value if math.isfinite(value) else None for value in drawn[name]],
            y=rows,
            name=label(name),
            mode="markers",
            marker={
                "color": METHOD_COLORS.get(name, GREY),
                "symbol": METHOD_SYMBOLS.get(name, "circle"),
                "size": 12,
                "line": {"width": 2, "color": METHOD_COLORS.get(name, GREY)},
            },
            hovertemplate="option %{y}: %{x:.3f}<extra>" + label(name) + "</extra>",
        )
    what = "log-likelihood" if rule == ACC else "log-likelihood for its length"
    style(figure, f"{what} ({UNITS[rule]})", "option", 120 + _ROW * len(rows))
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=rows[::-1])
    for place, right in enumerate(drawn.right):
        if right:
            middle = len(rows) - 1 - place
            figure.add_hrect(y0=middle - 0.5, y1=middle + 0.5, fillcolor=GREY, opacity=0.14, line_width=0)
    return figure


def _drawn(table: pd.DataFrame) -> pd.DataFrame:
    """The first options, and the right one wherever it stands."""
    if len(table) <= MOST_OPTIONS:
        return table
    return table[(np.arange(len(table)) < MOST_OPTIONS - 1) | table.right.to_numpy()]
