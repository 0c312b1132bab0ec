"""Text in LaTeX: what a sign means there, and how it is written so that it is read as it is."""

from __future__ import annotations

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
