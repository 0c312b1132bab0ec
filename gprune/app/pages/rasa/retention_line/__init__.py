"""Perplexity against retention, with a line at the chosen retention that can be dragged.

The line is a view of the canonical retention like the slider is: where it is let go comes back through a
callback, and where it stands is said to it with the data. While it moves, the browser reads each method's
perplexity off the drawn curve.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import streamlit as st

from gprune.app.ui import chart_style, dragging
from gprune.app.ui.chart_style import GREY, METHOD_COLORS, METHOD_DASHES, called, family

STEPS = 100
"""snaps of a retention"""
_COMPONENT = dragging.component("gprune_retention_line", Path(__file__).parent, "retention_line.js")
_DASHES = {
    "solid": "none",
    "dash": "8 5",
    "dot": "2 4",
    "dashdot": "8 4 2 4",
    "longdash": "14 5",
    "longdashdot": "14 4 2 4",
}
_MARGIN = 1.15
"""factor of perplexity that is left free above and below"""


@dataclass(frozen=True, slots=True)
class Point:
    """Perplexity of a method at one retention."""

    x: float
    """fraction of the decoder's weights kept"""
    y: float
    """perplexity"""
    low: float
    """lower end of its 95 % interval"""
    high: float
    """upper end of its 95 % interval"""
    whole: bool
    """whether every window is there"""
    windows: str
    """how many are, in words"""


@dataclass(frozen=True, slots=True)
class Series:
    """One method, its points by retention."""

    method: str
    """name in METHODS"""
    points: tuple[Point, ...]
    """by retention, at least one"""


def draw(
    series: Sequence[Series],
    dense: float | None,
    retention: float,
    reach: tuple[float, float],
    alt: str,
    *,
    key: str,
    fills: bool,
    on_retention: Callable[[float], None],
) -> None:
    """Draws the chart and its line, which stays within `reach`; `on_retention` is told where it is let go.

    `dense` is None while it is not known; `alt` is the finding in words. It `fills` its frame, or has a height
    of its own.
    """

    def released() -> None:
        told = st.session_state[key].get("lines")
        value = dragging.snapped(told.get("retention"), *reach, STEPS) if isinstance(told, dict) else None
        if value is not None:
            on_retention(value)

    sent = data(series, dense, retention, reach) | {"alt": alt, "fills": fills}
    _COMPONENT(key=key, data=sent, height="stretch" if fills else "content", on_lines_change=released)


def data(series: Sequence[Series], dense: float | None, retention: float, reach: tuple[float, float]) -> dict[str, Any]:
    """What the browser draws the chart from; arguments as of `draw`."""
    values = [value for one in series for point in one.points for value in (point.low, point.high)]
    values += [] if dense is None else [dense]
    low, high = (min(values) / _MARGIN, max(values) * _MARGIN) if values else (1.0, 10.0)
    axis = chart_style.log_ticks(low, high)
    marks = zip(axis["tickvals"], axis["ticktext"], strict=True) if values else ()
    return {
        "series": [
            {
                "name": called(one.method),
                "color": METHOD_COLORS[one.method],
                "form": family(one.method) != one.method,
                "dash": _DASHES[METHOD_DASHES[one.method]],
                "points": [asdict(point) for point in one.points],
            }
            for one in series
        ],
        "dense": dense,
        "retention": retention,
        "range": [low, high],
        "ticks": [{"value": value, "text": text} for value, text in marks],
        "grid": {
            "steps": STEPS,
            "page": 5,
            "low": round(reach[0] * STEPS),
            "high": round(reach[1] * STEPS),
        },
        "grey": GREY,
    }
