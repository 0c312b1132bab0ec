"""The record of a run that comes from elsewhere: every field of the type that it should have, or refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from gprune import stages
from gprune.errors import SettingsError, UnreadableError
from gprune.stages import Graph
from gprune.stages.inputs import Inputs, from_plain, roles
from gprune.study import Study, from_dict
from gprune.untrusted import quoted, sentence

STATES = ("running", "done", "failed", "cancelled")
_DIGESTS = ("calibration", "evaluation", "tasks")
Check = Callable[[Any], bool]


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _time(value: Any) -> bool:
    try:
        return datetime.fromisoformat(value) is not None
    except (TypeError, ValueError):
        return False


def _maybe(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _named(check: Check) -> Check:
    return lambda value: isinstance(value, dict) and all(map(check, value.values()))


def _object(**checks: Check) -> Check:
    """An object whose fields, where they are there, pass; others may be there."""

    def passes(value: Any) -> bool:
        return isinstance(value, dict) and all(
            check(value[name]) for name, check in checks.items() if name in value
        )

    return passes


_STAGE = _object(
    key=_text, seconds=_number, reused=lambda value: isinstance(value, bool), passes=_maybe(_named(_number))
)
_REASON = _object(key=_text, reason=_text)
FIELDS: dict[str, Check] = {
    "run": _text,
    "study": lambda value: isinstance(value, dict),
    "state": lambda value: value in STATES,
    "until": lambda value: value in stages.UNTIL,
    "error": _maybe(_text),
    "started": _time,
    "updated": _time,
    "seconds": _number,
    "expected": _named(_number),
    "stages": _named(lambda value: _STAGE(value) and "key" in value),
    "unavailable": _named(_REASON),
    "missing_tasks": _named(_text),
    "texts": _named(_text),
    "provenance": lambda value: isinstance(value, dict),
    "result": _maybe(lambda value: isinstance(value, dict)),
}
"""the fields that a pack takes along, and what they must be"""
_NEEDED = ("study", "stages", "provenance")


def checked(values: dict[str, Any], what: str) -> dict[str, Any]:
    """The fields of a run's record that are known, each of its type; others are dropped.

    Args:
        values: what run.json holds.
        what: what to call it in an error.

    Raises:
        UnreadableError: a field is missing or of another type.
    """
    for name in _NEEDED:
        if name not in values:
            raise UnreadableError(f"{what} lacks the field {name!r}: ask for the pack again")
    for name, check in FIELDS.items():
        if name in values and not check(values[name]):
            raise UnreadableError(f"{what} holds {name} = {quoted(values[name])}, which cannot be")
    return {name: values[name] for name in FIELDS if name in values}


def graph_of(values: dict[str, Any], what: str) -> Graph:
    """The stages of a run under the digests of what it has read, without model or texts.

    Args:
        values: what run.json holds.
        what: what to call it in an error.

    Raises:
        UnreadableError: the record does not say what the run has read, or holds no study of today.
    """
    try:
        study = from_dict(values["study"])
    except SettingsError as error:
        raise UnreadableError(sentence(f"{what} holds a study of another version: {error}")) from error
    known = (values.get("provenance") or {}).get("inputs")
    known = known if isinstance(known, dict) and _digests(known) else {}
    inputs = from_plain(known)
    if inputs is None or not _complete(study, inputs):
        raise UnreadableError(
            f"{what} does not say what the run has read: run the study again, finished stages are kept"
        )
    return Graph(study, inputs)


def _digests(values: dict[str, Any]) -> bool:
    """Whether digests of what a run has read are texts, and texts by name."""
    return all(_named(_text)(one) if name in _DIGESTS else _text(one) for name, one in values.items())


def _complete(study: Study, inputs: Inputs) -> bool:
    """Whether every text of a study has a digest."""
    texts = set(study.evaluation.texts)
    return set(roles(study)) <= set(inputs.calibration) and texts <= set(inputs.evaluation)
