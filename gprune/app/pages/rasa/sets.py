"""Threshold sets under names: kept beside the runs, compared, and taken elsewhere as a file.

    <cache>/thresholds/<hash of the name>.json

A name is what people read and never a part of a path.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from gprune.store import named
from gprune.study import ReliabilitySettings
from gprune.system import safe_parsing
from gprune.system.errors import SettingsError

FORMAT, VERSION = "gprune-thresholds", 1
FOLDER = "thresholds"
_WHAT = "a threshold set"
_FIELDS = ("drift_quantile", "score_quantile", "score_scale", "selection")


@dataclass(frozen=True, slots=True)
class ThresholdSet:
    """A rule of RASA under a name."""

    name: str
    """what people call it"""
    settings: ReliabilitySettings
    """the rule"""


def save(root: str, chosen: ThresholdSet) -> None:
    """Keeps a set; one of the same name is replaced.

    Raises:
        SettingsError: the name is empty or too long, or there are too many sets.
        StoreError: the cache cannot be written.
    """
    chosen = ThresholdSet(named.cleaned(chosen.name, _WHAT), chosen.settings)
    named.save(named.place(root, FOLDER, chosen.name), _plain([chosen]), "threshold sets")


def delete(root: str, name: str) -> None:
    """Forgets a set, if it is there.

    Raises:
        StoreError: the cache cannot be written.
    """
    named.delete(named.place(root, FOLDER, name))


def kept(root: str) -> tuple[list[ThresholdSet], list[str]]:
    """Every set that is kept, by name, and a sentence on each file that cannot be read."""
    files, faults = named.kept(root, FOLDER, read)
    found = [one for _, sets in files for one in sets]
    return sorted(found, key=lambda one: one.name.casefold()), faults


def export(chosen: list[ThresholdSet]) -> bytes:
    """Sets as a file to take elsewhere."""
    return (json.dumps(_plain(chosen), indent=1, ensure_ascii=False) + "\n").encode()


def read(raw: bytes) -> list[ThresholdSet]:
    """The sets of a file.

    Raises:
        SettingsError: it is not a file of threshold sets, or one of them is not valid.
    """
    # a number that is none is named with its field below
    values = named.values_of(raw, finite=False)
    named.require_form(values, FORMAT, VERSION, "threshold sets")
    entries = values.get("sets")
    if not isinstance(entries, list) or not entries or len(entries) > named.MOST:
        raise SettingsError(f"the file has no list `sets` of 1 to {named.MOST} threshold sets")
    return [_parsed(entry, number) for number, entry in enumerate(entries, start=1)]


def _parsed(entry: Any, number: int) -> ThresholdSet:
    where = f"set {number} of the file"
    if not isinstance(entry, dict):
        raise SettingsError(f"{where} is no object")
    unknown = set(entry) - {"name", *_FIELDS}
    missing = {"name", *_FIELDS} - set(entry)
    if unknown or missing:
        words = [f"lacks {', '.join(sorted(missing))}"] if missing else []
        words += [f"has unknown {safe_parsing.sentence(', '.join(sorted(unknown)), 120)}"] if unknown else []
        raise SettingsError(f"{where} {' and '.join(words)}: export it again")
    for field in _FIELDS[:2]:
        if isinstance(entry[field], bool) or not isinstance(entry[field], (int, float)):
            shown = safe_parsing.quoted(entry[field])
            raise SettingsError(f"{where}: {field} must be a number from 0 to 1 (got {shown})")
    try:
        settings = ReliabilitySettings(**{field: entry[field] for field in _FIELDS})
        return ThresholdSet(named.cleaned(entry["name"], _WHAT), settings)
    except (SettingsError, TypeError) as error:
        raise SettingsError(f"{where}: {error}") from error


def _plain(chosen: list[ThresholdSet]) -> dict[str, Any]:
    sets = [{"name": one.name} | {field: getattr(one.settings, field) for field in _FIELDS} for one in chosen]
    return {"format": FORMAT, "version": VERSION, "sets": sets}
