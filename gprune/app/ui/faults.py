"""Errors of a page's actions, each shown as one sentence."""

import contextlib
from collections.abc import Callable, Iterator

import streamlit as st

from gprune.app.ui.text import said
from gprune.system.errors import GpruneError


@contextlib.contextmanager
def shown() -> Iterator[None]:
    """Show the message of a GpruneError that the block raises."""
    try:
        yield
    except GpruneError as error:
        st.error(said(error), icon=":material/error:")


def attempt(key: str, action: Callable[..., object], *arguments: object) -> None:
    """Run the action of a button; `show_error` with the same key shows the message of its GpruneError."""
    try:
        action(*arguments)
    except GpruneError as error:
        st.session_state[f"{key}_error"] = str(error)


def show_error(key: str) -> None:
    """Show the error of the last `attempt` with this key, once."""
    if problem := st.session_state.pop(f"{key}_error", ""):
        st.error(said(problem), icon=":material/error:")
