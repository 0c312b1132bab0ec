"""Buttons whose click is not lost while a page is drawn, and the errors of their actions.

What a page sends while it is still being built, as the answer of a chart, interrupts the script and starts it
again, without the click that it was about to see. So a callback, which nothing interrupts, stores the click until
the script has come to the button.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import streamlit as st

from gprune.app.ui import address
from gprune.app.ui.text import escape_error
from gprune.system.errors import GpruneError

_PRESSED, _PAGE = "pressed", "pressed_page"


def forget_clicks(page: str) -> None:
    """Forget clicks on another page; called before a page is drawn."""
    if st.session_state.get(_PAGE) != page:
        st.session_state[_PAGE], st.session_state[_PRESSED] = page, set()


def button(label: str, key: str, **options: Any) -> bool:
    """Draw a button; return True if it was clicked since it was last drawn."""
    st.button(label, key=key, on_click=_note_click, args=(key,), **options)
    keys: set[str] = st.session_state.get(_PRESSED, set())
    is_pressed = key in keys
    keys.discard(key)
    return is_pressed


def _note_click(key: str) -> None:
    address.ignore_sent_address()
    st.session_state.setdefault(_PRESSED, set()).add(key)


def action_button(
    label: str, key: str, icon: str, action: Callable[..., object], *arguments: object, **options: Any
) -> bool:
    """Draw a button that calls `action` before the page is drawn anew; return True if it was clicked.

    `icon` is a name of Material Symbols, or empty; `options` are those of `st.button`.
    """
    icon_name = f":material/{icon}:" if icon else None
    return bool(st.button(label, key=key, icon=icon_name, on_click=action, args=arguments, **options))  # type: ignore[arg-type]


@contextlib.contextmanager
def show_errors() -> Iterator[None]:
    """Show the message of a GpruneError that the block raises."""
    try:
        yield
    except GpruneError as error:
        st.error(escape_error(error), icon=":material/error:")


def attempt(key: str, action: Callable[..., object], *arguments: object) -> None:
    """Run the action of a button; `show_error` with the same key shows the message of its GpruneError."""
    try:
        action(*arguments)
    except GpruneError as error:
        st.session_state[f"{key}_error"] = str(error)


def show_error(key: str) -> None:
    """Show the error of the last `attempt` with this key, once."""
    if problem := st.session_state.pop(f"{key}_error", ""):
        st.error(escape_error(problem), icon=":material/error:")
