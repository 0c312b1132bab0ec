"""A field for a text of any length: kept while the session lasts, whichever page is shown, in no address."""

from typing import Any

import streamlit as st


def area(label: str, key: str, default: str = "", **options: Any) -> str:
    """A field of several lines."""
    widget = f"{key}_area"
    if widget not in st.session_state:
        st.session_state[widget] = st.session_state.get(key, default)
    st.session_state[key] = st.text_area(label, key=widget, **options)
    return str(st.session_state[key])
