"""What is wrong with a form: every wrong field at once, named in words, marked and explained in place."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from gprune.study import Study
from gprune.system.errors import GpruneError
from gprune.system.safe_parsing import sentence

OTHER = "other"
"""in place of a field, for what is wrong with none of them alone"""
_MOST = 20
"""fields that are looked at; a form has few more that can be wrong"""
_LONGEST = 160
"""characters of what is said at a field"""


def every(
    values: dict[str, Any], changes: dict[str, Any], check: Callable[[dict[str, Any], dict[str, Any]], Any],
    sound: Study,
) -> dict[str, str]:  # fmt: skip
    """What is wrong, by the dotted name of the field: each wrong field is put right to see the next.

    `values` are a study's fields, of a section in a dictionary, `changes` further settings by dotted name;
    `check` raises a GpruneError that begins with the name of a wrong field; `sound` is a right study.
    """
    found = dict[str, str]()
    values, changes = dict(values), dict(changes)
    for _ in range(_MOST):
        try:
            check(values, changes)
        except GpruneError as error:
            told = {field(words): words for words in error.faults or (str(error),)}
            known = [name for name in told if name not in found and _put_right(name, values, changes, sound)]
            for name, words in told.items():
                found.setdefault(name if name in known else OTHER, words)
            if known:
                continue
        break
    if set(found) > {OTHER}:
        # what is left once those are right may have come of them
        found.pop(OTHER, None)
    return found


def field(error: str) -> str:
    """Name of the field that a sentence begins with: `methods` for “methods[2] must be …”."""
    return error.partition(" ")[0].partition("[")[0]


def _put_right(name: str, values: dict[str, Any], changes: dict[str, Any], sound: Study) -> bool:
    """Gives a field a value that is right; whether there is such a field."""
    if name in changes:
        del changes[name]
        return True
    section, _, last = name.rpartition(".")
    home = values.get(section) if section else values
    if not isinstance(home, Mapping) or last not in home:
        return False
    right = dict(home)
    if hasattr(sound, name):
        right[last] = getattr(sound, name)
    else:
        del right[last]
    if section:
        values[section] = right
    else:
        values.update(right)
    return True


def mark(place: Any, key: str, words: str = "") -> None:
    """Puts a frame around the field of an error, by its widget's key, and says below it what is wrong."""
    chosen = "st-key-" + re.sub(r"[^a-zA-Z0-9_-]", "-", key)
    style = f".{chosen} {{outline: 2px solid #D03B3B; outline-offset: 4px;}}"
    if words:
        style += (
            f".{chosen}::after {{content: {quoted(sentence(words, _LONGEST))}; display: block; "
            "color: light-dark(#A61E1E, #FF9A9A); font-size: 0.85rem; line-height: 1.35; "
            "overflow-wrap: anywhere;}"
        )
    place.html(f"<style>{style}</style>")


def quoted(text: str) -> str:
    """Text as a string of CSS in which every sign that could end it is escaped."""
    # the blank ends the number and is no part of the text
    return '"' + re.sub(r"[^a-zA-Z0-9 ]", lambda sign: f"\\{ord(sign[0]):06x} ", text) + '"'
