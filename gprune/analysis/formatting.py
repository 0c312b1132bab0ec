"""Formats changes, shares and counts for sentences."""

import re

TEXTS = {"A": "#8661C1", "B": "#D55E00", "C": "#8C6D31"}
"""hues by letter"""
MODULES = ("#B100FF", "#C40000", "#27B1C4", "#EB8927", "#4E6289")
"""hues of modules: as many as every eye tells apart on light and dark ground; beyond them symbols tell"""


_MINUS = "\N{MINUS SIGN}"


def signed(change: float, form: str) -> str:
    """A change with its sign, and a minus where a keyboard has a hyphen.

    `form` is of format strings without the sign, as ".3f"; ".1%" writes it in percent.
    """
    written = format(change, f"+{form}").replace("-", _MINUS)
    return f"{written.removesuffix('%')} %" if form.endswith("%") else written


def percent(share: float, digits: int = 0) -> str:
    """A share, 1 the whole, as "41 %"."""
    return f"{100.0 * share:.{digits}f} %".replace("-", _MINUS)


def counted(number: int, what: str) -> str:
    """A number with what it counts, in the plural unless it is one: "1 neuron", "2,048 neurons"."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def spaced(text: str) -> str:
    """Text in which a blank stands between a number and its percent sign."""
    return re.sub(r"(?<=\d)%", " %", text)
