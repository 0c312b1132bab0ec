"""What an address says: how it writes a value, and what is told of one that no page can use."""

from collections.abc import Iterable
from typing import Any

from gprune.app.ui.text import said

_LONGEST = 80
"""characters of a value that a sentence repeats"""


def written(value: Any) -> list[str]:
    """A value as the address writes it; nothing for an empty one, an empty entry for an empty list."""
    if isinstance(value, bool):
        return [str(int(value))]
    if isinstance(value, float):
        return [f"{value:.6g}"]
    if isinstance(value, (list, tuple)):
        return [str(item) for item in value] or [""]
    return [str(value)] if value not in ("", None) else []


def complaint(key: str, found: str, wanted: str) -> str:
    """Of a value that is none of those meant."""
    return said(f"The address has {key} = {found[:_LONGEST]}, which is not used here: {wanted} is meant.")


def ambiguous(key: str, found: list[str]) -> str:
    """Of a key that has one value and was given several."""
    return said(f"The address has {key} {len(found)} times; the last, {found[-1][:_LONGEST]}, is used.")


def stranger(key: str, found: str) -> str:
    """Of a name that nothing on the page has."""
    return said(f"The address has {key} = {found[:_LONGEST]}, which this page does not have.")


def listed(options: Iterable[str]) -> str:
    """The names that are meant, at most eight."""
    names = [name for name in options if name]
    return " or ".join(names[:8]) + (" …" if len(names) > 8 else "")
