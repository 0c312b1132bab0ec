"""What a page says in the place of what it could not do."""

import contextlib
from collections.abc import Iterator

import streamlit as st

from gprune.app.ui.text import said
from gprune.system.errors import GpruneError


@contextlib.contextmanager
def shown() -> Iterator[None]:
    """Around what may go wrong: a GpruneError ends it, and the page says why."""
    try:
        yield
    except GpruneError as error:
        st.error(said(error), icon=":material/error:")
