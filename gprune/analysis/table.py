"""Format tables as text, Markdown, LaTeX, CSV and HTML."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

# pandas escapes only cells, not names and captions, and leaves symbols that common LaTeX encodings lack
_TEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "–": "--",
    "…": r"\dots{}",
    "★": r"$\star$",
    "☆": r"$\circ$",
    "↓": r"$\downarrow$",
    "↑": r"$\uparrow$",
    "−": "$-$",
    "†": r"\dag{}",
}


def escape(text: str) -> str:
    """Return text in one line, with special characters escaped and symbols replaced for LaTeX."""
    return "".join(_TEX.get(character, character) for character in " ".join(text.split()))


NONE = "–"
"""shown for a missing value"""
_NUMBER = re.compile(r"[-+−~≈]?\d")


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A table of text and numbers with named columns."""

    frame: pd.DataFrame
    """unformatted values"""

    @classmethod
    def of(cls, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
        """Build a table from column names and rows of the same length."""
        return cls(pd.DataFrame([list(row) for row in rows], columns=list(heads), dtype=object))

    @property
    def heads(self) -> list[str]:
        """Return the names of the columns; names with several levels are joined."""
        names = self.frame.columns
        return [" ".join(map(str, name)) if isinstance(name, tuple) else str(name) for name in names]

    def cells(self, digits: int = 4) -> list[list[str]]:
        """Return all rows as text; floats have `digits` significant digits."""
        rows = self.frame.astype(object).itertuples(index=False, name=None)
        return [[format_cell(value, digits) for value in row] for row in rows]

    def first(self, count: int) -> Table:
        """Return a table of the first `count` rows."""
        return Table(self.frame.head(count))

    def markdown(self) -> str:
        """Return the table as Markdown, or "no rows"."""
        if self.frame.empty:
            return "no rows"
        lines = [self.heads, ["---"] * len(self.heads), *self.cells()]
        return "\n".join("| " + " | ".join(map(_join_lines, line)) + " |" for line in lines)

    def latex(self, caption: str) -> str:
        """Return the table as LaTeX for booktabs; columns of numbers are right-aligned."""
        cells = pd.DataFrame(self.cells(), columns=range(len(self.heads)), dtype=object)
        alignment = "".join("r" if _has_numbers(cells[column]) else "l" for column in cells)
        escaped = cells.map(escape).set_axis([escape(name) for name in self.heads], axis="columns")
        return escaped.style.hide(axis="index").to_latex(
            hrules=True,
            position_float="centering",
            # LaTeX rejects a table without columns
            column_format=alignment or "l",
            caption=escape(caption),
        )

    def csv(self) -> str:
        """Return the table as CSV without row names, with all digits of numbers and with formulas in text escaped."""
        return guard(self.frame).to_csv(index=False, lineterminator="\n")

    def html(self) -> str:
        """Return the table as HTML with escaped text."""
        heads = "".join(f"<th scope='col'>{html.escape(name)}</th>" for name in self.heads)
        lines = ("".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in self.cells(6))
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"

    def text(self, left: Sequence[int] = (0,)) -> list[str]:
        """Return the table as aligned lines for a terminal. `left` are the indices of left-aligned columns."""
        lines = [self.heads, *self.cells()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return [
            "  ".join(
                cell.ljust(width) if index in left else cell.rjust(width)
                for index, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        ]


def format_cell(value: Any, digits: int = 4) -> str:
    """Format a cell: a dash for a missing value, `digits` significant digits for a float.

    With more than four digits, a large number below 1e15 is rounded to an integer instead of written with an exponent.
    """
    if not isinstance(value, str) and (value is None or pd.isna(value)):
        return NONE
    if not isinstance(value, float | np.floating):
        return str(value)
    number = float(value)
    return f"{number:.0f}" if digits > 4 and 10**digits <= abs(number) < 1e15 else f"{number:.{digits}g}"


def _join_lines(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _has_numbers(column: pd.Series) -> bool:
    return any(map(_NUMBER.match, column)) or all(text == NONE for text in column)


# spreadsheets in Japanese or Chinese also accept the full-width forms
_FORMULA_STARTS = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
_INVISIBLE = "\ufeff\u200b\u200e\u200f\0"


def escape_formula(value: object, display: bool = False) -> object:
    """Return text that a spreadsheet would run as a formula with a leading apostrophe, and other cells unchanged.

    White space and invisible characters before the formula are ignored. With `display`, text that is a number, such as
    "-3%", is not escaped.
    """
    if not isinstance(value, str) or not value:
        return value
    text = value.lstrip().lstrip(_INVISIBLE).lstrip()
    looks_like_formula = value[0] in "\t\r" or text.startswith(_FORMULA_STARTS)
    # punctuation alone, as in a list of tokens, is not a formula
    has_content = any(character.isalnum() for character in text)
    return "'" + value if looks_like_formula and has_content and not (display and _is_number(value)) else value


def guard(frame: pd.DataFrame, display: bool = False) -> pd.DataFrame:
    """Return a copy of a table with formulas escaped in all cells, column names and row names.

    `display` is as in `escape_formula`.
    """
    safe = frame.copy()
    for position in range(len(safe.columns)):
        column = safe.iloc[:, position]
        if not pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_datetime64_any_dtype(column):
            cells = [escape_formula(value, display) for value in column]
            if any(new is not old for new, old in zip(cells, column, strict=True)):
                safe.isetitem(position, pd.Series(cells, index=safe.index, dtype=object))
    safe.columns = _guard_names(safe.columns)
    safe.index = _guard_names(safe.index)
    return safe


def _guard_names(names: pd.Index) -> pd.Index:
    """Return column or row names with formulas escaped; the same object if nothing is escaped."""
    if pd.api.types.is_numeric_dtype(names) or isinstance(names, pd.DatetimeIndex):
        return names
    safe = [tuple(map(escape_formula, name)) if isinstance(name, tuple) else escape_formula(name) for name in names]
    if safe == list(names):
        return names
    index: pd.Index = pd.MultiIndex.from_tuples(safe) if isinstance(names, pd.MultiIndex) else pd.Index(safe)
    return index.set_names(names.names)


def _is_number(text: str) -> bool:
    try:
        float(text.strip().removesuffix("%"))
    except ValueError:
        return False
    # float() accepts line ends around a number, but a cell that starts with a tab or a line end can run as a formula
    return "\n" not in text and "\t" not in text and "\r" not in text
