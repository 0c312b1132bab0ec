"""Figures by name: each is declared once, and drawn by that by its card and by the Python API alike."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, ParamSpec, cast

import plotly.graph_objects as go

from gprune.errors import SettingsError
from gprune.settings import require, require_whole
from gprune.views.frame import selection
from gprune.views.frame.loaders import Run
from gprune.views.frame.selection import Selection

P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Call:
    """What draws a figure again."""

    name: str
    """what the figure is called"""
    options: Mapping[str, Any]
    """what was set otherwise than it is by itself"""


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure as it was drawn, and the call that draws it again."""

    figure: go.Figure
    call: Call


KNOWN: dict[str, Callable[..., Picture]] = {}
"""what draws each figure, by name; the pages' modules enter theirs when they are loaded"""
PLACES: dict[str, dict[str, str]] = {}
"""what the address of its page holds where each figure is drawn, by name"""
_CLICKED: set[str] = set()
"""the figures whose marks can be clicked"""


def picture(
    name: str, *, clicked: bool = False, at: Mapping[str, str] | None = None
) -> Callable[[Callable[Concatenate[Run, P], go.Figure]], Callable[Concatenate[Run, P], Picture]]:
    """Declares a figure: a function of a run, and of options that have defaults and are named.

    An option is a plain value, or `selected`, which is a selection.

    Args:
        name: what the figure is called; unique.
        clicked: whether its marks can be clicked, as those of every figure that marks a selection can.
        at: what the address of its page holds where the figure is on a view that does not open first.
    """

    def declared(draw: Callable[Concatenate[Run, P], go.Figure]) -> Callable[Concatenate[Run, P], Picture]:
        @wraps(draw)
        def drawn(run: Run, *args: P.args, **options: P.kwargs) -> Picture:
            figure = draw(run, *args, **options)
            return shown(name, figure, **options)

        # with `wraps` a type checker takes the run for an argument that can be named
        made: Callable[Concatenate[Run, P], Picture] = cast(Any, drawn)
        KNOWN[name] = made
        PLACES[name] = dict(at or {})
        if clicked or "selected" in options_of(name):
            _CLICKED.add(name)
        return made

    return declared


def shown(name: str, figure: go.Figure, **options: Any) -> Picture:
    """A figure that a page has drawn from what it had at hand, as the declared one would be drawn.

    Args:
        name: what it is called.
        figure: the figure.
        options: with which the declared one gives the same.
    """
    if name in _CLICKED:
        _keep_the_rest(figure)
    return Picture(figure, call(name, **options))


def call(name: str, **options: Any) -> Call:
    """The call that draws a figure.

    Args:
        name: what it is called.
        options: any of its options; those that are as they are by themselves are left out.
    """
    plain = options_of(name)
    return Call(name, {one: value for one, value in options.items() if value != plain[one]})


def options_of(name: str) -> dict[str, Any]:
    """The options of a figure with their defaults.

    Args:
        name: what it is called.
    """
    parameters = list(inspect.signature(KNOWN[name]).parameters.values())[1:]
    return {one.name: one.default for one in parameters}


def selected(run: Run, option: Any) -> Selection:
    """A selection from what a person gives: a layer, or layer, module and neuron, None for none of a kind.

    Args:
        run: the run at hand.
        option: what was given.

    Raises:
        SettingsError: it is no selection, or the run has no such layer, module or neuron.
    """
    parts = tuple(option) if isinstance(option, tuple | list) else (option,)
    whole = all(part is None or (isinstance(part, int) and part >= 0) for part in parts)
    rule = "a layer, or layer, module and neuron, None for none of a kind"
    require(whole and 1 <= len(parts) <= 3 and not isinstance(option, bool), "selected", option, rule)
    found, lacking = selection.there(run, Selection(*parts))
    if lacking:
        raise SettingsError(f"this run has no {lacking}")
    return found


def in_range(name: str, value: int | None, count: int) -> int:
    """A whole number from 0 that is one of so many; the middle one where there is none.

    Args:
        name: of the option.
        value: as it was given.
        count: how many there are.

    Raises:
        SettingsError: there are not so many.
    """
    if value is None:
        return count // 2
    require_whole(**{name: value})
    require(0 <= value < count, name, value, f"0 to {count - 1}")
    return value


def _keep_the_rest(figure: go.Figure) -> None:
    """A clicked mark does not fade the others: what is selected is marked by the page, not by Plotly."""
    for trace in figure.data:
        if trace.type in ("scatter", "scattergl", "bar"):
            opacity = trace.marker.opacity
            trace.unselected = {"marker": {"opacity": 1.0 if opacity is None else opacity}}
