"""Whether a manifest and the headers of its arrays are those of a record, told from the record's class.

No array is read: names and types of the fields, number types and shapes, and the bytes that these take.
"""

import math
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import cache
from pathlib import Path
from typing import Any

from gprune.records.base import axes_of, misfit
from gprune.store.array_files import file_name, header


@cache
def plain_fields(kind: type) -> dict[str, Any]:
    """The type of every field of a record that is no array."""
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind) if field.name not in axes_of(kind)}


def default_values(kind: type) -> dict[str, Any]:
    """Return the fields of a record that have a default, with it."""
    known = {field.name: field for field in fields(kind)}
    plain = {name: field.default for name, field in known.items() if field.default is not MISSING}
    return plain | {name: each.default_factory() for name, each in known.items() if each.default_factory is not MISSING}


def record_fault(folder: Path, manifest: Mapping[str, Any], kind: type) -> str:
    """What keeps a folder from holding a record of some kind, as the end of a sentence; empty if nothing."""
    if manifest.get("record") != kind.__name__:
        return f"it is no {kind.__name__}"
    values, wanted = manifest.get("values"), plain_fields(kind)
    # a field that came later has a default
    if isinstance(values, dict):
        values = default_values(kind) | values
    if not isinstance(values, dict) or values.keys() != wanted.keys():
        return f"its values are not those of a {kind.__name__}"
    wrong = next((name for name, hint in wanted.items() if not _is_of(values[name], hint)), None)
    if wrong is not None:
        return f"its value {wrong} is of another type"
    axes = axes_of(kind)
    if manifest["files"].keys() != {file_name(name) for name in axes}:
        return f"its arrays are not those of a {kind.__name__}"
    shapes = {}
    for name, one in axes.items():
        found = header(folder / file_name(name))
        if found is None or found[1].kind not in one.kinds:
            return f"{file_name(name)} is no array of such numbers"
        shapes[name] = found[0]
    return misfit(kind, shapes)


def details_fault(manifest: Mapping[str, Any]) -> str:
    """What is wrong with the entries on how a result was made, which the pipeline reads; empty if nothing."""
    fits = (
        _is_cost(manifest)
        and _is_own(manifest.get("resumed"))
        and all(_are_texts(manifest.get(name)) for name in ("left_out", "notices"))
    )
    return "" if fits else "it does not say how it was made"


def _is_cost(value: Mapping[str, Any]) -> bool:
    """Whether seconds and passes are amounts, or absent."""
    seconds, passes = value.get("seconds"), value.get("passes")
    counted = passes is None or (isinstance(passes, dict) and all(map(_is_amount, passes.values())))
    return counted and (seconds is None or _is_amount(seconds))


def _is_own(value: object) -> bool:
    """Whether an entry tells what the process has done that ended a stage which another had begun."""
    if value is None:
        return True
    if not isinstance(value, dict) or value.keys() != {"step", "seconds", "passes"}:
        return False
    return _is_amount(value["step"]) and _is_amount(value["seconds"]) and _is_cost(value)


def _are_texts(value: object) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(one, str) for one in value))


def _is_amount(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and value >= 0


def plain_values(kind: type, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a record that are no arrays, from a manifest without a fault."""
    values = default_values(kind) | manifest["values"]
    return {
        name: tuple(values[name]) if typing.get_origin(hint) is tuple else values[name]
        for name, hint in plain_fields(kind).items()
    }


def _is_of(value: Any, hint: Any) -> bool:
    """Whether a value as JSON gives it is of a field's type."""
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if typing.get_origin(hint) is tuple:
        inner = typing.get_args(hint)[0]
        return isinstance(value, list) and all(_is_of(one, inner) for one in value)
    plain = typing.get_origin(hint) or hint
    return isinstance(value, plain)
