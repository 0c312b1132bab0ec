"""The line below figures that says by what protocol they were measured, and what their marks stand for."""

from collections.abc import Iterable

import streamlit as st

from gprune.app.ui.text import plain
from gprune.evaluation import protocol
from gprune.evaluation.protocol import Marks, Stamp

_MOST = 3


def show(found: Iterable[Stamp | None]) -> None:
    """Draws the stamps that are known of some figures, each once; of many the first ones."""
    lines = protocol.lines(found)
    for line in lines[:_MOST]:
        st.caption(f":material/straighten: {plain(line)}.")
    if len(lines) > _MOST:
        st.caption(f"And {len(lines) - _MOST} other protocols; the CSV names that of every figure.")


def footnotes(marks: Marks) -> None:
    """Draws what the marks of a table stand for."""
    if marks.footnotes:
        st.caption(f"{plain('; '.join(marks.footnotes))}.")
