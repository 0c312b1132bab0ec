"""A table as it is written: for cards, reports, the Python API, reproductions and calibration cards alike."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from gprune.analysis import spreadsheet
from gprune.analysis.latex import escape

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
        """Every row as it is read.

        Args:
            digits: significant ones of a number that is not whole.
        """
        rows = self.frame.astype(object).itertuples(index=False, name=None)
        return [[read(value, digits) for value in row] for row in rows]

    def first(self, most: int) -> Table:
        """The first rows."""
        return Table(self.frame.head(most))

    def markdown(self) -> str:
        """As Markdown; a table without rows as a sentence."""
        if self.frame.empty:
            return "no rows"
        lines = [self.heads, ["---"] * len(self.heads), *self.cells()]
        return "\n".join("| " + " | ".join(map(_one_line, line)) + " |" for line in lines)

    def latex(self, caption: str) -> str:
        """As LaTeX for the booktabs package; columns of numbers stand to the right.

        Args:
            caption: what the table shows.
        """
        cells = pd.DataFrame(self.cells(), columns=range(len(self.heads)), dtype=object)
        alignment = "".join("r" if _is_numbers(cells[place]) else "l" for place in cells)
        written = cells.map(escape).set_axis([escape(name) for name in self.heads], axis="columns")
        return written.style.hide(axis="index").to_latex(
            hrules=True,
            position_float="centering",
            # a table of no columns is none to LaTeX
            column_format=alignment or "l",
            caption=escape(caption),
        )

    def csv(self) -> str:
        """As CSV without row names: numbers with all their digits, text guarded against spreadsheets."""
        return spreadsheet.guard(self.frame).to_csv(index=False, lineterminator="\n")

    def html(self) -> str:
        """As a table of HTML, its text escaped."""
        heads = "".join(f"<th scope='col'>{html.escape(name)}</th>" for name in self.heads)
        lines = ("".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in self.cells(6))
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"

    def text(self, left: Sequence[int] = (0,)) -> list[str]:
        """As lines for a terminal.

        Args:
            left: places of the columns that stand to the left.
        """
        lines = [self.heads, *self.cells()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return [
            "  ".join(
                cell.ljust(width) if place in left else cell.rjust(width)
                for place, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        ]


def read(value: Any, digits: int = 4) -> str:
    """A cell as it is read: a dash where nothing is, a number with its first digits.

    Args:
        value: text, a number or None.
        digits: significant ones of a number that is not whole; more than four have no exponent below 1e15.
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
