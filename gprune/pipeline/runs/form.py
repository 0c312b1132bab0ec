"""What the fields of a run's record must be: every field that a page, a table or a later run relies on.

Fields may be absent, as in records of earlier versions; those that nobody reads may be anything. Reasons for
what is unavailable are explanations only: those of another form are passed over.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from gprune.system.errors import UnreadableError
from gprune.system.safe_parsing import quoted

MOST_TEXT = 20_000
"""characters of a text; an error of a deep stack has some thousands"""
MOST_ENTRIES = 20_000
"""entries of a table; a run of every method on twenty texts has some hundreds"""
MOST_SECONDS = 1e10
STATES = ("running", "done", "failed", "cancelled", "interrupted")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,160}")
"""of a run, of a stage and of a result's key; nothing that leads out of a folder"""

Check = Callable[[Any, str], None]


def is_name(value: object) -> bool:
    """Whether a value can be the name of a run, a stage or a result."""
    return isinstance(value, str) and bool(NAME.fullmatch(value)) and ".." not in value


def check(values: Any) -> dict[str, Any]:
    """A record of the form that the program relies on.

    Args:
        values: what a file of JSON held.

    Raises:
        UnreadableError: it has not; the message goes on from the name of the file.
    """
    if not isinstance(values, dict):
        raise UnreadableError("holds no object")
    for name in ("study", "stages"):
        if not isinstance(values.get(name), dict):
            raise UnreadableError(f"lacks the field {name!r}")
    for name, one in _FIELDS.items():
        if name in values:
            one(values[name], name)
    return values | {"unavailable": _reasons(values.get("unavailable"))}


def _refuse(value: object, where: str, rule: str) -> None:
    raise UnreadableError(f"holds {quoted(value, 40)} as {where}, which must be {rule}")


def _text(value: Any, where: str, most: int = MOST_TEXT) -> None:
    if not isinstance(value, str) or len(value) > most:
        _refuse(value, where, f"text of at most {most} characters")
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        # half of a letter, which nothing can be sent or written with
        _refuse(value, where, "text of whole letters")


def _texts(value: Any, where: str) -> None:
    if not isinstance(value, list) or len(value) > MOST_ENTRIES:
        _refuse(value, where, "a list of texts")
    for one in value:
        _text(one, where)


def _label(value: Any, where: str) -> None:
    _text(value, where, 200)


def _number(value: Any, where: str) -> None:
    whole = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not whole or not 0 <= value <= MOST_SECONDS:
        _refuse(value, where, "a number from 0")


def _truth(value: Any, where: str) -> None:
    if not isinstance(value, bool):
        _refuse(value, where, "true or false")


def _process(value: Any, where: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 2**31:
        _refuse(value, where, "the number of a process")


def _object(value: Any, where: str) -> None:
    if not isinstance(value, dict) or len(value) > MOST_ENTRIES:
        _refuse(value, where, "an object with named fields")


def _state(value: Any, where: str) -> None:
    if value not in STATES:
        _refuse(value, where, f"one of {', '.join(STATES)}")


def _or_none(one: Check) -> Check:
    def checked(value: Any, where: str) -> None:
        if value is not None:
            one(value, where)

    return checked


def _each(one: Check) -> Check:
    """For a table in which every value is of one form."""

    def checked(value: Any, where: str) -> None:
        _object(value, where)
        for name, inner in value.items():
            # a text may be named by its whole path
            _text(name, f"a name in {where}", 4096)
            one(inner, f"{where}.{quoted(name, 40)[1:-1]}")

    return checked


def _fields(form: dict[str, Check]) -> Check:
    """For an object of which some fields have a known form; all may be absent."""

    def checked(value: Any, where: str) -> None:
        _object(value, where)
        for name, one in form.items():
            if name in value:
                one(value[name], f"{where}.{name}")

    return checked


def _scalar(value: Any, where: str) -> None:
    if isinstance(value, str):
        _text(value, where)
    elif isinstance(value, float) and not math.isfinite(value):
        _refuse(value, where, "a finite number")
    elif not isinstance(value, str | int | float | None):
        _refuse(value, where, "text, a number or a truth value")


def _plain(value: Any, where: str) -> None:
    """For settings: objects and lists of scalars, however deep the reader lets them be."""
    if isinstance(value, dict | list):
        if len(value) > MOST_ENTRIES:
            _refuse(value, where, "shorter")
        for inner in (*value, *value.values()) if isinstance(value, dict) else value:
            _plain(inner, where)
    else:
        _scalar(value, where)


def _stages(value: Any, where: str) -> None:
    _object(value, where)
    for name, entry in value.items():
        if not is_name(name):
            _refuse(name, "the name of a stage", "a plain name")
        if not isinstance(entry, dict) or not isinstance(entry.get("key"), str):
            raise UnreadableError(f"lacks the key of the stage {name!r}")
        if not is_name(entry["key"]):
            _refuse(entry["key"], f"the key of the stage {name!r}", "a plain name")
        _STAGE(entry, f"{where}.{name}")


def _provenance(value: Any, where: str) -> None:
    _object(value, where)
    for name, inner in value.items():
        _label(name, f"a name in {where}")
        (_INPUTS if name == "inputs" else _scalar)(inner, f"{where}.{name}")


def _reasons(value: Any) -> dict[str, dict[str, str]]:
    """Why stages cannot be had, by stage: key and reason."""
    entries = value.items() if isinstance(value, dict) else ()
    return {
        name: {"key": entry["key"], "reason": entry["reason"][:MOST_TEXT]}
        for name, entry in entries
        if is_name(name)
        and isinstance(entry, dict)
        and is_name(entry.get("key"))
        and isinstance(entry.get("reason"), str)
    }


_STAGE = _fields(
    {
        "seconds": _or_none(_number),
        "reused": _truth,
        "passes": _or_none(_each(_number)),
        "notices": _or_none(_texts),
        "with": _or_none(_label),
    }
)
_INPUTS = _or_none(
    _fields(
        {name: _text for name in ("model", "tokenizer", "precision", "scoring", "machine")}
        | {name: _each(_text) for name in ("calibration", "evaluation", "tasks")}
        | {"plugins": _each(_each(_label))}
    )
)
_FIELDS: dict[str, Check] = {
    "run": _label,
    "study": _plain,
    "state": _state,
    "until": _or_none(_label),
    "error": _or_none(_text),
    "started": _or_none(_label),
    "updated": _or_none(_label),
    "seconds": _or_none(_number),
    "expected": _or_none(_each(_number)),
    "stages": _stages,
    "missing_tasks": _or_none(_each(_text)),
    "doubtful_tasks": _or_none(_each(_text)),
    "texts": _or_none(_each(_text)),
    "provenance": _or_none(_provenance),
    "result": _or_none(_object),
    "packed": _or_none(_fields({"left_out": _or_none(_each(_label))})),
    "owner": _or_none(_fields({"pid": _process, "started": _number, "host": _label, "boot": _label})),
}
"""the form of every field that something reads, by name"""
