"""Figures of the compare page: perplexities, differences to a pinned method, units that two methods keep."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from gprune.analysis.choices import Tried
from gprune.analysis.comparison import DENSE, Line, change
from gprune.analysis.generalization import Place
from gprune.analysis.kept_units import KINDS, Overlap
from gprune.analysis.paired_test import Difference, in_percent, interval_in_percent
from gprune.analysis.recovery import Recovered
from gprune.analysis.verdict import is_same_budget
from gprune.app.ui import marks
from gprune.app.ui.chart_style import (
    GREY,
    METHOD_COLORS,
    METHOD_SYMBOLS,
    PALE,
    family,
    label,
    layer_axis,
    style,
)
from gprune.app.ui.text import in_figure
from gprune.study.methods import METHODS
from gprune.study.study import short

ROW_PIXELS = 34
FIGURES = 64
"""figures of each kind that are kept"""
_STEPS: tuple[tuple[float, tuple[float, ...]], ...] = (
    (0.1, tuple(1 + number / 5 for number in range(45))),
    (0.3, (1, 1.1, 1.2, 1.4, 1.6, 1.8, 2, 2.25, 2.5, 3, 3.5, 4, 4.5, 5, 5.5, 6, 6.5, 7, 7.5, 8, 9)),
    (0.7, (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8)),
    (1.5, (1, 2, 3, 5, 7)),
    (float("inf"), (1, 3)),
)
"""steps within a tenfold, by the number of tenfolds shown"""


@dataclass(frozen=True, slots=True)
class Mark:
    """A dot with its whiskers."""

    method: str
    """whose it is"""
    row: str
    """what to call its line"""
    value: float
    """where it stands"""
    low: float
    """where its whiskers begin"""
    high: float
    """where they end"""
    interval: str
    """what they say, after the value"""
    panel: int = 0
    """number of the panel, from the left"""
    words: str = ""
    """what is said of it besides its numbers"""
    pale: bool = False
    """whether it is drawn pale"""


def _traces(marks: Iterable[Mark], what: str) -> list[tuple[int, dict[str, Any]]]:
    """Marks as Plotly draws them, not yet checked: one trace for each panel and hue, with the panel's number.

    A browser takes about as long for a trace of one dot as for one of many, and whiskers have a trace's hue.
    """
    groups: dict[tuple[int, str], list[Mark]] = {}
    for mark in marks:
        groups.setdefault((mark.panel, METHOD_COLORS.get(mark.method, GREY)), []).append(mark)
    return [(panel, _trace(group, color, what)) for (panel, color), group in groups.items()]


def _trace(group: list[Mark], color: str, what: str) -> dict[str, Any]:
    """Forms and controls are hollow or of another shape in their parent's hue."""
    value, low, high = np.array([(mark.value, mark.low, mark.high) for mark in group]).T
    return {
        "type": "scatter",
        "x": value,
        "y": [mark.row for mark in group],
        "text": [mark.interval for mark in group],
        "customdata": [mark.words for mark in group],
        "mode": "markers",
        "marker": {
            "color": color,
            "symbol": [METHOD_SYMBOLS.get(mark.method, "circle") for mark in group],
            "opacity": [0.45 if mark.pale else 1.0 for mark in group],
            "size": 11,
        },
        "error_x": marks.around(value, low, high, 1.5, width=5),
        "showlegend": False,
        "hovertemplate": f"%{{y}}: {what} %{{text}}<extra>%{{customdata}}</extra>",
    }


def dots(lines: list[Line], text: str, names: dict[tuple[str, str], str]) -> go.Figure:
    """Perplexity on one text as dots with their own error; the dense model is a dotted line.

    The methods read the same windows: whiskers that overlap do not decide whether two of them differ.

    The `lines` stand top first. The figure is shared: whoever changes it copies it first.
    """
    shown = [line for line in lines if line.by_seed(text)]
    found = []
    for line in shown:
        value, margin = line.mean(text), line.margin(text)
        ends, words = (value - margin, value + margin), f"± {margin:.2f}" if np.isfinite(margin) else ""
        found.append(Mark(line.method, names[line.name], value, *ends, words))
    return _dots(tuple(found), text)


# the same pages are looked at again and again, and Plotly checks every trace anew
@lru_cache(maxsize=FIGURES)
def _dots(marks: tuple[Mark, ...], text: str) -> go.Figure:
    figure = go.Figure([trace for _, trace in _traces(marks, "%{x:.2f}")])
    for value in sorted({mark.value for mark in marks if mark.method == DENSE}):
        figure.add_vline(value, line={"color": GREY, "dash": "dot", "width": 1.5})
    style(figure, f"perplexity on {text} (log scale, lower is better)", "", 96 + ROW_PIXELS * len(marks))
    ends = [end for mark in marks for end in (mark.low, mark.high)]
    figure.update_xaxes(**logarithmic([*ends, *(mark.value for mark in marks)]))
    _rows_of(figure, [mark.row for mark in marks])
    return figure


def recovered(found: list[Recovered], text: str, dense: float | None) -> go.Figure:
    """Perplexity on one text before and after recovery, a row a method; the dense model is a dotted line.

    `found` stands top first.
    """
    figure, names = go.Figure(), [in_figure(label(one.method)) for one in found]
    for one, name in zip(found, names, strict=True):
        color = METHOD_COLORS.get(one.method, GREY)
        change = in_percent(one.change)
        figure.add_scatter(
            x=[one.before.perplexity, one.after.perplexity],
            y=[name, name],
            mode="lines+markers",
            line={"color": color, "width": 2},
            marker={"color": color, "size": 11, "symbol": ["circle-open", "circle"]},
            customdata=["before", f"after recovery, {change}"],
            hovertemplate="%{y}: %{x:.2f}<extra>%{customdata}</extra>",
            showlegend=False,
        )
    if dense is not None:
        figure.add_vline(dense, line={"color": GREY, "dash": "dot", "width": 1.5})
    style(
        figure,
        f"perplexity on {in_figure(short(text))} (log scale, lower is better)",
        "",
        96 + ROW_PIXELS * len(found),
    )
    values = [value for one in found for value in (one.before.perplexity, one.after.perplexity)]
    figure.update_xaxes(**logarithmic([*values, *([] if dense is None else [dense])]))
    _rows_of(figure, names)
    return figure


def changes(lines: list[Line], pinned: Line, texts: list[str], names: dict[tuple[str, str], str]) -> go.Figure | None:
    """Difference of every line to the pinned one, a panel a text; None where nothing can be compared.

    A text on which no line can be compared with the pinned one has no panel.

    The `lines` stand top first, `pinned` is one of them. The figure is shared: whoever changes it copies it
    first.
    """
    marks, panels = list[Mark](), list[str]()
    for text in texts:
        found = [(line, one) for line in lines if (one := _known(line, pinned, text)) is not None]
        for line, one in found:
            pale = one.close or not is_same_budget(line, pinned)
            low, high = (100.0 * end for end in one.interval)
            place = 100.0 * one.change, low, high, interval_in_percent(one, 2), len(panels)
            marks.append(Mark(line.method, names[line.name], *place, one.verdict, pale))
        panels += [in_figure(text)] if found else []
    drawn = {mark.row for mark in marks}
    rows = tuple(names[line.name] for line in lines if names[line.name] in drawn)
    return _changes(tuple(marks), tuple(panels), rows) if marks else None


def _known(line: Line, pinned: Line, text: str) -> Difference | None:
    one = None if line is pinned else change(line, pinned, text)
    return one if isinstance(one, Difference) and np.isfinite(one.change) else None


@lru_cache(maxsize=FIGURES)
def _changes(marks: tuple[Mark, ...], titles: tuple[str, ...], rows: tuple[str, ...]) -> go.Figure:
    figure = make_subplots(1, len(titles), shared_yaxes=True, subplot_titles=titles, horizontal_spacing=0.03)
    traces = _traces(marks, "%{x:+.2f} %")
    columns = [1 + panel for panel, _ in traces]
    figure.add_traces([trace for _, trace in traces], [1] * len(traces), columns)
    style(figure, "", "", 130 + ROW_PIXELS * len(rows), margin={"l": 64, "r": 16, "t": 36, "b": 52})
    figure.add_vline(0, line={"color": GREY, "width": 1.5})
    figure.update_xaxes(title_text="change of perplexity (%)")
    _rows_of(figure, list(rows))
    return figure


def home_and_abroad(found: list[Place], names: dict[tuple[str, str], str]) -> go.Figure:
    """Perplexity abroad against that at home, in those of the dense model; marks of a method are joined."""
    figure = go.Figure()
    home = [1.0, *(1 + place.home.change for place in found)]
    abroad = [1.0, *(1 + place.abroad.change for place in found)]
    # both axes are fitted to their marks: the line leaves the figure where one of them ends
    ends = [max(min(home), min(abroad)), min(max(home), max(abroad))]
    marks.guide(figure, ends, ends, {"color": GREY, "dash": "dot", "width": 1.5})
    for method in dict.fromkeys(place.line.method for place in found):
        own = [place for place in found if place.line.method == method]
        color = METHOD_COLORS.get(method, GREY)
        figure.add_scatter(
            x=[1 + place.home.change for place in own],
            y=[1 + place.abroad.change for place in own],
            error_x={"array": [place.home.margin for place in own], "thickness": 1},
            error_y={"array": [place.abroad.margin for place in own], "thickness": 1},
            mode="lines+markers+text",
            text=[in_figure(names[place.line.name]) for place in own],
            textposition="top center",
            textfont={"size": 11},
            line={"color": color, "width": 1, "dash": "dot"},
            marker={"color": color, "symbol": METHOD_SYMBOLS.get(method, "circle"), "size": 11},
            showlegend=False,
            hovertemplate="%{text}: at home %{x:.2f}, abroad %{y:.2f} times dense<extra></extra>",
        )
    style(figure, "perplexity at home, times the dense model’s (log scale)", "abroad, times dense", 420)
    figure.update_xaxes(**logarithmic(home))
    return figure.update_yaxes(**logarithmic(abroad))


def tried(found: list[Tried]) -> go.Figure:
    """The number of every candidate, a row a method that was chosen for; the filled mark was chosen."""
    figure = go.Figure()
    rows = list(dict.fromkeys(METHODS[one.method].label for one in found))
    for masks in dict.fromkeys(one.masks for one in found):
        own = [one for one in found if one.masks == masks and np.isfinite(one.number)]
        color = METHOD_COLORS.get(masks, GREY)
        figure.add_scatter(
            x=[one.number for one in own],
            y=[METHODS[one.method].label for one in own],
            mode="markers",
            name=f"masks of {METHODS[masks].label}",
            text=[one.repair for one in own],
            marker={
                "color": color,
                "size": [14 if one.chosen else 10 for one in own],
                "symbol": ["circle" if one.chosen else "circle-open" for one in own],
                "line": {"color": color, "width": 2},
            },
            hovertemplate="%{text}: %{x:.3f}<extra>%{fullData.name}</extra>",
        )
    numbers = [one.number for one in found if np.isfinite(one.number)]
    figure.add_vline(x=1, line={"color": GREY, "dash": "dot", "width": 1.5})
    style(figure, "number, 1 is the reference (log scale)", "", 150 + 2 * ROW_PIXELS * len(rows))
    figure.update_xaxes(**logarithmic([1.0, *numbers]))
    _rows_of(figure, rows)
    return figure


def kept(found: Overlap, methods: tuple[str, str], names: tuple[str, str], kind: str) -> go.Figure:
    """Stacked bars of every layer: units of KINDS kept by the first only, by both, by the second only."""
    figure, layers = go.Figure(), np.arange(len(found.both))
    for name, counts, marker in zip(
        (f"only {names[0]}", "both", f"only {names[1]}"),
        (found.first, found.both, found.second),
        _bars(methods),
        strict=True,
    ):
        figure.add_bar(
            x=layers,
            y=100.0 * counts / found.units,
            name=name,
            marker=marker,
            customdata=counts,
            hovertemplate="layer %{x}: %{customdata} (%{y:.1f} %)<extra>" + name + "</extra>",
        )
    style(figure, "layer", f"{KINDS[kind]} of the layer (%)", 340, barmode="stack", bargap=0.2)
    figure.update_layout(legend={"traceorder": "normal"})
    figure.update_yaxes(range=[0, 100])
    layer_axis(figure, len(layers))
    return figure


def _bars(methods: tuple[str, str]) -> list[dict[str, Any]]:
    """The bars of the first, of both and of the second; forms are hatched, and one of two with one hue."""
    first, second = methods
    hatched = family(first) != first, family(second) != second or family(first) == family(second)
    one, other = (
        {"color": METHOD_COLORS.get(method, GREY), "pattern": {"shape": "/" if form else "", "solidity": 0.4}}
        for method, form in zip(methods, hatched, strict=True)
    )
    return [one, {"color": PALE}, other]


def _rows_of(figure: go.Figure, names: list[str]) -> None:
    figure.update_yaxes(categoryorder="array", categoryarray=names[::-1], automargin=True)


def logarithmic(values: Iterable[float]) -> dict[str, Any]:
    """A log axis of the finite, positive ones: range, and the finest round ticks that stay readable."""
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
