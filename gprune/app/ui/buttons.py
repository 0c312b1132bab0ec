"""Buttons: those that do something before a page is drawn, and those whose click is not lost meanwhile.

What a page sends while it is still being built, as the answer of a chart, interrupts the script and starts it
again, without the click that it was about to see. So a click is noted where nothing can interrupt, and stays
noted until the script has come to the button.
"""

from collections.abc import Callable
from typing import Any

import streamlit as st

_NOTED = "pressed"
_PAGE = "pressed_page"


def begin(page: str) -> None:
    """Forgets clicks on another page; called before a page is drawn."""
    if st.session_state.get(_PAGE) != page:
        st.session_state[_PAGE], st.session_state[_NOTED] = page, set()


def pressed(label: str, key: str, **options: Any) -> bool:
    """Draws a button; whether it was clicked since it was last drawn."""
    st.button(label, key=key, on_click=lambda: st.session_state.setdefault(_NOTED, set()).add(key), **options)
    noted: set[str] = st.session_state.get(_NOTED, set())
    found = key in noted
    noted.discard(key)
    return found


def act(label: str, key: str, icon: str, do: Callable[..., object], *given: object, **look: Any) -> bool:
    """Draws a button that, before the page is drawn anew, does something with what is given; whether clicked.

    `icon` is a name of Material Symbols, or empty; `look` are options of `st.button`.
    """
    shown = f":material/{icon}:" if icon else None
    return bool(st.button(label, key=key, icon=shown, on_click=do, args=given, **look))  # type: ignore[arg-type]
