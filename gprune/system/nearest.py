"""Suggestions for mistyped names."""

import difflib
from collections.abc import Iterable, Sequence

from gprune.system.safe_parsing import quote

_LONGEST = 200
"""characters of a word that are compared: matching takes the square of their number"""


def closest(word: str, names: Iterable[str]) -> str:
    """Return the known name nearest to a word, or an empty string."""
    return next(iter(difflib.get_close_matches(word[:_LONGEST], list(names), n=1)), "")


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """Return a suggestion to append to an error, ` (did you mean flap?)`, or an empty string."""
    near = closest(word, names)
    return f" (did you mean {near}?)" if near else ""


def not_one_of(name: str, value: str, names: Sequence[str], otherwise: str = "") -> str:
    """Return the error for a value of `name` that is not among the known words, with the nearest one.

    `otherwise` is the remedy where none is near.
    """
    near = closest(value, names)
    remedy = f"did you mean {near!r}?" if near else otherwise
    return f"{name} must be one of {', '.join(names)} (got {quote(value)})" + (f"; {remedy}" if remedy else "")
