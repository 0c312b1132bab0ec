"""The rest of a page, below what a window shows: drawn when someone scrolls to it.

A page is at rest when its first cards are drawn. The rest is asked for once a visit, by the first scroll, the
first key that scrolls, or where the window reaches it anyway.
"""

from pathlib import Path

import streamlit as st

from gprune.app.ui import places, url_state
from gprune.app.ui.page_names import TAB
from gprune.app.ui.url_session import ALWAYS

_HERE = Path(__file__).parent
_WHOLE, _KEY = "rest_of_page_whole", "rest_of_page"
_COMPONENT = st.components.v2.component(
    "gprune_rest_of_page",
    html='<div class="rest-of-page" role="status">More below …</div>',
    css=(_HERE / "rest_of_page.css").read_text(encoding="utf-8"),
    js=(_HERE / "rest_of_page.js").read_text(encoding="utf-8"),
)


def begin(place: str) -> None:
    """Forgets the place that was drawn whole when another one is drawn, which begins at its top."""
    if st.session_state.get(_WHOLE) != place:
        st.session_state.pop(_WHOLE, None)


def waits() -> bool:
    """Whether the rest of the page is still to be asked for; if so, marks the end of what is drawn.

    An address that holds choices of the page is that of a certain view, which is drawn at once; so is a page
    without a browser, which nobody scrolls.
    """
    chosen = set(st.query_params) - {*places.SHARED, *ALWAYS, TAB}
    if _WHOLE in st.session_state or chosen or not len(st.context.headers):
        _ask()
        return False
    _COMPONENT(key=_KEY, on_reached_change=_ask)
    return True


def _ask() -> None:
    st.session_state[_WHOLE] = url_state.page()
