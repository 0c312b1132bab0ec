"""A table's LaTeX source, to be copied or downloaded."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from gprune.reproduction.writing import escape

_SIGNS = {
    "★": r"$\star$",
    "☆": r"$\circ$",
    "↓": r"$\downarrow$",
    "↑": r"$\uparrow$",
    "−": "$-$",
    "†": r"\dag{}",
}


def source(table: pd.DataFrame, caption: str) -> str:
    """A table for the booktabs package, its cells as they are read on the page.

    Args:
        table: text and numbers; missing values become a dash.
        caption: what the table shows.
    """
    lines = [" & ".join(_cell(name) for name in table.columns) + r" \\", r"\midrule"]
    lines += [" & ".join(_cell(value) for value in row) + r" \\" for row in table.itertuples(index=False)]
    body = ["\\" + "begin{table}", r"\centering", rf"\caption{{{_cell(caption)}}}"]
    body += [rf"\begin{{tabular}}{{l{'r' * (len(table.columns) - 1)}}}", r"\toprule", *lines, r"\bottomrule"]
    return "\n".join([*body, r"\end{tabular}", r"\end{table}", ""])


def _cell(value: object) -> str:
    if not isinstance(value, str) and (value is None or pd.isna(value)):
        return "--"
    text = escape(f"{value:.4g}" if isinstance(value, float) else str(value))
    for sign, command in _SIGNS.items():
        text = text.replace(sign, command)
    return text


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
