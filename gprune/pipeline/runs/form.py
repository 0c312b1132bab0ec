"""What the fields of a run's record must be: every field that a page, a table or a later run relies on.

Fields may be absent; those that nobody reads may be anything. Reasons for
what is unavailable are explanations only: those of another form are passed over.
"""

import math
import re
from typing import Annotated, Any, TypeVar

from gprune.system import safe_parsing
from gprune.system.errors import UnreadableError
from gprune.system.forms import Number, Rule, Table, between, one_of, read, shorter

MOST_TEXT = 20_000
"""characters of a text; an error of a deep stack has some thousands"""
MOST_ENTRIES = 20_000
"""entries of a table; a run of every method on twenty texts has some hundreds"""
MOST_SECONDS = 1e10
STATES = ("running", "done", "failed", "cancelled", "interrupted")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,160}")
"""of a run, of a stage and of a result's key; nothing that leads out of a folder"""

T = TypeVar("T")


def is_name(value: object) -> bool:
    """Whether a value can be the name of a run, a stage or a result."""
    return isinstance(value, str) and bool(NAME.fullmatch(value)) and ".." not in value


def check(values: Any) -> dict[str, Any]:
    """A record of the form that the program relies on, of what a file of JSON held.

    Raises UnreadableError where it has another; the message goes on from the name of the file.
    """
    if not isinstance(values, dict):
        raise UnreadableError("holds no object")
    try:
        read(_RECORD, values, UnreadableError)
    except UnreadableError as error:
        raise UnreadableError(f"is no record of a run: {error}") from error
    return values | {"unavailable": _reasons(values.get("unavailable"))}


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


def _is_scalar(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    text = isinstance(value, str) and len(value) <= MOST_TEXT and safe_parsing.is_whole(value)
    return text or value is None or isinstance(value, int)


def _is_plain(value: Any) -> bool:
    """For settings: objects and lists of scalars, however deep the reader lets them be."""
    if not isinstance(value, dict | list):
        return _is_scalar(value)
    inner = (*value, *value.values()) if isinstance(value, dict) else value
    return len(value) <= MOST_ENTRIES and all(map(_is_plain, inner))


_WHOLE = Rule("text of whole letters", safe_parsing.is_whole)
_FEW = shorter(MOST_ENTRIES, "a table or a list", "entries")
_NAMED = Rule("a plain name", is_name)
_Text = Annotated[str, shorter(MOST_TEXT), _WHOLE]
_Label = Annotated[str, shorter(200), _WHOLE]
_Number = Annotated[Number, Rule("a number from 0", lambda value: 0 <= value <= MOST_SECONDS)]
_Object = Annotated[dict, _FEW]
# a text may be named by its whole path
_Each = Annotated[dict[Annotated[str, shorter(4096), _WHOLE], T], _FEW]


_STAGE = {
    "key": Annotated[str, _NAMED],
    "seconds": _Number | None,
    "reused": bool,
    "passes": _Each[_Number] | None,
    "notices": Annotated[list[_Text], _FEW] | None,
    "with": _Label | None,
}
_INPUTS = {
    **dict.fromkeys(("model", "tokenizer", "tokenizing", "precision", "scoring", "machine"), _Text),
    **dict.fromkeys(("calibration", "evaluation", "tasks"), _Each[_Text]),
    "plugins": _Each[_Each[_Label]],
}
_OWNER = {"pid": Annotated[int, between(1, 2**31 - 1)], "started": _Number, "host": _Label, "boot": _Label}
_FACT = Annotated[Any, Rule("text, a number or a truth value", _is_scalar)]
_FACTS = Table({"inputs": Annotated[_Object, Table(_INPUTS)] | None}, others=_FACT)
_RECORD = Annotated[
    Any,
    Table(
        {
            "run": _Label,
            "study": Annotated[dict, Rule("plain settings", _is_plain)],
            "state": Annotated[str, one_of(STATES)],
            "until": _Label | None,
            "error": _Text | None,
            "started": _Label | None,
            "updated": _Label | None,
            "seconds": _Number | None,
            "expected": _Each[_Number] | None,
            "stages": Annotated[dict[Annotated[str, _NAMED], Annotated[_Object, Table(_STAGE, ("key",))]], _FEW],
            "missing_tasks": _Each[_Text] | None,
            "texts": _Each[_Text] | None,
            "provenance": Annotated[dict[_Label, Any], _FEW, _FACTS] | None,
            "result": _Object | None,
            "packed": Annotated[_Object, Table({"left_out": _Each[_Label] | None})] | None,
            "owner": Annotated[_Object, Table(_OWNER)] | None,
        },
        ("study", "stages"),
    ),
]
"""the form of every field that something reads, by name"""
