"""A table of measured text cells: one row is the reference, and the best two of a column carry a sign."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import pandas as pd
import streamlit as st

from gprune.views.comparison import latex
from gprune.views.frame.card import Card

Row = TypeVar("Row")
_HEAD_PIXELS, _ROW_PIXELS = 38, 35


def reference(
    rows: Sequence[Row], keys: tuple[str, str], width: int, name: Callable[[Row], str] = str
) -> tuple[Row, bool]:
    """Asks for the row that the others are compared with.

    Args:
        rows: those that can be chosen, at least one.
        keys: keys of the choice and of the switch.
        width: of the choice, in pixels.
        name: what to call a row.

    Returns:
        The row, and whether the changes against it are shown.
    """
    with st.container(horizontal=True, vertical_alignment="bottom"):
        chosen = st.selectbox("Differences against", rows, format_func=name, key=keys[0], width=width)
        differences = st.toggle("Show differences", True, key=keys[1])
    # the rows can be others than when the choice was made
    return (chosen if chosen in rows else rows[0]), differences


def cell(value: str, change: str, mark: str) -> str:
    """A number with its spread, its change against the reference row, and its sign; both may be empty."""
    return " ".join(part for part in (value, change, mark) if part)


def columns(numbers: Iterable[str], reason: str) -> dict[str, Any]:
    """How columns are drawn: numbers to the right, and room for the reason why there are none."""
    drawn: dict[str, Any] = {name: st.column_config.TextColumn(alignment="right") for name in numbers}
    return drawn | {reason: st.column_config.TextColumn(width="large")}


def height(table: pd.DataFrame) -> int:
    """Pixels that show every row without scrolling."""
    return _HEAD_PIXELS + _ROW_PIXELS * max(len(table), 1)


def exports(
    drawn: Card, table: pd.DataFrame, caption: str, name: str, numbers: Callable[[], pd.DataFrame]
) -> None:
    """Offers the table as LaTeX, and the numbers behind it as CSV.

    Args:
        drawn: the card that the table stands on.
        table: the table as it is shown.
        caption: what it shows.
        name: of the LaTeX file, without an ending.
        numbers: makes the numbers.
    """
    with st.container(horizontal=True, vertical_alignment="center"):
        latex.popover(drawn.key, table, caption, name)
        drawn.tools(numbers, switch=False)
