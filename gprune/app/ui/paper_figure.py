"""A figure as a paper wants it: as wide as one column or two, on white, marks as shapes and letters as text.

Plotly's own camera, in the browser, then writes it as SVG.
"""

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from gprune.app.ui.text import from_figure

COLUMNS = {"one": 85, "two": 175}
"""widths of a figure in millimetres, by the columns that it takes"""
CALLED = {"one": "One column, 85 mm", "two": "Two columns, 175 mm"}
_PER_MILLIMETRE = 96 / 25.4
"""pixels, as browsers and SVG count them"""
_SHARE = {"one": 0.72, "two": 0.5}
"""height over width"""
_LETTERS = 10
"""pixels of a letter: 7.5 points"""
LOOK = "plotly_white"


def width(columns: str) -> int:
    """Pixels of a figure that takes so many columns."""
    return round(COLUMNS[columns] * _PER_MILLIMETRE)


def fitted(figure: go.Figure, columns: str) -> go.Figure:
    """A copy of a figure at the width of one or two columns; the figure stays as it is."""
    made = as_shapes(figure)
    size = width(columns)
    made.update_layout(
        template=LOOK,
        width=size,
        height=round(size * _SHARE[columns]),
        autosize=False,
        paper_bgcolor="white",
        plot_bgcolor="white",
        font={"size": _LETTERS, "family": "Helvetica, Arial, sans-serif", "color": "#1c1c22"},
        margin={"l": 46, "r": 8, "t": 12, "b": 38},
        modebar={"color": "#5b5b66", "activecolor": "#1c1c22", "bgcolor": "white"},
        legend={"font": {"size": _LETTERS - 1}},
    )
    made.update_xaxes(title_standoff=6, automargin=True)
    made.update_yaxes(title_standoff=6, automargin=True)
    return made


def as_shapes(figure: go.Figure) -> go.Figure:
    """A copy of a figure whose points are shapes, which the graphics card would make a picture in SVG."""
    plain: dict[str, Any] = figure.to_plotly_json()
    for trace in plain["data"]:
        if trace.get("type") == "scattergl":
            trace["type"] = "scatter"
    return go.Figure(plain, skip_invalid=True)


def numbers_of(figure: go.Figure) -> pd.DataFrame | None:
    """What a figure draws, one mark a row under the titles of its axes; None where it draws no marks."""
    parts = [part for trace in figure.data if (part := _marks(trace, figure)) is not None]
    if not parts:
        return None
    table = pd.concat(parts, ignore_index=True)
    return table if table["series"].any() else table.drop(columns="series")


def _marks(trace: Any, figure: go.Figure) -> pd.DataFrame | None:
    across, up = _axis_title(figure, trace.xaxis, "x"), _axis_title(figure, trace.yaxis, "y")
    if trace.type == "heatmap" and trace.z is not None:
        return _cells(trace, across, up)
    if trace.type not in ("scatter", "scattergl", "bar") or trace.x is None or trace.y is None:
        return None
    there = [(a, b) for a, b in zip(trace.x, trace.y, strict=False) if a is not None and b is not None]
    made = pd.DataFrame(there, columns=[across, up if up != across else f"{up} "])
    made.insert(0, "series", from_figure(trace.name or ""))
    return made if len(made) else None


def _cells(trace: Any, across: str, up: str) -> pd.DataFrame:
    """(rows x columns) cells of a heat map, one a row of the table."""
    values = np.asarray(trace.z, dtype=object)
    rows, columns = values.shape
    x = list(range(columns) if trace.x is None else trace.x)
    y = range(rows) if trace.y is None else trace.y
    return pd.DataFrame(
        {
            "series": from_figure(trace.name or ""),
            across: x * rows,
            up if up != across else f"{up} ": [one for one in y for _ in range(columns)],
            "value": values.ravel(),
        }
    )


def _axis_title(figure: go.Figure, axis: str | None, letter: str) -> str:
    """Title of the axis of a trace, which it names as `x2`; its letter where it has none."""
    number = (axis or letter).removeprefix(letter)
    found = figure.layout[f"{letter}axis{number}"].title.text
    return from_figure(found or "") or letter
