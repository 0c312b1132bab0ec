"""A table's LaTeX source, to be copied or downloaded."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from gprune.analysis.latex import source


def popover(key: str, table: pd.DataFrame, caption: str, name: str) -> None:
    """A button that opens the source of a table.

    Args:
        key: unique in the app.
        table: what is shown.
        caption: what it shows.
        name: stem of the file.
    """
    with st.popover("LaTeX", icon=":material/function:", type="tertiary", key=f"{key}_latex"):
        made = source(table, caption)
        st.caption("For the booktabs package; the button in the corner copies it.")
        st.code(made, language="latex", height=260)
        st.download_button(
            "Download",
            made.encode(),
            file_name=f"{name}.tex",
            mime="text/x-tex",
            key=f"{key}_tex",
            icon=":material/download:",
            on_click="ignore",
        )
