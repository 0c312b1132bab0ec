"""Figures as data: what a card shows, made by a pure function of results that has a name.

The card of a page, the report and the Python API all take it from that function, so that they say the same.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, ParamSpec

import pandas as pd
import plotly.graph_objects as go

from gprune.pipeline.runs.opened import Run
from gprune.study.settings import require, require_whole

P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Call:
    """What makes a panel again."""

    name: str
    """what the figure is called"""
    options: Mapping[str, Any]
    """what was set otherwise than it is by itself"""


@dataclass(frozen=True, slots=True, eq=False)
class Panel:
    """What a card shows; its words are Markdown, in which names from outside are escaped."""

    figure: go.Figure
    caption: str = ""
    """one line on how to read it"""
    action: str = ""
    """one line on what a click does, for pages; a report does not say it"""
    title: str = ""
    """the finding; that of its card where left out"""
    how: str = ""
    """what else there is to know, behind “How to read”"""
    alt: str = ""
    """the finding in words, for readers of the screen; the caption where left out"""
    table: Callable[[], pd.DataFrame] | None = None
    """makes the numbers behind the figure; those that it draws where left out"""
    code: Call | None = None
    """what makes it again; None for what no function of a run makes"""


Asked = Callable[[Run, Mapping[str, Any]], Iterable[dict[str, Any]]]
"""options that make what a page shows, from the run and the values of its address; one a figure"""


@dataclass(frozen=True, slots=True)
class PanelFunction(Generic[P]):
    """A function that makes a panel, with its card and with how a page asks for it."""

    name: str
    """what the figure is called; unique"""
    card: str
    """key of the card that shows it"""
    heading: str
    """of the card, until the finding is known"""
    make: Callable[P, Panel]
    options: Mapping[str, Any]
    """what can be set, with what is set by itself"""
    asked: Asked
    clicked: bool

    def __call__(self, *args: P.args, **options: P.kwargs) -> Panel:
        """Makes the panel of a run, the first argument."""
        made = self.make(*args, **options)
        if self.clicked:
            # a clicked mark does not fade the others: what is selected is marked by the page
            for trace in made.figure.data:
                if trace.type in ("scatter", "scattergl", "bar"):
                    opacity = trace.marker.opacity
                    trace.unselected = {"marker": {"opacity": 1.0 if opacity is None else opacity}}
        # what begins with `_` a page has at hand: it follows from the others
        given = {one: value for one, value in options.items() if one[0] != "_"}
        changed = {one: value for one, value in given.items() if value != self.options[one]}
        return replace(made, title=made.title or self.heading, code=Call(self.name, changed))

    @property
    def about(self) -> str:
        """What it shows: the first line of its description."""
        first = (inspect.getdoc(self.make) or self.name.replace("_", " ")).splitlines()[0]
        return first.rstrip(".")


KNOWN: dict[str, PanelFunction[...]] = {}
"""every figure by its name; the pages' modules enter theirs when they are loaded"""


def panel(
    name: str,
    card: str,
    heading: str,
    *,
    clicked: bool = False,
    reads: Mapping[str, str] | Asked | None = None,
    group: Mapping[str, Any] | None = None,
) -> Callable[[Callable[P, Panel]], PanelFunction[P]]:
    """Declares a figure by a unique name: a function of a run, and of named options that have defaults.

    An option is a plain value, or `selected`, which is a selection; what begins with `_` is none, and `group`
    has those of `**`. `heading` is the card's until the finding is known. `clicked` are figures whose marks
    can be, as all that mark a selection. `reads` says where an address holds options: its key, by option; or
    what finds them.
    """

    def declared(make: Callable[P, Panel]) -> PanelFunction[P]:
        named = list(inspect.signature(make).parameters.values())[1:]
        known = [one for one in named if one.kind is one.KEYWORD_ONLY and one.name[0] != "_"]
        options = {one.name: one.default for one in known} | dict(group or {})
        asked = reads if callable(reads) else _from(reads or {})
        found = PanelFunction(name, card, heading, make, options, asked, clicked or "selected" in options)
        KNOWN[name] = found
        return found

    return declared


def _from(reads: Mapping[str, str]) -> Asked:
    """Options that stand in an address under keys of their own, as far as it has them."""

    def asked(run: Run, values: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
        found = {option: values.get(key) for option, key in reads.items()}
        yield {option: value for option, value in found.items() if value not in (None, "")}

    return asked


def in_range(name: str, value: int | None, count: int) -> int:
    """A whole number from 0 that is one of so many, the middle one by default; SettingsError if too large."""
    if value is None:
        return count // 2
    require_whole(**{name: value})
    require(0 <= value < count, name, value, f"0 to {count - 1}")
    return value
