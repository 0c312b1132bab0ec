"""Lists of neurons under names: kept beside the runs, and taken elsewhere as a file.

    <cache>/neurons/<hash of the name>.json

A name is what people read and never a part of a path. A list names places, which any run may have or lack.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from gprune.store import named
from gprune.system import safe_parsing
from gprune.system.errors import SettingsError

FORMAT, VERSION = "gprune-neurons", 1
MOST_NEURONS = 20_000
_MOST = 2**24
FOLDER = "neurons"
_WHAT = "a list"
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
    chosen = NeuronList(named.cleaned(chosen.name, _WHAT), tuple(dict.fromkeys(chosen.neurons)))
    if len(chosen.neurons) > MOST_NEURONS:
        raise SettingsError(f"a list holds at most {MOST_NEURONS:,} neurons (got {len(chosen.neurons):,})")
    named.save(named.place(root, FOLDER, chosen.name), _plain([chosen]), "lists")


def delete(root: str, name: str) -> None:
    """Forgets a list, if it is there.

    Raises:
        StoreError: the cache cannot be written.
    """
    named.delete(named.place(root, FOLDER, name))


def kept(root: str) -> tuple[list[NeuronList], list[str]]:
    """Every list that is kept, by name, and a sentence on each file that cannot be read."""
    files, faults = named.kept(root, FOLDER, read)
    found = [one for _, lists in files for one in lists]
    return sorted(found, key=lambda one: one.name.casefold()), faults


def export(chosen: list[NeuronList]) -> bytes:
    """Lists as a file to take elsewhere."""
    return (json.dumps(_plain(chosen), ensure_ascii=False) + "\n").encode()


def read(raw: bytes) -> list[NeuronList]:
    """The lists of a file.

    Raises:
        SettingsError: it is not a file of lists, or one of them is not valid.
    """
    values = named.values_of(raw)
    named.require_form(values, FORMAT, VERSION, "neurons")
    entries = values.get("lists")
    if not isinstance(entries, list) or not entries or len(entries) > named.MOST:
        raise SettingsError(f"the file has no entry `lists` of 1 to {named.MOST} lists")
    return [_parsed(entry, number) for number, entry in enumerate(entries, start=1)]


def _parsed(entry: Any, number: int) -> NeuronList:
    where = f"list {number} of the file"
    neurons = entry.get("neurons") if isinstance(entry, dict) else None
    if not isinstance(neurons, list) or len(neurons) > MOST_NEURONS:
        raise SettingsError(f"{where} has no entry `neurons` of at most {MOST_NEURONS:,} pairs")
    for pair in neurons:
        if not _is_place(pair):
            shown = safe_parsing.quoted(pair)
            raise SettingsError(f"{where}: a neuron is a pair of layer and neuron, from 0 on (got {shown})")
    try:
        places = dict.fromkeys((pair[0], pair[1]) for pair in neurons)
        return NeuronList(named.cleaned(entry.get("name"), _WHAT), tuple(places))
    except SettingsError as error:
        raise SettingsError(f"{where}: {error}") from error


def _is_place(pair: Any) -> bool:
    whole = isinstance(pair, list) and len(pair) == 2
    return whole and all(type(part) is int and 0 <= part < _MOST for part in pair)


def _plain(chosen: list[NeuronList]) -> dict[str, Any]:
    lists = [{"name": one.name, "neurons": [list(place) for place in one.neurons]} for one in chosen]
    return {"format": FORMAT, "version": VERSION, "lists": lists}
