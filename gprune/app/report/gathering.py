"""What a report holds: figures of a run with the words and the numbers of their cards."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from gprune.app.figures import load_figures
from gprune.app.ui import unit
from gprune.app.ui.page_names import NAMES
from gprune.app.ui.panel import Panel
from gprune.app.ui.text import unmarked
from gprune.pipeline.runs.opened import Run
from gprune.study.settings import require, require_choice
from gprune.system.errors import GpruneError, SettingsError
from gprune.system.safe_parsing import sentence

FIGURES = load_figures()


@dataclass(frozen=True, slots=True)
class Entry:
    """One figure of a report, or why there is none; all words are plain text."""

    name: str
    """what the figure is called"""
    page: str
    """the page that shows it"""
    title: str
    """the finding, or what the figure shows"""
    caption: str = ""
    """one line on how to read it"""
    how: str = ""
    """what else there is to know"""
    alt: str = ""
    """the figure in a sentence"""
    figure: go.Figure | None = None
    table: pd.DataFrame | None = None
    """the numbers behind it"""
    problem: str = ""
    """why it could not be drawn; empty where it was"""


def names() -> tuple[str, ...]:
    """The figures that can be chosen, page by page as the app lists them."""
    order = list(NAMES)
    return tuple(sorted(FIGURES, key=lambda name: order.index(_place_of(name))))


def page_of(name: str) -> str:
    """What the page of a figure is called."""
    return NAMES[_place_of(name)]


def _place_of(name: str) -> str:
    """The key in NAMES of the place whose module declares a figure."""
    return next(part for part in reversed(FIGURES[name].make.__module__.split(".")) if part in NAMES)


def about(name: str) -> str:
    """What a figure shows: the first line of its description."""
    return FIGURES[name].about


def gather(run: Run, chosen: Sequence[str], values: Mapping[str, Any] | None = None) -> list[Entry]:
    """The chosen figures with their words and numbers, in the order of the choice.

    A figure that a page shows more than once, as the perplexity on each text, comes as often. `values` are
    what is set on the pages, as a session's address has it; as by itself where left out. Raises SettingsError
    where nothing is chosen, or something that is no figure.
    """
    require(len(chosen) > 0, "cards", list(chosen), "one figure or more")
    for name in chosen:
        require_choice("card", name, names())
    made = [entry for name in dict.fromkeys(chosen) for entry in _entries(run, name, values or {})]
    titles = Counter(entry.title for entry in made)
    # two figures of one card have its title both
    return [_apart(entry) if titles[entry.title] > 1 else entry for entry in made]


def _entries(run: Run, name: str, values: Mapping[str, Any]) -> list[Entry]:
    try:
        panels = [_made(run, name, options) for options in _asked(run, name, values)]
        more = _told_apart(panels)
        return [_entry(name, one, words) for one, words in zip(panels, more, strict=True)]
    except GpruneError as error:
        return [Entry(name, page_of(name), about(name), problem=sentence(error))]


def _asked(run: Run, name: str, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The options of every figure of a name that the page shows; of one that it does not show, none."""
    try:
        found = list(FIGURES[name].asked(run, values)) or [{}]
    except SettingsError:
        # what is set is of another run
        found = list(FIGURES[name].asked(run, {})) or [{}]
    if "selected" not in FIGURES[name].options:
        return found
    wanted = unit.Selection(*(values.get(key) for key in unit.KEYS))
    return [options | {"selected": unit.there(run, wanted)[0]} for options in found]


def _made(run: Run, name: str, options: dict[str, Any]) -> Panel:
    """A panel; where what is set is of another run and this one has no such thing, as it is by itself."""
    try:
        return FIGURES[name](run, **options)
    except SettingsError:
        return FIGURES[name](run)


def _told_apart(panels: Sequence[Panel]) -> list[str]:
    """What is set otherwise in each of several panels, for their titles; empty words for a single one."""
    calls = [panel.code.options if panel.code else {} for panel in panels]
    differ = sorted(
        option
        for option in {option for call in calls for option in call}
        if any(call.get(option) != calls[0].get(option) for call in calls)
    )
    words = [", ".join(f"{option} {call[option]}" for option in differ if option in call) for call in calls]
    return [f" ({one})" if one else "" for one in words]


def _entry(name: str, panel: Panel, more: str) -> Entry:
    return Entry(
        name,
        page_of(name),
        unmarked(panel.title) + more,
        unmarked(panel.caption),
        unmarked(panel.how),
        unmarked(panel.alt) or unmarked(panel.caption) or about(name),
        panel.figure,
        panel.table() if panel.table is not None else None,
    )


def _apart(entry: Entry) -> Entry:
    """An entry whose title says what its figure shows as well."""
    shown = about(entry.name)
    return entry if entry.title == shown else replace(entry, title=f"{entry.title}: {shown}")
