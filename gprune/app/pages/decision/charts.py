"""The figure of the page: what models lose against what they cost, with the Pareto front."""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from gprune.analysis.calibration_report.figures import level
from gprune.analysis.decision import COSTS, Option
from gprune.app.pages.comparison.charts import logarithmic
from gprune.app.ui import marks
from gprune.app.ui.chart_style import GREY, METHOD_COLORS, METHOD_SYMBOLS, label, style
from gprune.app.ui.text import in_figure

_ON, _OFF = 13, 8
"""sizes of marks on the front and off it"""
_ROOM = 4
"""names on the front that have room beside their marks"""
_NEAR = 0.75
"""of the limit: a name above a mark from there to the limit would stand on its line"""


_HALF = 0.9
"""of the dense model's cost, which stands at the right: names of cheaper models are written towards it"""


def front(found: Sequence[Option], names: Mapping[tuple[str, str], str], cost: str, most: float) -> go.Figure:
    """Perplexity of every model against its cost, both over the dense model's.

    Models off the front are pale, those on it joined. `cost` is one of COSTS; the horizontal line is at
    `most` times the dense perplexity.
    """
    figure = go.Figure()
    best = [one for one in found if one.front]
    line = {"color": GREY, "width": 1.5, "shape": "hv"}
    marks.guide(figure, [one.cost for one in best], [one.ratio for one in best], line)
    for method in dict.fromkeys(one.line.method for one in found):
        _marks(figure, method, [one for one in found if one.line.method == method], names, len(best), most)
    star = {"color": GREY, "symbol": "star", "size": _ON}
    marks.points(figure, [1.0], [1.0], star, "the dense model<extra></extra>", name="dense")
    level(figure, most, f"at most {most:g} times", GREY, side="right", dash="dot")
    # as large as the names of the marks
    figure.update_annotations(font={"size": 11})
    style(figure, f"{COSTS[cost]}, times the dense model’s", "perplexity, times dense (log scale)", 440)
    return figure.update_yaxes(**logarithmic([1.0, most, *(one.ratio for one in found)]))


def _marks(
    figure: go.Figure,
    method: str,
    own: list[Option],
    names: Mapping[tuple[str, str], str],
    best: int,
    most: float,
) -> None:
    color, told = METHOD_COLORS.get(method, GREY), [in_figure(names[one.line.name]) for one in own]
    shown = [name if one.front and best <= _ROOM else "" for one, name in zip(own, told, strict=True)]
    look = {
        "color": color,
        "symbol": METHOD_SYMBOLS.get(method, "circle"),
        "size": [_ON if one.front else _OFF for one in own],
        "opacity": [1.0 if one.front else 0.45 for one in own],
    }
    x, y = [one.cost for one in own], [one.ratio for one in own]
    whiskers = {"array": [one.loss.nats_margin * one.ratio for one in own], "thickness": 1}
    written = {"text": shown, "textposition": [_beside(one, most) for one in own], "textfont": {"size": 11}}
    hover = "%{customdata}: %{y:.2f} times the dense perplexity at %{x:.3f}<extra></extra>"
    more = {"mode": "markers+text", "name": in_figure(label(method)), "customdata": told}
    marks.points(figure, x, y, look, hover, error_y=whiskers, **written, **more)


def _beside(one: Option, most: float) -> str:
    """Where the name of a mark has room: not on its whisker, on the limit, or beyond the figure."""
    height = "bottom" if _NEAR * most < one.ratio <= most else "top"
    return f"{height} {'left' if one.cost > _HALF else 'right'}"
