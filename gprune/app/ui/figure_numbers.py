"""The numbers of a figure as a table, where its card has none of its own."""

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from gprune.app.ui.text import from_figure


def of(figure: go.Figure) -> pd.DataFrame | None:
    """What a figure draws, one mark a row under the titles of its axes; None where it draws no marks."""
    parts = [part for trace in figure.data if (part := _marks(trace, figure)) is not None]
    if not parts:
        return None
    table = pd.concat(parts, ignore_index=True)
    return table if table["series"].any() else table.drop(columns="series")


def _marks(trace: Any, figure: go.Figure) -> pd.DataFrame | None:
    across, up = _title(figure, trace.xaxis, "x"), _title(figure, trace.yaxis, "y")
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
    x = list(trace.x) if trace.x is not None else list(range(columns))
    y = list(trace.y) if trace.y is not None else list(range(rows))
    return pd.DataFrame(
        {
            "series": from_figure(trace.name or ""),
            across: [x[column] for _ in range(rows) for column in range(columns)],
            up if up != across else f"{up} ": [y[row] for row in range(rows) for _ in range(columns)],
            "value": values.ravel(),
        }
    )


def _title(figure: go.Figure, axis: str | None, letter: str) -> str:
    """Title of the axis of a trace, which it names as `x2`; its letter where it has none."""
    number = (axis or letter).removeprefix(letter)
    found = figure.layout[f"{letter}axis{number}"].title.text
    return from_figure(found or "") or letter
