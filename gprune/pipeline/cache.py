"""Disk use of a cache: which runs need which results, what can be removed, and whether results are intact.

A run needs the results whose keys its record names, also where the record cannot be read otherwise; a run that
has not finished also needs what it resumes from. While a record cannot be read, nothing counts as unneeded.
"""

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from gprune.jobs.queue import using
from gprune.pipeline import runs
from gprune.pipeline.runs.cached import recorded_graph
from gprune.pipeline.stages import KINDS, named
from gprune.store import DAMAGED, Store, explain, explained, require_folder
from gprune.store.checksums import Stamp, stamp
from gprune.system.errors import DamagedError, GpruneError, StoreError, UnreadableError
from gprune.system.files import discard, remove

_KEY = re.compile(r"[0-9a-f]{32}")
_ENTRY = re.compile(r"([0-9a-f]{32})(\.[a-z]+)?")
_RUNS, _EXPORTS = "runs", "exports"
_JOB_USES = {"queued": "waits to compute it", "interrupted": "was interrupted and can be resumed"}


@dataclass(frozen=True, slots=True, order=True)
class CacheEntry:
    """A result, or the checkpoint of an unfinished stage."""

    kind: str
    key: str
    size: int
    """bytes of its files"""
    suffix: str = ""
    """ending of a checkpoint file; empty for a result"""

    @property
    def name(self) -> str:
        """Path below the cache."""
        return f"{self.kind}/{self.key}{self.suffix}"


@dataclass(frozen=True, slots=True)
class RunUsage:
    """Disk use of a run in bytes."""

    total: int
    """everything that it needs"""
    own: int
    """what no other run needs: what is freed when the run is removed"""


@dataclass(frozen=True, slots=True)
class Overview:
    """What a cache holds; sizes in bytes."""

    kinds: dict[str, tuple[int, int]]
    """number and size of the results, by kind"""
    runs: dict[str, RunUsage]
    """the largest first"""
    others: dict[str, int]
    """size of everything that is no result, by folder; `unfinished` is that of checkpoints"""
    unneeded: list[CacheEntry]
    """what no run needs"""

    @property
    def total(self) -> int:
        """Bytes of everything."""
        return sum(size for _, size in self.kinds.values()) + sum(self.others.values())


def cache_entries(store: Store) -> list[CacheEntry]:
    """Return every result and checkpoint, by kind and key; files that are being written are left out."""
    require_folder(store.root)
    paths = [(kind, path) for kind in sorted(KINDS) for path in _visible(store.root / kind)]
    matches = [(kind, path, match) for kind, path in paths if (match := _ENTRY.fullmatch(path.name))]
    return [CacheEntry(kind, match[1], size_of(path), match[2] or "") for kind, path, match in matches]


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files below a folder."""
    if not path.is_dir() or path.is_symlink():
        return _file_size(path)
    return sum(_file_size(Path(folder, name)) for folder, _, files in os.walk(path) for name in files)


def needed_by(store: Store, entries: Iterable[CacheEntry] | None = None) -> dict[tuple[str, str], set[str]]:
    """Return the runs that need each result, by kind and key; `entries` as `cache_entries` gives them."""
    present = cache_entries(store) if entries is None else entries
    needed: dict[tuple[str, str], set[str]] = {(entry.kind, entry.key): set() for entry in present}
    for run, (keys, _) in _run_keys(store).items():
        for (_, key), names in needed.items():
            if key in keys:
                names.add(run)
    return needed


def overview(store: Store) -> Overview:
    """Measure what a cache holds, and for which runs."""
    entries = cache_entries(store)
    needed = needed_by(store, entries)
    kinds: dict[str, tuple[int, int]] = {}
    for entry in entries:
        if not entry.suffix:
            count, total = kinds.get(entry.kind, (0, 0))
            kinds[entry.kind] = count + 1, total + entry.size
    usage: dict[str, RunUsage] = {}
    for run in _run_keys(store):
        files = sum(size_of(store.root / part / run) for part in (_RUNS, _EXPORTS))
        users = [(entry.size, needed[entry.kind, entry.key]) for entry in entries]
        total = files + sum(size for size, names in users if run in names)
        usage[run] = RunUsage(total, files + sum(size for size, names in users if names == {run}))
    largest = dict(sorted(usage.items(), key=lambda item: -item[1].total))
    others = {path.name: size_of(path) for path in _visible(store.root) if path.name not in KINDS}
    unfinished = sum(entry.size for entry in entries if entry.suffix)
    others |= {"unfinished": unfinished} if unfinished else {}
    return Overview(kinds, largest, others, [entry for entry in entries if not needed[entry.kind, entry.key]])


def unneeded(store: Store) -> list[CacheEntry]:
    """Return results and checkpoints that no run needs."""
    return overview(store).unneeded


def remove_unneeded(store: Store, entries: Iterable[CacheEntry] | None = None) -> list[CacheEntry]:
    """Remove those of some entries, by default of all, that no run needs, and return them.

    What another process computes stays; nothing is removed while the record of a run cannot be read. Raises
    StoreError where the cache cannot be written.
    """
    removed = []
    for entry in list(unneeded(store) if entries is None else entries):
        try:
            with store.lock(entry.kind, entry.key, _raise_busy):
                # a run that has started meanwhile names what it needs in its record
                if any(fault or entry.key in keys for keys, fault in _run_keys(store).values()):
                    continue
                with explained(store.root):
                    if entry.suffix:
                        remove(store.root / entry.name)
                    else:
                        store.discard(entry.kind, entry.key)
                removed.append(entry)
        except _BusyError:
            continue
    return removed


def quarantined(store: Store) -> list[Path]:
    """Return corrupt results that were moved aside; links are not followed."""
    folder = store.root / DAMAGED
    paths = [] if folder.is_symlink() else _visible(folder)
    return [path for path in paths if path.name.partition("-")[0] in KINDS]


def unreadable_runs(store: Store) -> dict[str, str]:
    """Return why the record of a run cannot be read, by run; the sentence begins with its file."""
    return {run: fault for run, (_, fault) in _run_keys(store).items() if fault}


def verify(store: Store, entries: list[CacheEntry], progress: Callable[[CacheEntry, int, int], None]) -> dict[str, str]:
    """Compare results with their SHA-256, and move corrupt ones aside.

    Returns what is wrong, by the name of an entry. `progress` receives an entry, the number checked, and the
    number in all.
    """
    faults = dict[str, str]()
    for number, entry in enumerate(entries, start=1):
        record = KINDS[entry.kind].record
        try:
            store.check(entry.kind, entry.key, record)
        except DamagedError:
            with store.lock(entry.kind, entry.key):
                faults[entry.name] = store.set_aside(entry.kind, entry.key, record)
        except StoreError as error:
            faults[entry.name] = str(error)
        progress(entry, number, len(entries))
    return faults


def reason_to_keep(store: Store, run: str) -> str:
    """Return why a run cannot be removed now, in one sentence; empty where it can."""
    state = runs.standing(runs.read(store, run) or {})
    job = using(store.root, run, done=state == "done")
    if job is not None:
        return (
            f"the run {run!r} cannot be deleted, the job {job.id} ({job.label}) "
            f"{_JOB_USES.get(job.state, 'is at work on it')}: cancel that job first (`gprune jobs cancel {job.id}`, "
            "or on the page Runs & export)"
        )
    return _busy(run) if state == "running" else ""


def _busy(run: str) -> str:
    return f"the run {run!r} is being computed: stop it first, then delete it"


def remove_run(store: Store, run: str) -> int:
    """Remove a run and the results that no other run needs; return the bytes that this frees.

    Raises StoreError where a process or a job uses the run, there is no such run, or the cache cannot be
    written.
    """
    folder, ownership = store.folder(_RUNS, run), runs.Ownership(store, run)
    if not folder.exists():
        raise StoreError(f"there is no run {run!r} in {store.root} any more: it may have been deleted already")
    try:
        is_free = ownership.take() or not ownership.writable
        reason = reason_to_keep(store, run) or ("" if is_free else _busy(run))
        if reason:
            raise StoreError(reason)
        if not ownership.held:
            raise StoreError(f"the cache {store.root} cannot be written, so nothing can be deleted from it")
        entries = cache_entries(store)
        needed = needed_by(store, entries)
        own = [entry for entry in entries if needed[entry.kind, entry.key] == {run}]
        freed = 0
        for path in (folder, store.folder(_EXPORTS, run)):
            if path.is_symlink():
                path.unlink()
            elif path.exists():
                freed += size_of(path)
                discard(path)
        return freed + sum(entry.size for entry in remove_unneeded(store, own))
    except OSError as error:
        raise explain(error, store.root) from error
    finally:
        ownership.give_up()


class _BusyError(Exception):
    """Another process holds a result."""


def _raise_busy() -> None:
    raise _BusyError


_RunKeys = tuple[frozenset[str], str]
"""keys that a run needs, and why its record cannot be read"""


def _run_keys(store: Store) -> dict[str, _RunKeys]:
    require_folder(store.root)
    keys = {}
    for folder in _visible(store.root / _RUNS):
        path = folder / runs.RECORD
        if os.path.lexists(path):
            try:
                changed = stamp(path)
            except OSError:
                changed = (0, 0, 0)
            keys[folder.name] = _read_keys(str(path), changed)
    return keys


@lru_cache(maxsize=4096)
def _read_keys(path: str, changed: Stamp) -> _RunKeys:
    try:
        record = runs.load(Path(path))
    except UnreadableError as error:
        return _keys_in(path), str(error)
    return _keys_in(path) | (frozenset() if record.get("state") == "done" else _planned_keys(record)), ""


def _keys_in(path: str) -> frozenset[str]:
    # a pipe would block
    if not Path(path).is_file():
        return frozenset()
    with open(path, "rb") as file:
        text = file.read(runs.MOST_BYTES)
    return frozenset(_KEY.findall(text.decode("utf-8", "replace")))


def _planned_keys(record: dict[str, Any]) -> frozenset[str]:
    try:
        return frozenset(stage.key for stage in named(recorded_graph(record, "the record")).values())
    except GpruneError:
        return frozenset()


def _visible(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _file_size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0
