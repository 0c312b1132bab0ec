"""Answers: does a row of a task hold what its columns must hold, and if not, what is wrong?

A row is read column by column, and what is wrong with any of them is told at once, in one sentence; the
caller knows the task, the file and the row.
"""

from typing import Any

from gprune.system import safe_parsing
from gprune.system.safe_parsing import is_whole
from gprune.system.units import listed

Row = dict[str, Any]

_SHOWN = 60
# of several wrong values in one sentence, each is shown shorter
_SHOWN_OF_SEVERAL = 14
_LISTED = 120
_MOST_DIGITS = 9


class ColumnError(ValueError):
    """Columns are missing or hold something else than they must."""


class Columns:
    """The columns of one row; what is wrong is kept, and raised by `require`.

    A column that cannot be read is given as an empty value of its kind.
    """

    def __init__(self, row: Row) -> None:
        """Prepares to read a row."""
        self._row = row
        self._missing: list[str] = []
        self._wrong: list[tuple[str, Any, str]] = []
        self._odd: list[str] = []

    def __contains__(self, column: object) -> bool:
        """Whether the row has a column."""
        return column in self._row

    def value(self, column: str) -> Any:
        """What stands in a column, unread; None where it is missing, which is no complaint."""
        return self._row.get(column)

    def text(self, column: str) -> str:
        """The text of a column; it may be empty."""
        value = self._value(column)
        if value is _MISSING:
            return ""
        return value if _is_text(value) else self._refused(column, value, "text", "")

    def texts(self, column: str, fewest: int = 2) -> list[str]:
        """The texts of a column that holds a list of them."""
        value = self._value(column)
        if value is _MISSING:
            return []
        sound = isinstance(value, list) and len(value) >= fewest and all(map(_is_text, value))
        return value if sound else self._refused(column, value, f"a list of at least {fewest} texts", [])

    def index(self, column: str, count: int) -> int:
        """The index of the right choice, as a number or as a text of digits.

        `count` is the number of choices, 0 where these could not be read, which lets every number pass.
        """
        value = self._value(column)
        if value is _MISSING:
            return 0
        # a text of thousands of digits is no number of a choice, and Python does not turn it into one
        digits = isinstance(value, str) and value.isdecimal() and len(value) <= _MOST_DIGITS
        number = int(value) if digits else value
        whole = isinstance(number, int) and not isinstance(number, bool) and number >= 0
        if whole and (number < count or not count):
            return int(number)
        rule = f"a number from 0 to {count - 1}" if count else "the number of a choice, from 0"
        return int(self._refused(column, value, rule, 0))

    def truth(self, column: str) -> int:
        """1 for true and 0 for false, written as such or as a number."""
        value = self._value(column)
        if value is _MISSING:
            return 0
        return int(value) if isinstance(value, bool) else self.index(column, 2)

    def lettered(self, column: str) -> dict[str, list[str]]:
        """Choices with their letters: {"text": [...], "label": [...]}, or a list of {"text", "label"}."""
        value = self._value(column)
        if value is _MISSING:
            return {"text": [], "label": []}
        rule = 'an object like {"text": [...], "label": [...]}'
        if isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
            value = {name: [one.get(name) for one in value] for name in ("text", "label")}
        if not isinstance(value, dict):
            return self._refused(column, value, rule, {"text": [], "label": []})
        inner = Columns(value)
        found = {"text": inner.texts("text"), "label": inner.texts("label")}
        if complaint := inner.complaint():
            self.odd(f"has {column!r} that {complaint}")
        elif len(found["text"]) != len(found["label"]):
            self._wrong.append((column, value, "as many entries in text as in label"))
        return found

    def one_of(self, column: str, known: list[str], *, spaced: bool = False) -> str:
        """A text that is one of several; any text where these could not be read."""
        value = self.text(column).lstrip() if spaced else self.text(column)
        if known and column in self and _is_text(self._row[column]) and value not in known:
            rule = f"one of {safe_parsing.sentence(', '.join(known), _LISTED)}"
            return str(self._refused(column, value, rule, ""))
        return value

    def odd(self, complaint: str) -> None:
        """Adds a complaint in words of the caller, as the end of a sentence."""
        self._odd.append(complaint)

    def complaint(self) -> str:
        """Everything that is wrong, as the end of a sentence; empty where nothing is."""
        parts = list(self._odd)
        if len(self._wrong) == 1:
            column, value, rule = self._wrong[0]
            parts.append(f"holds {safe_parsing.quoted(value, _SHOWN)} in the column {column!r}, which must be {rule}")
        elif self._wrong:
            told = [
                f"in {column!r} {rule} (not {safe_parsing.quoted(value, _SHOWN_OF_SEVERAL)})"
                for column, value, rule in self._wrong
            ]
            parts.append(f"must hold {listed(told)}")
        if self._missing:
            columns = "column" if len(self._missing) == 1 else "columns"
            there = safe_parsing.sentence(", ".join(map(str, self._row)) or "none", _LISTED)
            parts.append(f"lacks the {columns} {listed(list(map(repr, self._missing)))}; it has {there}")
        return ", and ".join(parts)

    def require(self) -> None:
        """Raises ColumnError where something was wrong; the message goes on from the name of the row."""
        if complaint := self.complaint():
            raise ColumnError(complaint)

    def _value(self, column: str) -> Any:
        if column not in self._row:
            self._missing.append(column)
            return _MISSING
        return self._row[column]

    def _refused(self, column: str, value: Any, rule: str, instead: Any) -> Any:
        self._wrong.append((column, value, rule))
        return instead


_MISSING = object()


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and is_whole(value)
