"""Answers: what takes how much room in a cache, which runs need it, and what can go?

A run needs the results whose keys stand in its record, also where that cannot be read otherwise; one that has
not come to its end needs those as well that it would go on with. What a record that is cut short would have
named nobody knows: while there is one, no result counts as free unless a person says so.
"""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from gprune.pipeline import runs as run_records
from gprune.system.errors import GpruneError, StoreError, UnreadableError
from gprune.system.files import remove
from gprune.pipeline.stages import KINDS, Graph, named
from gprune.pipeline.stages.inputs import from_plain
from gprune.store import DAMAGED, Store, explained, require_folder, states
from gprune.store.checksums import Stamp, stamp
from gprune.study import from_dict
from gprune.study.methods import register_recorded

_KEY = re.compile(r"[0-9a-f]{32}")
RUNS, EXPORTS = "runs", "exports"


@dataclass(frozen=True, slots=True, order=True)
class Stored:
    """A result in the cache, whole or not."""

    stage: str
    key: str
    size: int
    """bytes of its files"""
    begun: bool = False
    """whether it is not the result, but what that is gone on with"""

    @property
    def name(self) -> str:
        """Its place below the cache."""
        return f"{self.stage}/{self.key}{states.SUFFIX if self.begun else ''}"


@dataclass(frozen=True, slots=True)
class RunUsage:
    """The room that a run takes."""

    total: int
    """bytes of everything that it needs"""
    own: int
    """bytes of that which no other run needs: what comes free when it is removed"""


@dataclass(frozen=True, slots=True)
class Overview:
    """What a cache holds; all sizes in bytes."""

    kinds: dict[str, tuple[int, int]]
    """number and size of the results, by stage"""
    runs: dict[str, RunUsage]
    """the room of every run, the largest first"""
    others: dict[str, int]
    """size of what is no result, by folder; `unfinished` is what is gone on with"""
    unneeded: list[Stored]
    """results that no run needs"""

    @property
    def total(self) -> int:
        """Of everything."""
        return sum(size for _, size in self.kinds.values()) + sum(self.others.values())


def stored(store: Store) -> list[Stored]:
    """Every result of a cache, by stage and key; what is being written is left out."""
    return [
        Stored(kind, path.name, size_of(path))
        for kind in sorted(KINDS)
        for path in _listed(store.root / kind)
        if _KEY.fullmatch(path.name)
    ]


def present(store: Store) -> list[Stored]:
    """Every result, and what unfinished ones are gone on with."""
    places = [one for kind in sorted(KINDS) for one in states.listed(store, kind) if _KEY.fullmatch(one.key)]
    return stored(store) + [Stored(one.stage, one.key, _bytes(one.path), begun=True) for one in places]


def size_of(place: Path) -> int:
    """Bytes of a file, or of all files below a folder; what has just gone counts nothing."""
    if not place.is_dir() or place.is_symlink():
        return _bytes(place)
    return sum(_bytes(Path(folder, name)) for folder, _, files in os.walk(place) for name in files)


def needed_by(store: Store, found: Iterable[Stored] | None = None) -> dict[tuple[str, str], set[str]]:
    """Which runs need the results that are there, by stage and key; none where a result's set is empty.

    `found` is what is there, where that is known already: looking takes a walk through the whole cache.
    Raises StoreError where the record of a run is there, and the disk does not give it.
    """
    there = present(store) if found is None else found
    needed: dict[tuple[str, str], set[str]] = {(one.stage, one.key): set() for one in there}
    by_key: dict[str, list[tuple[str, str]]] = {}
    for stage, key in needed:
        by_key.setdefault(key, []).append((stage, key))
    for run, keys in _runs(store).items():
        for key in keys & by_key.keys():
            for place in by_key[key]:
                needed[place].add(run)
    return needed


def overview(store: Store) -> Overview:
    """What takes how much room in a cache, and for which runs; StoreError where a record cannot be read."""
    found = present(store)
    needed = needed_by(store, found)
    kinds: dict[str, tuple[int, int]] = {}
    for one in found:
        count, total = kinds.get(one.stage, (0, 0))
        if not one.begun:
            kinds[one.stage] = count + 1, total + one.size
    runs = {name: _usage(store, name, found, needed) for name in _runs(store)}
    largest = sorted(runs.items(), key=lambda item: -item[1].total)
    others = {path.name: size_of(path) for path in _listed(store.root) if path.name not in KINDS}
    unfinished = sum(one.size for one in found if one.begun)
    others |= {"unfinished": unfinished} if unfinished else {}
    return Overview(kinds, dict(largest), others, _free(found, needed))


def _usage(store: Store, run: str, found: list[Stored], needed: dict[tuple[str, str], set[str]]) -> RunUsage:
    files = sum(size_of(store.root / part / run) for part in (RUNS, EXPORTS))
    total = sum(one.size for one in found if run in needed[one.stage, one.key])
    own = sum(one.size for one in found if needed[one.stage, one.key] == {run})
    return RunUsage(files + total, files + own)


def unneeded(store: Store) -> list[Stored]:
    """The results that no run needs; StoreError where the record of a run cannot be read."""
    found = present(store)
    return _free(found, needed_by(store, found))


def _free(found: list[Stored], needed: dict[tuple[str, str], set[str]]) -> list[Stored]:
    """What no run needs; nobody goes on with what is finished."""
    ended = {(one.stage, one.key) for one in found if not one.begun}
    over = [one for one in found if one.begun and (one.stage, one.key) in ended]
    return [one for one in found if not needed[one.stage, one.key] or one in over]


def remove_unneeded(
    store: Store, among: Iterable[Stored] | None = None, *, unreadable_runs: bool = False
) -> list[Stored]:
    """Removes and gives results, all or some, that no run needs; what a process is at work on stays.

    While the record of a run cannot be read, nothing is removed: the run may need any of them. With
    `unreadable_runs` such a run needs what can still be made out in its record. Raises StoreError where the
    cache cannot be written, or the disk does not give the record of a run.
    """
    chosen = list(among) if among is not None else unneeded(store)
    removed = []
    for one in chosen:
        try:
            with store.lock(one.stage, one.key, _give_up):
                # a run that has begun meanwhile has said so in its record
                found = _records(store)
                if not unreadable_runs and any(record.fault for record in found.values()):
                    break
                wanted = any(one.key in record.keys for record in found.values())
                if wanted and not (one.begun and store.has(one.stage, one.key)):
                    continue
                _discard(store, one)
                removed.append(one)
        except _BusyError:
            continue
    return removed


def _discard(store: Store, one: Stored) -> None:
    if one.begun:
        states.StateFile(store, one.stage, one.key).remove()
    else:
        store.discard(one.stage, one.key)


def set_aside(store: Store) -> list[Path]:
    """What was set aside as damaged, by name; what else lies there, or where a link leads, is not ours."""
    place = store.root / DAMAGED
    listed = [] if place.is_symlink() else _listed(place)
    return [path for path in listed if path.name.partition("-")[0] in KINDS]


def remove_damaged(store: Store) -> list[tuple[str, int]]:
    """Removes the results that were set aside, and gives their names and sizes.

    Raises StoreError where the cache cannot be written.
    """
    gone = []
    for path in set_aside(store):
        size = size_of(path)
        with explained(store.root):
            remove(path)
        gone.append((path.name, size))
    return gone


class _BusyError(Exception):
    """Another process holds a result."""


def _give_up() -> None:
    raise _BusyError


@dataclass(frozen=True, slots=True)
class _Record:
    """What the record of a run says of results."""

    keys: frozenset[str]
    """those that the run needs"""
    fault: str = ""
    """why it cannot be read, so that there may be others; empty if it can"""


def unreadable(store: Store) -> dict[str, str]:
    """The runs whose record is there and cannot be read, by name: why, in a sentence that begins with its file.

    Raises StoreError where the disk does not give it.
    """
    return {name: one.fault for name, one in _records(store).items() if one.fault}


def _runs(store: Store) -> dict[str, frozenset[str]]:
    """The keys that every run needs, as far as its record says."""
    return {name: one.keys for name, one in _records(store).items()}


def _records(store: Store) -> dict[str, _Record]:
    require_folder(store.root)
    place, found = store.root / RUNS, {}
    if os.path.lexists(place) and not place.is_dir():
        raise StoreError(f"{place} is no folder, so no run can be read: put the folder of the runs there again")
    for folder in _listed(place):
        path = folder / run_records.RECORD
        try:
            found[folder.name] = _record(str(path), stamp(path))
        except (FileNotFoundError, NotADirectoryError):
            if folder.is_symlink() or path.is_symlink():
                # on a disk that is not there now
                found[folder.name] = _Record(frozenset(), f"{path} is a link that leads nowhere")
        except OSError as error:
            reason = error.strerror or str(error)
            raise StoreError(
                f"{path} cannot be read ({reason}): check the disk and its permissions"
            ) from error
    return found


@lru_cache(maxsize=4096)
def _record(path: str, _: Stamp) -> _Record:
    """What a record says; read again only when the file has changed."""
    try:
        values = run_records.load(Path(path))
    except UnreadableError as error:
        return _Record(_named_in(path), str(error))
    named_there = _named_in(path)
    return _Record(named_there if values.get("state") == "done" else named_there | _ahead(values))


def _named_in(path: str) -> frozenset[str]:
    """All that looks like a key in a record, whatever else it holds."""
    # a pipe would be waited for, and a folder is no record
    if not Path(path).is_file():
        return frozenset()
    with open(path, "rb") as file:
        # of a longer record nobody reads more
        text = file.read(run_records.MOST_BYTES)
    return frozenset(_KEY.findall(text.decode("utf-8", "replace")))


def _ahead(values: dict[str, Any]) -> frozenset[str]:
    """The keys of all that a run may still come to."""
    provenance = values.get("provenance")
    inputs = from_plain(provenance.get("inputs") if isinstance(provenance, dict) else None)
    if inputs is None:
        return frozenset()
    try:
        register_recorded(values)
        return frozenset(stage.key for stage in named(Graph(from_dict(values["study"]), inputs)).values())
    except (GpruneError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return frozenset()


def _listed(folder: Path) -> list[Path]:
    """What a folder holds, without what is hidden; nothing where it is missing."""
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _bytes(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0
