"""Format changes, shares and counts for sentences, and values for JSON."""

import json
from typing import Any

TEXTS = {"A": "#8661C1", "B": "#D55E00", "C": "#8C6D31"}
"""colours of the texts by letter"""
MODULES = ("#B100FF", "#C40000", "#27B1C4", "#EB8927", "#4E6289")
"""colours of modules that are distinguishable with colour blindness; further modules use symbols"""


_MINUS = "\N{MINUS SIGN}"


def finite_values(value: Any) -> Any:
    """Convert values for JSON: NaN and infinity to None, arrays to lists."""
    text = json.dumps(value, default=lambda array: array.tolist())
    return json.loads(text, parse_constant=lambda _: None)


def format_signed(change: float, form: str) -> str:
    """Format a change with its sign, with a minus sign instead of a hyphen; `form` is for example ".3f" or ".1%"."""
    return format(change, f"+{form}").replace("-", _MINUS)


def percent(share: float, digits: int = 0) -> str:
    """Format a share as a percentage: 0.41 as "41%"."""
    return f"{100.0 * share:.{digits}f}%".replace("-", _MINUS)


def format_count(number: int, noun: str) -> str:
    """Format a number with its noun, plural unless it is 1: "1 neuron", "2,048 neurons"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
