"""A table as it is written: for cards, reports, the Python API, reproductions and calibration cards alike."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

# pandas escapes cells alone, and leaves the signs that the usual encodings print wrong
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
    """Text in one line, with every character that means something to LaTeX made harmless."""
    return "".join(_TEX.get(character, character) for character in " ".join(text.split()))


NONE = "–"
"""stands for what is missing"""
_NUMBER = re.compile(r"[-+−~≈]?\d")


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Rows of cells, text or numbers, under columns that have a name each."""

    frame: pd.DataFrame
    """as the numbers are; whoever writes it sees to how they read"""

    @classmethod
    def of(cls, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
        """A table of rows that are as long as its heads."""
        return cls(pd.DataFrame([list(row) for row in rows], columns=list(heads), dtype=object))

    @property
    def heads(self) -> list[str]:
        """The names of the columns; those of several levels in one line."""
        names = self.frame.columns
        return [" ".join(map(str, name)) if isinstance(name, tuple) else str(name) for name in names]

    def cells(self, digits: int = 4) -> list[list[str]]:
        """Every row as it is read; `digits` are the significant ones of a number that is not whole."""
        rows = self.frame.astype(object).itertuples(index=False, name=None)
        return [[format_cell(value, digits) for value in row] for row in rows]

    def first(self, count: int) -> Table:
        """The first rows."""
        return Table(self.frame.head(count))

    def markdown(self) -> str:
        """As Markdown; a table without rows as a sentence."""
        if self.frame.empty:
            return "no rows"
        lines = [self.heads, ["---"] * len(self.heads), *self.cells()]
        return "\n".join("| " + " | ".join(map(_one_line, line)) + " |" for line in lines)

    def latex(self, caption: str) -> str:
        """As LaTeX for the booktabs package; columns of numbers stand to the right."""
        cells = pd.DataFrame(self.cells(), columns=range(len(self.heads)), dtype=object)
        alignment = "".join("r" if _is_numbers(cells[column]) else "l" for column in cells)
        escaped = cells.map(escape).set_axis([escape(name) for name in self.heads], axis="columns")
        return escaped.style.hide(axis="index").to_latex(
            hrules=True,
            position_float="centering",
            # a table of no columns is none to LaTeX
            column_format=alignment or "l",
            caption=escape(caption),
        )

    def csv(self) -> str:
        """As CSV without row names: numbers with all their digits, text guarded against spreadsheets."""
        return guard(self.frame).to_csv(index=False, lineterminator="\n")

    def html(self) -> str:
        """As a table of HTML, its text escaped."""
        heads = "".join(f"<th scope='col'>{html.escape(name)}</th>" for name in self.heads)
        lines = ("".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in self.cells(6))
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"

    def text(self, left: Sequence[int] = (0,)) -> list[str]:
        """As lines for a terminal; the columns at the places `left` stand to the left."""
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
    """A cell as it is read: a dash where nothing is, a number with its first `digits` if it is not whole.

    More than four digits have no exponent below 1e15.
    """
    if not isinstance(value, str) and (value is None or pd.isna(value)):
        return NONE
    if not isinstance(value, float | np.floating):
        return str(value)
    number = float(value)
    return f"{number:.0f}" if digits > 4 and 10**digits <= abs(number) < 1e15 else f"{number:.{digits}g}"


def _one_line(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _is_numbers(column: pd.Series) -> bool:
    return any(map(_NUMBER.match, column)) or all(text == NONE for text in column)


# the wide forms count as the others do where Japanese or Chinese is the language of the spreadsheet
_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
_PASSED_OVER = "\ufeff\u200b\u200e\u200f\0"


def escape_formula(value: object, display: bool = False) -> object:
    """A cell as it is safe in a spreadsheet: an apostrophe stands before what would run as a formula.

    What is passed over before the sign counts as well: blanks, line breaks, marks without width. What is no
    text comes back as it is; `display` to people, too, a text that is a number has no apostrophe.
    """
    if not isinstance(value, str) or not value:
        return value
    first = value.lstrip().lstrip(_PASSED_OVER).lstrip()
    starts = value[0] in "\t\r" or first.startswith(_FORMULA)
    # signs alone, as in a list of tokens, call nothing
    calls = any(letter.isalnum() for letter in first)
    return "'" + value if starts and calls and not (display and _number(value)) else value


def guard(frame: pd.DataFrame, shown: bool = False) -> pd.DataFrame:
    """A copy of a table with every cell, heading and row name guarded; columns of numbers are not touched."""
    safe = frame.copy()
    for position in range(len(safe.columns)):
        column = safe.iloc[:, position]
        if not pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_datetime64_any_dtype(column):
            cells = [escape_formula(value, shown) for value in column]
            if any(new is not old for new, old in zip(cells, column, strict=True)):
                safe.isetitem(position, pd.Series(cells, index=safe.index, dtype=object))
    safe.columns = _names(safe.columns)
    safe.index = _names(safe.index)
    return safe


def _names(names: pd.Index) -> pd.Index:
    if pd.api.types.is_numeric_dtype(names) or isinstance(names, pd.DatetimeIndex):
        return names
    safe = [tuple(map(escape_formula, name)) if isinstance(name, tuple) else escape_formula(name) for name in names]
    if safe == list(names):
        return names
    index: pd.Index = pd.MultiIndex.from_tuples(safe) if isinstance(names, pd.MultiIndex) else pd.Index(safe)
    return index.set_names(names.names)


def _number(text: str) -> bool:
    try:
        float(text.strip().removesuffix("%"))
    except ValueError:
        return False
    return "\n" not in text and "\t" not in text and "\r" not in text
