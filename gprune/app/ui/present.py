"""The presenter's view: a page alone, in larger type; `present=1` in its address."""

import plotly.graph_objects as go
import streamlit as st

from gprune.app.ui import assets, buttons, url_state

PRESENT = "present"
_ON = "frame_presenting"
_LETTERS = 17
"""pixels of a letter in a figure"""


def show() -> None:
    """Draws a page for an audience, if its address says so, and the way back."""
    st.session_state[_ON] = url_state.flag(PRESENT)
    if not on():
        return
    assets.look("present")
    with st.container(key="frame_present"):
        buttons.act(
            "End presenting", "frame_present_end", "close_fullscreen", url_state.put, PRESENT, False,
            shortcut=None if url_state.text("card") else "Escape",
        )  # fmt: skip


def on() -> bool:
    """Whether the page is shown to an audience."""
    return bool(st.session_state.get(_ON))


def button() -> None:
    """The button that begins it."""
    buttons.act(
        "Present", "frame_present_begin", "slideshow", url_state.put, PRESENT, True, type="tertiary",
        help="This page without the side bar, in larger type. Escape ends it.",
    )  # fmt: skip


def enlarged(figure: go.Figure, size: int = _LETTERS) -> go.Figure:
    """A figure as an audience can read it, letters of `size` pixels.

    The figure itself, which others may be shown, stays as it is.
    """
    if not on():
        return figure
    letters = {"font": {"size": size}}
    made = go.Figure(figure).update_layout(font={"size": size}, legend=letters)
    made.update_annotations(font_size=size)
    made.update_xaxes(tickfont={"size": size}, title=letters, automargin=True)
    made.update_yaxes(tickfont={"size": size}, title=letters, automargin=True)
    return made
