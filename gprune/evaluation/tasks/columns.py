"""Answers: does a row of a task hold what its columns must hold, and if not, what is wrong?

Each function reads one column and says in a sentence what it found instead; the caller knows the task, the
file and the row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gprune import untrusted

Row = dict[str, Any]
Check = Callable[[Row], Row]

_SHOWN = 60
_MOST_DIGITS = 9


class ColumnError(ValueError):
    """A column is missing or holds something else than it must."""


def text(row: Row, column: str) -> str:
    """The text of a column; it may be empty."""
    value = _value(row, column)
    if not isinstance(value, str) or _broken(value):
        raise _wrong(column, value, "text")
    return value


def texts(row: Row, column: str, fewest: int = 2) -> list[str]:
    """The texts of a column that holds a list of them."""
    value = _value(row, column)
    listed = isinstance(value, list) and len(value) >= fewest
    if not listed or not all(isinstance(v, str) and not _broken(v) for v in value):
        raise _wrong(column, value, f"a list of at least {fewest} texts")
    return value


def _broken(value: str) -> bool:
    """Whether a text holds half a character, which JSON can write and UTF-8 cannot."""
    return any("\ud800" <= character <= "\udfff" for character in value)


def index(row: Row, column: str, count: int) -> int:
    """The index of the right choice, as a number or as a text of digits."""
    value = _value(row, column)
    # a text of thousands of digits is no number of a choice, and Python does not turn it into one
    digits = isinstance(value, str) and value.isdecimal() and len(value) <= _MOST_DIGITS
    number = int(value) if digits else value
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < count:
        raise _wrong(column, value, f"a number from 0 to {count - 1}")
    return number


def lettered(row: Row, column: str) -> dict[str, list[str]]:
    """Choices with their letters: {"text": [...], "label": [...]}."""
    value = _value(row, column)
    if not isinstance(value, dict):
        raise _wrong(column, value, 'an object like {"text": [...], "label": [...]}')
    found = {"text": texts(value, "text"), "label": texts(value, "label")}
    if len(found["text"]) != len(found["label"]):
        raise _wrong(column, value, "as many entries in text as in label")
    return found


def one_of(row: Row, column: str, known: list[str]) -> str:
    """A text that is one of several."""
    value = text(row, column)
    if value not in known:
        raise _wrong(column, value, f"one of {untrusted.sentence(', '.join(known), 120)}")
    return value


def _value(row: Row, column: str) -> Any:
    if column not in row:
        shown = untrusted.sentence(", ".join(map(str, row)) or "none", 120)
        raise ColumnError(f"lacks the column {column!r}; it has {shown}")
    return row[column]


def _wrong(column: str, value: Any, rule: str) -> ColumnError:
    return ColumnError(
        f"holds {untrusted.quoted(value, _SHOWN)} in the column {column!r}, which must be {rule}"
    )
