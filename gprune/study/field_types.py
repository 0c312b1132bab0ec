"""The types of fields that settings share: numbers of 64 bits, sound texts, and lists that have an end."""

import math
from numbers import Integral
from typing import Annotated, Any, TypeVar

from gprune.system import forms, limits
from gprune.system.forms import Rule
from gprune.system.safe_parsing import is_whole

T = TypeVar("T")


def _of_64_bits(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, int) or abs(value) < 2**63


def _whole(value: Any) -> Any:
    """A count of JSON may be written as 8.0; one of numpy is a count as well."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**63:
        return int(value)
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else value


def _text(value: Any) -> Any:
    """A window preset is a name that looks like a number."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


_BITS = Rule("a finite number of 64 bits", _of_64_bits, first=True)
Whole = Annotated[int, forms.Before(_whole), _BITS]
Real = Annotated[float, _BITS]
SOUND = Rule("text without NUL or half a character", lambda text: "\0" not in text and is_whole(text))
Words = Annotated[str, forms.shorter(limits.LONGEST_TEXT), SOUND]
Text = Annotated[Words, forms.Before(_text), _BITS]
Several = Annotated[forms.Listed[T], forms.shorter(limits.LONGEST_LIST, "a list", "entries")]
