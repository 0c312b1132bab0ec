"""Lists of neurons under names: kept beside the runs, and taken elsewhere as a file.

    <cache>/neurons/<hash of the name>.json

A name is what people read and never a part of a path. A list names places, which any run may have or lack.
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

FORMAT, VERSION = "gprune-neurons", 1
LONGEST_NAME, MOST_LISTS, MOST_NEURONS = 60, 200, 20_000
_MOST = 2**24
FOLDER = "neurons"
Place = tuple[int, int]
"""layer and neuron, from 0"""


@dataclass(frozen=True, slots=True)
class NeuronList:
    """Neurons under a name."""

    name: str
    """what people call it"""
    neurons: tuple[Place, ...]
    """each once, in the order in which they were added"""


def save(root: str, chosen: NeuronList) -> None:
    """Keeps a list; one of the same name is replaced.

    Raises:
        SettingsError: the name is empty or too long, or there is too much.
        StoreError: the cache cannot be written.
    """
    chosen = NeuronList(_checked(chosen.name), tuple(dict.fromkeys(chosen.neurons)))
    path = _path(root, chosen.name)
    if len(chosen.neurons) > MOST_NEURONS:
        raise SettingsError(f"a list holds at most {MOST_NEURONS:,} neurons (got {len(chosen.neurons):,})")
    if not path.exists() and len(list(path.parent.glob("*.json"))) >= MOST_LISTS:
        raise SettingsError(f"{MOST_LISTS} lists are kept already: delete one first")
    try:
        make_folder(path.parent)
        write_json(path, _plain([chosen]))
    except OSError as error:
        raise explain(error, path.parent) from error


def delete(root: str, name: str) -> None:
    """Forgets a list, if it is there.

    Raises:
        StoreError: the cache cannot be written.
    """
    path = _path(root, name)
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise explain(error, path.parent) from error


def kept(root: str) -> tuple[list[NeuronList], list[str]]:
    """Every list that is kept, by name, and a sentence on each file that cannot be read."""
    found, faults = list[NeuronList](), list[str]()
    for path in sorted((Path(root) / FOLDER).glob("*.json")):
        try:
            found += read(untrusted.contents(path, "the file"))
        except (OSError, SettingsError, UnreadableError) as error:
            faults.append(f"{path.name}: {error}")
    return sorted(found, key=lambda one: one.name.casefold()), faults


def export(chosen: list[NeuronList]) -> bytes:
    """Lists as a file to take elsewhere."""
    return (json.dumps(_plain(chosen), ensure_ascii=False) + "\n").encode()


def read(raw: bytes) -> list[NeuronList]:
    """The lists of a file.

    Raises:
        SettingsError: it is not a file of lists, or one of them is not valid.
    """
    try:
        values = untrusted.json_value(raw, "it")
    except UnreadableError as error:
        raise SettingsError(
            f"the file is not JSON ({error}): choose a file that was exported here"
        ) from error
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise SettingsError(f"the file is not one of neurons: its `format` is not {FORMAT!r}")
    if values.get("version") != VERSION:
        shown = untrusted.quoted(values.get("version"))
        raise SettingsError(f"the file has version {shown} and {VERSION} is read here: export it again")
    entries = values.get("lists")
    if not isinstance(entries, list) or not entries or len(entries) > MOST_LISTS:
        raise SettingsError(f"the file has no entry `lists` of 1 to {MOST_LISTS} lists")
    return [_parsed(entry, number) for number, entry in enumerate(entries, start=1)]


def _parsed(entry: Any, number: int) -> NeuronList:
    where = f"list {number} of the file"
    neurons = entry.get("neurons") if isinstance(entry, dict) else None
    if not isinstance(neurons, list) or len(neurons) > MOST_NEURONS:
        raise SettingsError(f"{where} has no entry `neurons` of at most {MOST_NEURONS:,} pairs")
    for pair in neurons:
        if not _is_place(pair):
            shown = untrusted.quoted(pair)
            raise SettingsError(f"{where}: a neuron is a pair of layer and neuron, from 0 on (got {shown})")
    try:
        places = dict.fromkeys((pair[0], pair[1]) for pair in neurons)
        return NeuronList(_checked(entry.get("name")), tuple(places))
    except SettingsError as error:
        raise SettingsError(f"{where}: {error}") from error


def _is_place(pair: Any) -> bool:
    whole = isinstance(pair, list) and len(pair) == 2
    return whole and all(type(part) is int and 0 <= part < _MOST for part in pair)


def _checked(name: Any) -> str:
    cleaned = " ".join(name.split()) if isinstance(name, str) else ""
    if not cleaned or len(cleaned) > LONGEST_NAME or not cleaned.isprintable():
        shown = untrusted.quoted(name)
        raise SettingsError(f"a list needs a name of 1 to {LONGEST_NAME} letters (got {shown})")
    return cleaned


def _plain(chosen: list[NeuronList]) -> dict[str, Any]:
    lists = [{"name": one.name, "neurons": [list(place) for place in one.neurons]} for one in chosen]
    return {"format": FORMAT, "version": VERSION, "lists": lists}


def _path(root: str, name: str) -> Path:
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:24]
    return Path(root) / FOLDER / f"{digest}.json"
