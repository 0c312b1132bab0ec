"""A figure as a paper wants it: as wide as one column or two, on white, marks as shapes and letters as text.

Plotly's own camera, in the browser, then writes it as SVG.
"""

from typing import Any

import plotly.graph_objects as go

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
