"""The way from slide to slide: a row of numbers for a pointer, and the keys of a presenter.

The slide that was asked for last is one value of the browser. Were each number a button of its own, two
presses while a slide is drawn would reach the script as two clicks, whose order Streamlit does not keep.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import streamlit as st

_HERE = Path(__file__).parent
_COMPONENT = st.components.v2.component(
    "gprune_slide_foot",
    html=(_HERE / "slide_foot.html").read_text(encoding="utf-8"),
    css=(_HERE / "slide_foot.css").read_text(encoding="utf-8"),
    js=(_HERE / "slide_foot.js").read_text(encoding="utf-8"),
)


def draw(titles: Sequence[str], shown: int, *, key: str, on_slide: Callable[[int], None]) -> None:
    """Draws the numbers of the slides, each named by its title; `on_slide` is told which is asked for.

    `shown` is the number of the slide that is drawn, from 1.
    """

    def asked() -> None:
        told = st.session_state[key].get("asked")
        number = told.get("slide") if isinstance(told, dict) else None
        # what a browser sends may be anything
        if type(number) is int and 1 <= number <= len(titles):
            on_slide(number)

    data = {"titles": list(titles), "shown": shown}
    _COMPONENT(key=key, data=data, height="content", on_asked_change=asked)
