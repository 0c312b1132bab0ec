"""The presenter's view: a page alone, in larger type; `present=1` in its address."""

import plotly.graph_objects as go
import streamlit as st

from gprune.app.ui import assets, url_state

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
        st.button(
            "End presenting",
            key="frame_present_end",
            icon=":material/close_fullscreen:",
            on_click=url_state.put,
            args=(PRESENT, False),
            # a card that fills the window goes first
            shortcut=None if url_state.text("card") else "Escape",
        )


def on() -> bool:
    """Whether the page is shown to an audience."""
    return bool(st.session_state.get(_ON))


def button() -> None:
    """The button that begins it."""
    st.button(
        "Present",
        key="frame_present_begin",
        icon=":material/slideshow:",
        type="tertiary",
        on_click=url_state.put,
        args=(PRESENT, True),
        help="This page without the side bar, in larger type. Escape ends it.",
    )


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
