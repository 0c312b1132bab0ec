"""Tables for spreadsheets: a text cell that one would run as a formula is marked as the text that it is."""

from __future__ import annotations

import pandas as pd

# the wide forms count as the others do where Japanese or Chinese is the language of the spreadsheet
_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
_PASSED_OVER = "\ufeff\u200b\u200e\u200f\0"


def guarded(value: object, shown: bool = False) -> object:
    """A cell as it is safe in a spreadsheet: an apostrophe stands before what would run as a formula.

    What is passed over before the sign counts as well: blanks, line breaks, marks without width.

    Args:
        value: the cell; whatever is no text comes back as it is.
        shown: whether people read it on a page too: there a text that is a number has no apostrophe.
    """
    if not isinstance(value, str) or not value:
        return value
    first = value.lstrip().lstrip(_PASSED_OVER).lstrip()
    starts = value[0] in "\t\r" or first.startswith(_FORMULA)
    # signs alone, as in a list of tokens, call nothing
    calls = any(letter.isalnum() for letter in first)
    return "'" + value if starts and calls and not (shown and _number(value)) else value


def guard(frame: pd.DataFrame, shown: bool = False) -> pd.DataFrame:
    """A copy of a table with every cell, heading and row name guarded; columns of numbers are not touched."""
    safe = frame.copy()
    for place in range(len(safe.columns)):
        column = safe.iloc[:, place]
        if not pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_datetime64_any_dtype(column):
            cells = [guarded(value, shown) for value in column]
            if any(new is not old for new, old in zip(cells, column, strict=True)):
                safe.isetitem(place, pd.Series(cells, index=safe.index, dtype=object))
    safe.columns = _names(safe.columns)
    safe.index = _names(safe.index)
    return safe


def _names(names: pd.Index) -> pd.Index:
    if pd.api.types.is_numeric_dtype(names) or isinstance(names, pd.DatetimeIndex):
        return names
    safe = [tuple(map(guarded, name)) if isinstance(name, tuple) else guarded(name) for name in names]
    if safe == list(names):
        return names
    made: pd.Index = pd.MultiIndex.from_tuples(safe) if isinstance(names, pd.MultiIndex) else pd.Index(safe)
    return made.set_names(names.names)


def _number(text: str) -> bool:
    try:
        float(text.strip().removesuffix("%"))
    except ValueError:
        return False
    return "\n" not in text and "\t" not in text and "\r" not in text
