"""Links to all pages; each leads to its page as it was left, in one step of the browser's history."""

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from gprune.app.ui import unit, url_state
from gprune.app.ui.run_choice import RUN

SHARED = (RUN, *unit.KEYS)
"""goes with the reader from page to page"""


def show(sections: Mapping[str, Sequence[Any]]) -> None:
    """Draws the links."""
    for heading, pages in sections.items():
        st.caption(heading)
        for page in pages:
            where = url_state.link(page.url_path, SHARED)
            st.page_link(page, query_params=where or None, width="stretch")
