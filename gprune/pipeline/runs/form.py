"""What the fields of a run's record must be: every field that a page, a table or a later run relies on.

Fields may be absent; those that nobody reads may be anything. Reasons for
what is unavailable are explanations only: those of another form are passed over.
"""

import math
import re
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

from gprune.system import safe_parsing
from gprune.system.errors import UnreadableError
from gprune.system.forms import Before, LooseForm, Rule, between, one_of, shorter, validate

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
        validate(_Record, values, UnreadableError)
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


def _is_plain(value: Any) -> bool:
    """Return True for settings: finite numbers and texts, in objects and lists of any depth."""
    if isinstance(value, dict | list):
        inner = (*value, *value.values()) if isinstance(value, dict) else value
        return len(value) <= MOST_ENTRIES and all(map(_is_plain, inner))
    if isinstance(value, str):
        return len(value) <= MOST_TEXT and safe_parsing.is_whole(value)
    return value is None or isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))


def _require_facts(value: Any) -> Any:
    """Raise ValueError unless everything but the inputs is one plain value."""
    facts = value.items() if isinstance(value, dict) else ()
    if any(isinstance(fact, dict | list) or not _is_plain(fact) for name, fact in facts if name != "inputs"):
        raise ValueError("facts of one value each")
    return value


_WHOLE = Rule("text of whole letters", safe_parsing.is_whole)
_FEW = shorter(MOST_ENTRIES, "a table or a list", "entries")
_Key = Annotated[str, Rule("a plain name", is_name)]
_Text = Annotated[str, shorter(MOST_TEXT), _WHOLE]
_Label = Annotated[str, shorter(200), _WHOLE]
_Number = Annotated[float, Rule("a number from 0", lambda value: 0 <= value <= MOST_SECONDS)]
# a text may be named by its whole path
_Each = Annotated[dict[Annotated[str, shorter(4096), _WHOLE], T], _FEW]


@dataclass(frozen=True, slots=True)
class _Stage(LooseForm):
    key: _Key
    seconds: _Number | None = None
    reused: bool = False
    passes: _Each[_Number] | None = None
    notices: Annotated[list[_Text], _FEW] | None = None


@dataclass(frozen=True, slots=True)
class _Inputs(LooseForm):
    model: _Text = ""
    tokenizer: _Text = ""
    tokenizing: _Text = ""
    precision: _Text = ""
    scoring: _Text = ""
    machine: _Text = ""
    calibration: _Each[_Text] = field(default_factory=dict)
    evaluation: _Each[_Text] = field(default_factory=dict)
    tasks: _Each[_Text] = field(default_factory=dict)
    plugins: _Each[_Each[_Label]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Provenance(LooseForm):
    inputs: _Inputs | None = None


@dataclass(frozen=True, slots=True)
class _Packed(LooseForm):
    left_out: _Each[_Label] | None = None


@dataclass(frozen=True, slots=True)
class _Owner(LooseForm):
    pid: Annotated[int, between(1, 2**31 - 1)] = 1
    started: _Number = 0.0
    host: _Label = ""
    boot: _Label = ""


@dataclass(frozen=True, slots=True)
class _Record(LooseForm):
    study: Annotated[dict, Rule("plain settings", _is_plain)]
    stages: Annotated[dict[_Key, _Stage], _FEW]
    run: _Label = ""
    state: Annotated[str, one_of(STATES)] = "done"
    until: _Label | None = None
    error: _Text | None = None
    started: _Label | None = None
    updated: _Label | None = None
    seconds: _Number | None = None
    expected: _Each[_Number] | None = None
    missing_tasks: _Each[_Text] | None = None
    texts: _Each[_Text] | None = None
    provenance: Annotated[_Provenance | None, Before(_require_facts)] = None
    result: Annotated[dict, _FEW] | None = None
    packed: _Packed | None = None
    owner: _Owner | None = None
