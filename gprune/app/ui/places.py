"""The places of the app: tabs of a page, links to a place, and the way there.

Which tab is open stands in the address, and only what the open one shows is computed.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import streamlit as st

from gprune.app.ui import url_state
from gprune.app.ui.page_names import HELP, PAGE_OF, TAB
from gprune.app.ui.run_choice import RUN
from gprune.app.ui.unit import KEYS
from gprune.study import Study

SHARED = (RUN, *KEYS, HELP)
"""keys of addresses that go with the reader from place to place"""
_SENT = "to_launch_study"
EDIT = "Edit settings and restart"
"""what the button is called that leads to the launch form where a run has failed"""


def show(places: Mapping[str, Callable[[], None]]) -> None:
    """Draws the tabs of a page, and below them what the open one shows.

    Args:
        places: what draws each place of the page, in the order of its tabs; the only one has no tab.
    """
    first = next(iter(places))
    labels = PAGE_OF[first].places
    if len(labels) == 1:
        places[first]()
        return
    drawn = url_state.tabs(labels, TAB, first)
    place = url_state.page()
    with drawn[place]:
        places[place]()


def link(
    place: str,
    label: str,
    icon: str | None = None,
    shared: Iterable[str] = SHARED,
    run: str = "",
    **look: Any,
) -> None:
    """Draws a link to a place, as it was left, with what is shared; of another run if one is named."""
    held = url_state.link(place, shared) | ({RUN: run} if run else {})
    st.page_link(PAGE_OF[place].file, label=label, icon=icon, query_params=held or None, **look)


def turn(place: str, shared: Iterable[str] = SHARED) -> None:
    """Turns to a place, as a link does."""
    st.switch_page(PAGE_OF[place].file, query_params=url_state.link(place, shared))


def to_launch(study: Study, what: str) -> None:
    """Opens the launch form with a study's settings filled in; `what` it says there is in the form."""
    st.session_state[_SENT] = study, what
    turn("launch")


def sent_to_launch() -> tuple[Study, str] | None:
    """What was sent to the launch form and has not been taken yet, and what to say of it."""
    found: tuple[Study, str] | None = st.session_state.pop(_SENT, None)
    return found
