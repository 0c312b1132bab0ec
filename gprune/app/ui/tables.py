"""Tables of the pages; their CSV downloads, also from Streamlit's toolbar, contain no spreadsheet formulas."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from gprune.app.ui.text import escape
from gprune.evaluation import protocol
from gprune.evaluation.protocol import Stamp

_HEAD_PIXELS, ROW_PIXELS = 38, 35
"""heights of the heading and of a row of a table"""
_MOST_STAMPS = 3
"""maximum number of measurement protocols that are written below a table"""
_LINE_PIXELS, _LINE_CHARACTERS = 22, 48
"""height of a line of text in a cell, and number of characters that fit in it"""


def show(
    frame: pd.DataFrame,
    *,
    forms: Mapping[str, str] | None = None,
    words: Mapping[str, Callable[[float], str]] | None = None,
    heading: Callable[[str], str] = str,
    on_row: Callable[[int], None] | None = None,
    **options: Any,
) -> Any:
    """Draw a table without row names; the download of Streamlit contains the values of the frame.

    `forms` has number formats by column and `words` functions that format a number; `heading` turns a column's name
    into its heading. Cells stay numbers. `on_row` receives the position of the row that a person selects, and
    needs a `key`. `options` go to `st.dataframe`, whose result is returned.
    """
    if forms:
        numbers = {name: st.column_config.NumberColumn(heading(name), format=form) for name, form in forms.items()}
        options["column_config"] = numbers | options.get("column_config", {})
    if on_row is not None:
        callback = partial(_report_row, options["key"], on_row, len(frame))
        options |= {"on_select": callback, "selection_mode": "single-row"}
    from gprune.analysis import table

    safe: Any = table.guard(frame, display=True)
    if words:
        safe = safe.style.format(dict(words), na_rep="–")
    return st.dataframe(safe, hide_index=True, **options)


def _report_row(key: str, on_row: Callable[[int], None], count: int) -> None:
    rows = st.session_state[key]["selection"]["rows"]
    # the table may have been longer when the row was chosen
    if rows and rows[0] < count:
        on_row(rows[0])


def height(rows: int) -> int:
    """Return the height of a table without scrolling, in pixels."""
    return _HEAD_PIXELS + ROW_PIXELS * max(rows, 1)


def lines(frame: pd.DataFrame, rows: int) -> dict[str, Any]:
    """Return the options `row_height` and `height` of a table of sentences, of which at most `rows` are visible."""
    longest = max((len(str(cell)) for cell in frame.to_numpy().ravel()), default=0)
    pixels = ROW_PIXELS if longest <= _LINE_CHARACTERS else 3 * _LINE_PIXELS
    return {"row_height": pixels, "height": _HEAD_PIXELS + pixels * max(min(len(frame), rows), 1)}


def download_button(label: str, data: Any, file: str, mime: str, key: str, **look: Any) -> None:
    """Draw the download button of a file, whose data are bytes or a function; the page is not redrawn."""
    shared = {"file_name": file, "mime": mime, "key": key, "on_click": "ignore"}
    st.download_button(label, data, **({"icon": ":material/download:"} | shared | look))


def encode_csv(frame: pd.DataFrame) -> bytes:
    """Return a table as CSV bytes, with cells escaped for spreadsheets."""
    from gprune.analysis.table import Table

    # a name from outside may contain an unpaired surrogate
    return Table(frame).csv().encode("utf-8", "replace")


def draw_stamps(entries: Iterable[Stamp | None]) -> None:
    """Draw the distinct measurement protocols of some values, at most _MOST_STAMPS."""
    lines = protocol.lines(entries)
    for line in lines[:_MOST_STAMPS]:
        st.caption(f":material/straighten: {escape(line[:1].upper() + line[1:])}.")
    if len(lines) > _MOST_STAMPS:
        st.caption(f"And {len(lines) - _MOST_STAMPS} other protocols; the CSV lists them all.")
