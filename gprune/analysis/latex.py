"""A table's LaTeX source, for the booktabs package: the pages' tables and the reproduced ones alike."""

from __future__ import annotations

import re

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
_NUMBER = re.compile(r"[-+−~≈]?\d")


def source(table: pd.DataFrame, caption: str) -> str:
    """A table as LaTeX, its cells as they are read; columns of numbers stand to the right.

    Args:
        table: text and numbers; missing values become a dash.
        caption: what the table shows.
    """
    read = table.map(_read)
    alignment = "".join("r" if _is_numbers(read.iloc[:, place]) else "l" for place in range(read.shape[1]))
    cells = read.map(escape).rename(columns=lambda name: escape(str(name))).reset_index(drop=True)
    styled = cells.style.hide(axis="index")
    return styled.to_latex(
        hrules=True,
        position_float="centering",
        # a table of no columns is none to LaTeX
        column_format=alignment or "l",
        caption=escape(caption),
    )


def escape(text: str) -> str:
    """Text in one line, with every character that means something to LaTeX made harmless."""
    return "".join(_TEX.get(character, character) for character in " ".join(text.split()))


def _read(value: object) -> str:
    if not isinstance(value, str) and (value is None or pd.isna(value)):
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _is_numbers(column: pd.Series) -> bool:
    return any(map(_NUMBER.match, column)) or all(text == "–" for text in column)
