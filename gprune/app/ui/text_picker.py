"""Pickers of calibration and evaluation texts: the names that are known, or any path or name."""

import streamlit as st

from gprune.data import texts


@st.cache_data(show_spinner=False)
def known() -> dict[str, str]:
    """Texts that are known by name, with one line on each."""
    return {entry.name: entry.description for entry in texts.known()}


def pick(label: str, key: str, default: str, optional: bool = True) -> str:
    """One text by name or path as typed, empty if none is chosen; an unknown default is offered as well."""
    names = list(known())
    options = names if not default or default in names else [default, *names]
    # a field with a default of its own cannot be emptied: that of an optional one comes from the session
    state, before = st.session_state, f"{key}_default"
    if optional and (key not in state or state.get(before, default) != default):
        state[key] = default or None
    state[before] = default
    chosen = st.selectbox(
        label,
        options,
        index=None if optional or not default else options.index(default),
        key=key,
        accept_new_options=True,
        placeholder="choose, or type a path" if optional else "choose or type",
        help="A name that is known, a file, or a data set folder; options follow a #. “self:” is what the"
        " model itself writes, as in self:#seed=1&temperature=0.8.",
    )
    return (chosen or "").strip()
