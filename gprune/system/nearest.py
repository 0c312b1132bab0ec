"""What a person who typed an unknown name probably meant."""

import difflib
from collections.abc import Iterable, Sequence

from gprune.system.safe_parsing import quoted

_LONGEST = 200
"""characters of a word that are compared: matching takes the square of their number"""


def closest(word: str, known: Iterable[str]) -> str:
    """The known name that a word is most like, or an empty string where none is near."""
    return next(iter(difflib.get_close_matches(word[:_LONGEST], list(known), n=1)), "")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The nearest of some names as what follows a complaint, ` (did you mean flap?)`, or nothing."""
    near = closest(word, known)
    return f" (did you mean {near}?)" if near else ""


def not_one_of(name: str, value: str, known: Sequence[str], otherwise: str = "") -> str:
    """The complaint about a value of `name` that is none of some words, with the nearest of them.

    `otherwise` is the remedy where none is near.
    """
    near = closest(value, known)
    remedy = f"did you mean {near!r}?" if near else otherwise
    return f"{name} must be one of {', '.join(known)} (got {quoted(value)})" + (f"; {remedy}" if remedy else "")
