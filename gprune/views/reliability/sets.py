"""Threshold sets under names: kept beside the runs, compared, and taken elsewhere as a file.

    <cache>/thresholds/<hash of the name>.json

A name is what people read and never a part of a path.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gprune import untrusted
from gprune.errors import SettingsError, UnreadableError
from gprune.files import make_folder, write_json
from gprune.store import explain
from gprune.study import ReliabilitySettings

FORMAT, VERSION = "gprune-thresholds", 1
LONGEST_NAME, MOST_SETS = 60, 200
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
    chosen = ThresholdSet(_checked(chosen.name), chosen.settings)
    path = _path(root, chosen.name)
    if not path.exists() and len(list(path.parent.glob("*.json"))) >= MOST_SETS:
        raise SettingsError(f"{MOST_SETS} threshold sets are kept already: delete one first")
    try:
        make_folder(path.parent)
        write_json(path, _plain([chosen]))
    except OSError as error:
        raise explain(error, path.parent) from error


def delete(root: str, name: str) -> None:
    """Forgets a set, if it is there.

    Raises:
        StoreError: the cache cannot be written.
    """
    path = _path(root, name)
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise explain(error, path.parent) from error


def kept(root: str) -> tuple[list[ThresholdSet], list[str]]:
    """Every set that is kept, by name, and a sentence on each file that cannot be read."""
    found, faults = list[ThresholdSet](), list[str]()
    for path in sorted((Path(root) / "thresholds").glob("*.json")):
        try:
            found += read(untrusted.contents(path, "the file"))
        except (OSError, SettingsError, UnreadableError) as error:
            faults.append(f"{path.name}: {error}")
    return sorted(found, key=lambda one: one.name.casefold()), faults


def export(chosen: list[ThresholdSet]) -> bytes:
    """Sets as a file to take elsewhere."""
    return (json.dumps(_plain(chosen), indent=1, ensure_ascii=False) + "\n").encode()


def read(raw: bytes) -> list[ThresholdSet]:
    """The sets of a file.

    Raises:
        SettingsError: it is not a file of threshold sets, or one of them is not valid.
    """
    try:
        # a number that is none is named with its field below
        values = untrusted.json_value(raw, "it", finite=False)
    except UnreadableError as error:
        raise SettingsError(
            f"the file is not JSON ({error}): choose a file that was exported here"
        ) from error
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise SettingsError(f"the file is not one of threshold sets: its `format` is not {FORMAT!r}")
    if values.get("version") != VERSION:
        shown = untrusted.quoted(values.get("version"))
        raise SettingsError(f"the file has version {shown} and {VERSION} is read here: export it again")
    entries = values.get("sets")
    if not isinstance(entries, list) or not entries or len(entries) > MOST_SETS:
        raise SettingsError(f"the file has no list `sets` of 1 to {MOST_SETS} threshold sets")
    return [_parsed(entry, number) for number, entry in enumerate(entries, start=1)]


def _parsed(entry: Any, number: int) -> ThresholdSet:
    where = f"set {number} of the file"
    if not isinstance(entry, dict):
        raise SettingsError(f"{where} is no object")
    unknown = set(entry) - {"name", *_FIELDS}
    missing = {"name", *_FIELDS} - set(entry)
    if unknown or missing:
        words = [f"lacks {', '.join(sorted(missing))}"] if missing else []
        words += [f"has unknown {untrusted.sentence(', '.join(sorted(unknown)), 120)}"] if unknown else []
        raise SettingsError(f"{where} {' and '.join(words)}: export it again")
    for field in _FIELDS[:2]:
        if isinstance(entry[field], bool) or not isinstance(entry[field], (int, float)):
            shown = untrusted.quoted(entry[field])
            raise SettingsError(f"{where}: {field} must be a number from 0 to 1 (got {shown})")
    try:
        settings = ReliabilitySettings(**{field: entry[field] for field in _FIELDS})
        return ThresholdSet(_checked(entry["name"]), settings)
    except (SettingsError, TypeError) as error:
        raise SettingsError(f"{where}: {error}") from error


def _checked(name: Any) -> str:
    cleaned = " ".join(name.split()) if isinstance(name, str) else ""
    if not cleaned or len(cleaned) > LONGEST_NAME or not cleaned.isprintable():
        shown = untrusted.quoted(name)
        raise SettingsError(f"a threshold set needs a name of 1 to {LONGEST_NAME} letters (got {shown})")
    return cleaned


def _plain(chosen: list[ThresholdSet]) -> dict[str, Any]:
    sets = [{"name": one.name} | {field: getattr(one.settings, field) for field in _FIELDS} for one in chosen]
    return {"format": FORMAT, "version": VERSION, "sets": sets}


def _path(root: str, name: str) -> Path:
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:24]
    return Path(root) / "thresholds" / f"{digest}.json"
