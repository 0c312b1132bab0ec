"""A table of measured text cells: one row is the reference, and the best two of a column carry a sign."""

from collections.abc import Callable, Mapping

import pandas as pd
import streamlit as st

from gprune.app.ui import url_state
from gprune.app.ui.card import Card


def reference(rows: Mapping[str, str], keys: tuple[str, str], width: int) -> tuple[str, bool]:
    """Asks for the row that the others are compared with, and whether the changes against it are shown.

    `keys` are those of the choice and of the switch in the address, `width` is in pixels.
    """
    with st.container(horizontal=True, vertical_alignment="bottom"):
        chosen = url_state.selectbox("Baseline", rows, keys[0], next(iter(rows)), width=width)
        return chosen, url_state.toggle("Show differences", keys[1], True)


def cell(value: str, change: str, mark: str) -> str:
    """A number with its spread, its change against the reference row, and its sign; both may be empty."""
    return " ".join(part for part in (value, change, mark) if part)


def exports(drawn: Card, table: pd.DataFrame, numbers: Callable[[], pd.DataFrame], how: str) -> None:
    """Offers the table for a paper, the numbers behind it as CSV, and how it is read."""
    drawn.reads(lambda: table)
    drawn.tools(numbers, switch=False, how=how)
