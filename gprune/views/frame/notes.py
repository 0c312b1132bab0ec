"""What the cards of a page say of their figures, noted while a page is drawn for nobody.

A report takes title, caption and table of a figure from the card that shows it, so that both say the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from gprune.views.frame.picture import Call

_NOTES = "frame_notes"


@dataclass(slots=True)
class Noted:
    """A figure as its card shows it."""

    card: str
    """key of the card"""
    call: Call
    """what draws it"""
    figure: go.Figure | None = None
    """as it was drawn; None where the card shows it in another form"""
    title: str = ""
    """the finding, as the card's heading has it"""
    caption: str = ""
    """one line on how to read it"""
    how: str = ""
    """what else there is to know"""
    alt: str = ""
    """the finding in words; empty where the caption serves"""
    table: Callable[[], pd.DataFrame] | None = None
    """makes the numbers behind it"""


def begin() -> list[Noted]:
    """Has the session at hand note what its cards show; the list fills itself."""
    found: list[Noted] = []
    st.session_state[_NOTES] = found
    return found


def current() -> list[Noted] | None:
    """Where this session notes what its cards show; None where somebody looks at them."""
    found: list[Noted] | None = st.session_state.get(_NOTES)
    return found


def where_watched(component: Callable[..., Any]) -> Callable[..., Any]:
    """A component of the browser as one that is left out where there is no browser.

    Args:
        component: mounts it.
    """

    @wraps(component)
    def mounted(*args: Any, **options: Any) -> Any:
        return None if current() is not None else component(*args, **options)

    return mounted
