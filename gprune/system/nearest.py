"""What a person who typed an unknown name probably meant."""

import difflib
from collections.abc import Iterable

_LONGEST = 200
"""characters of a word that are compared: matching takes the square of their number"""


def closest(word: str, known: Iterable[str]) -> str:
    """The known name that a word is most like, or an empty string where none is near."""
    return next(iter(difflib.get_close_matches(word[:_LONGEST], list(known), n=1)), "")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The nearest of some names as what follows a complaint, ` (did you mean flap?)`, or nothing."""
    near = closest(word, known)
    return f" (did you mean {near}?)" if near else ""
