"""Disk use of a cache: which runs need which results, what can be removed, and whether results are intact.

A run needs the results whose keys its record lists, even if the rest of the record cannot be read. An unfinished run
also needs the checkpoint from which it resumes. As long as any record cannot be read, every result counts as needed.
"""

import contextlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from gprune import jobs
from gprune.pipeline import runs
from gprune.pipeline.runs.opened import recorded_graph
from gprune.pipeline.stages import KINDS, stages_by_name
from gprune.store import DAMAGED, Store, explain_errors, require_folder, store_error
from gprune.store.checksums import Stamp, stamp
from gprune.store.results import size_of, visible_entries
from gprune.system.errors import DamagedError, GpruneError, StoreError, UnreadableError
from gprune.system.files import Lock, discard, make_folder, remove

_KEY = re.compile(r"[0-9a-f]{32}")
_ENTRY = re.compile(r"([0-9a-f]{32})(\.[a-z]+)?")
"""key of a result, and the ending of a checkpoint file"""
_RUNS, _EXPORTS = "runs", "exports"
"""folders with one folder per run"""


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
        """Return the path below the cache."""
        return f"{self.kind}/{self.key}{self.suffix}"


@dataclass(frozen=True, slots=True)
class RunUsage:
    """Disk use of a run in bytes."""

    total: int
    """all results that it needs"""
    unshared: int
    """results that no other run needs, which are freed when the run is removed"""


@dataclass(frozen=True, slots=True)
class Overview:
    """The contents of a cache; sizes in bytes."""

    kinds: dict[str, tuple[int, int]]
    """number and size of the results, by kind"""
    runs: dict[str, RunUsage]
    """disk use of each run, by name, largest total first"""
    other_sizes: dict[str, int]
    """size of everything else, by name in the cache; all checkpoints have the name `unfinished`"""
    unneeded: list[CacheEntry]
    """results and checkpoints that no run needs"""

    @property
    def total(self) -> int:
        """Return the size of the whole cache in bytes."""
        return sum(size for _, size in self.kinds.values()) + sum(self.other_sizes.values())


def cache_entries(store: Store) -> list[CacheEntry]:
    """Return every result and checkpoint, sorted by kind and key, without files that are still being written."""
    require_folder(store.root)
    paths = [(kind, path) for kind in sorted(KINDS) for path in visible_entries(store.root / kind)]
    matches = [(kind, path, match) for kind, path in paths if (match := _ENTRY.fullmatch(path.name))]
    return [CacheEntry(kind, match[1], size_of(path), match[2] or "") for kind, path, match in matches]


def needed_by(store: Store, entries: Iterable[CacheEntry] | None = None) -> dict[tuple[str, str], set[str]]:
    """Return the names of the runs that need each result, by kind and key.

    `entries` are the results and checkpoints to look up, by default all of the cache.
    """
    run_keys = _read_run_keys(store)
    return {
        (entry.kind, entry.key): {run for run, (keys, _) in run_keys.items() if entry.key in keys}
        for entry in (cache_entries(store) if entries is None else entries)
    }


def overview(store: Store) -> Overview:
    """Return the sizes of a cache's contents, the disk use of every run, and the results that no run needs."""
    entries = cache_entries(store)
    needed_keys = needed_by(store, entries)
    kinds: dict[str, tuple[int, int]] = {}
    for entry in entries:
        if not entry.suffix:
            count, total = kinds.get(entry.kind, (0, 0))
            kinds[entry.kind] = count + 1, total + entry.size
    usage: dict[str, RunUsage] = {}
    for run in _read_run_keys(store):
        folders_size = sum(size_of(store.root / part / run) for part in (_RUNS, _EXPORTS))
        users = [(entry.size, needed_keys[entry.kind, entry.key]) for entry in entries]
        total = folders_size + sum(size for size, names in users if run in names)
        usage[run] = RunUsage(total, folders_size + sum(size for size, names in users if names == {run}))
    largest = dict(sorted(usage.items(), key=lambda item: -item[1].total))
    other_sizes = {path.name: size_of(path) for path in visible_entries(store.root) if path.name not in KINDS}
    unfinished = sum(entry.size for entry in entries if entry.suffix)
    other_sizes |= {"unfinished": unfinished} if unfinished else {}
    return Overview(kinds, largest, other_sizes, [entry for entry in entries if not needed_keys[entry.kind, entry.key]])


def remove_unneeded(store: Store, entries: Iterable[CacheEntry] | None = None) -> list[CacheEntry]:
    """Remove those of `entries`, by default all of the cache, that no run needs; return the removed entries.

    Nothing is removed if the record of a run cannot be read. Raises StoreError if the cache cannot be written.
    """
    removed_entries = []
    for entry in overview(store).unneeded if entries is None else entries:
        # read again, because a run that has started in the meantime lists its results in its record
        if any(fault or entry.key in keys for keys, fault in _read_run_keys(store).values()):
            continue
        with explain_errors(store.root):
            if entry.suffix:
                remove(store.root / entry.name)
            else:
                store.discard(entry.kind, entry.key)
        removed_entries.append(entry)
    return removed_entries


def quarantined_results(store: Store) -> list[Path]:
    """Return the paths of the quarantined (corrupt) results; links are not followed."""
    folder = store.root / DAMAGED
    paths = [] if folder.is_symlink() else visible_entries(folder)
    return [path for path in paths if path.name.partition("-")[0] in KINDS]


def unreadable_runs(store: Store) -> dict[str, str]:
    """Return the reason why a run's record cannot be read, by run. Each reason starts with the path of the file."""
    return {run: fault for run, (_, fault) in _read_run_keys(store).items() if fault}


def verify(store: Store, entries: list[CacheEntry], progress: Callable[[int, int, str], None]) -> dict[str, str]:
    """Compare results with their SHA-256 checksums, and quarantine the corrupt ones.

    Returns descriptions of the damage by the name of the entry. `progress` is called after every result with the number
    of checked results, the number of all, and the kind.
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
        progress(number, len(entries), entry.kind)
    return faults


def reason_to_keep(store: Store, run: str) -> str:
    """Return the reason why a run cannot be removed now, as one sentence; empty if it can be removed."""
    job = next((job for job in jobs.jobs(store.root) if job.active and job.run == run), None)
    if job is not None:
        use = "waits to compute it" if job.state == "queued" else "is at work on it"
        return (
            f"the run {run!r} cannot be deleted, the job {job.id} ({job.label}) {use}: cancel that job first "
            f"(`gprune jobs cancel {job.id}`, or on the page Runs & export)"
        )
    return _explain_busy(run) if runs.current_state(store.root, runs.read(store, run) or {}) == "running" else ""


def _explain_busy(run: str) -> str:
    return f"the run {run!r} is being computed: stop it first, then delete it"


def remove_run(store: Store, run: str) -> int:
    """Remove a run with the results that no other run needs; return the freed bytes.

    Raises StoreError if a process or a job uses the run, if there is no such run, or if the cache cannot be written.
    """
    folder, lock = store.folder(_RUNS, run), Lock(runs.lock_path(store.root, run))
    if not folder.exists():
        raise StoreError(f"there is no run {run!r} in {store.root} any more: it may have been deleted already")
    try:
        make_folder(store.root / "locks")
        # does not wait
        is_free = lock.acquire(0)
        reason = reason_to_keep(store, run) or ("" if is_free else _explain_busy(run))
        if reason:
            raise StoreError(reason)
        entries = cache_entries(store)
        needed_keys = needed_by(store, entries)
        unshared = [entry for entry in entries if needed_keys[entry.kind, entry.key] == {run}]
        freed = 0
        for path in (folder, store.folder(_EXPORTS, run)):
            if path.is_symlink():
                path.unlink()
            elif path.exists():
                freed += size_of(path)
                discard(path)
        return freed + sum(entry.size for entry in remove_unneeded(store, unshared))
    except OSError as error:
        raise store_error(error, store.root) from error
    finally:
        lock.release()


_RunKeys = tuple[frozenset[str], str]
"""result keys that a run needs, and the reason why its record cannot be read; the reason is empty if it can be read"""


def _read_run_keys(store: Store) -> dict[str, _RunKeys]:
    """Return the result keys of every run, by its name."""
    require_folder(store.root)
    keys = {}
    for folder in visible_entries(store.root / _RUNS):
        path = folder / runs.RECORD
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            keys[folder.name] = _read_keys(str(path), stamp(path))
    return keys


@lru_cache(maxsize=4096)
def _read_keys(path: str, _: Stamp) -> _RunKeys:
    # the stamp is part of the cache key, so a changed record is read again
    try:
        record = runs.load(Path(path))
    except UnreadableError as error:
        return _parse_keys(path), str(error)
    # an unfinished run also needs the results and checkpoints that its record does not list yet
    return _parse_keys(path) | (frozenset() if record.get("state") == "done" else _derive_planned_keys(record)), ""


def _parse_keys(path: str) -> frozenset[str]:
    """Return everything in a file that looks like a key, because a damaged record cannot be parsed."""
    try:
        return frozenset(_KEY.findall(Path(path).read_text(encoding="utf-8", errors="replace")))
    except OSError:
        return frozenset()


def _derive_planned_keys(record: dict[str, Any]) -> frozenset[str]:
    """Return the keys of all stages of a recorded study; empty if they cannot be derived from the record."""
    try:
        return frozenset(stage.key for stage in stages_by_name(recorded_graph(record, "the record")).values())
    except GpruneError:
        return frozenset()
