"""What a report holds: figures of a run with the words and the numbers of their cards.

The pages themselves are drawn, for nobody, and what their cards say is noted. A figure that stands on no view
that was drawn is drawn by its name alone, and has the first line of its description for a title.
"""

from __future__ import annotations

import importlib
import inspect
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from gprune.errors import GpruneError
from gprune.settings import require, require_choice
from gprune.untrusted import sentence
from gprune.views import pictures
from gprune.views.frame import address, address_state, frame, notes, run_choice, unwatched, work
from gprune.views.frame.card import MAXIMISED
from gprune.views.frame.loaders import Run
from gprune.views.frame.notes import Noted
from gprune.views.frame.page_names import NAMES
from gprune.views.frame.picture import Call
from gprune.views.frame.text import unmarked

_UNSEEN = "Drawn by itself, with its own defaults: its page does not show it now."


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
    order = {module.__name__: place for place, module in enumerate(pictures.PAGES)}
    places = {name: order.get(draw.__module__, len(order)) for name, draw in pictures.KNOWN.items()}
    return tuple(sorted(places, key=places.__getitem__))


def page_of(name: str) -> str:
    """What the page of a figure is called.

    Args:
        name: what the figure is called.
    """
    return NAMES[_package(name).rpartition(".")[2]]


def about(name: str) -> str:
    """What a figure shows: the first line of its description.

    Args:
        name: what the figure is called.
    """
    first = (inspect.getdoc(pictures.KNOWN[name]) or name.replace("_", " ")).splitlines()[0]
    return first.rstrip(".")


def gather(run: Run, chosen: Sequence[str], values: Mapping[str, Any] | None = None) -> list[Entry]:
    """The chosen figures with their words and numbers, in the order of the choice.

    Args:
        run: the run.
        chosen: names of figures; at least one.
        values: what is set on the pages, as the address of a session has it; as by itself where left out.

    Raises:
        SettingsError: nothing is chosen, or what is chosen is no figure.
    """
    require(len(chosen) > 0, "cards", list(chosen), "one figure or more")
    for name in chosen:
        require_choice("card", name, names())
    noted = _noted(run, chosen, {key: value for key, value in (values or {}).items() if key != MAXIMISED})
    made = list[Entry]()
    for name in dict.fromkeys(chosen):
        # one that no card has shown is drawn by itself
        shown: Sequence[Noted | None] = noted.get(name) or [None]
        several = _told_apart([one.call for one in shown if one is not None])
        made += [_entry(run, name, one, more) for one, more in zip(shown, several or [""], strict=True)]
    titles = Counter(entry.title for entry in made)
    # two figures of one card have its title both
    return [_apart(entry) if titles[entry.title] > 1 else entry for entry in made]


def _noted(run: Run, chosen: Sequence[str], values: dict[str, Any]) -> dict[str, list[Noted]]:
    """What the cards say of the chosen figures, each view of a page drawn once.

    A page can show a figure more than once, as the perplexity on each text; a card is on several views.
    """
    situation = work.look(run.root)
    found: dict[str, list[Noted]] = {}
    views = {(_package(name), tuple(pictures.PLACES[name].items())) for name in chosen}
    for package, place in sorted(views):
        module = importlib.import_module(f"{package}.page")
        for one in unwatched.inside(partial(_drawn, module, run, situation, values | dict(place))):
            others = found.setdefault(one.call.name, [])
            if one.call not in [other.call for other in others]:
                others.append(one)
    return found


def _drawn(page: ModuleType, run: Run, situation: work.Situation, values: dict[str, Any]) -> list[Noted]:
    """Draws a page for nobody and gives what its cards have noted."""
    st.session_state[frame.SITUATION] = situation
    st.session_state[run_choice.SHOWN] = run.name
    address_state.current().values.update(values | {run_choice.RUN: run.name})
    address.begin(page.__name__)
    found = notes.begin()
    unwatched.page(page.show)
    return found


def _told_apart(calls: Sequence[Call]) -> list[str]:
    """What is set otherwise in each of several calls, for their titles; empty words for a single one."""
    differ = {
        option
        for call in calls
        for option, value in call.options.items()
        if any(other.options.get(option) != value for other in calls)
    }
    words = [
        ", ".join(f"{option} {call.options[option]}" for option in sorted(differ) if option in call.options)
        for call in calls
    ]
    return [f" ({one})" if one else "" for one in words]


def _entry(run: Run, name: str, noted: Noted | None, more: str) -> Entry:
    page, plain = page_of(name), about(name)
    try:
        if noted is None:
            return Entry(name, page, plain, _UNSEEN, alt=plain, figure=pictures.KNOWN[name](run).figure)
        figure = noted.figure or pictures.KNOWN[name](run, **noted.call.options).figure
        table = noted.table() if noted.table is not None else None
    except GpruneError as error:
        return Entry(name, page, plain, problem=sentence(error))
    caption = unmarked(noted.caption)
    alt = unmarked(noted.alt) or caption or plain
    return Entry(name, page, unmarked(noted.title) + more, caption, unmarked(noted.how), alt, figure, table)


def _apart(entry: Entry) -> Entry:
    """An entry whose title says what its figure shows as well."""
    shown = about(entry.name)
    return entry if entry.title == shown else replace(entry, title=f"{entry.title}: {shown}")


def _package(name: str) -> str:
    """The package of the page that declares a figure."""
    return pictures.KNOWN[name].__module__.rpartition(".")[0]
