"""The cache folder, error messages of the operating system about it, and the store of results by stage and key."""

import contextlib
import errno
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import numpy as np

from gprune.records.base import Axes, axes_of
from gprune.store import checksums
from gprune.system import installation, safe_parsing
from gprune.system.errors import DamagedError, NumericsError, StoreError
from gprune.system.files import Lock, discard, is_temporary_name, make_folder, remove, sync, temporary_path

CACHE_NAME = "gprune"
"""name of an installed package's cache in the user's cache folder"""
Record = TypeVar("Record")
DAMAGED = "damaged"
"""folder of the quarantined results"""
LARGEST_IN_MEMORY = 2**20
"""largest file in bytes that is read into memory; larger arrays are read-only memory maps"""
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,120}")
_STALE_SECONDS = 24 * 3600
"""age from which a temporary file counts as left by a killed process"""
# NumPy parses a header as Python source, which can fail in CPython 3.11 if two threads do it at once
_PARSING = threading.Lock()


def default_cache() -> Path:
    """Return the cache folder: GPRUNE_CACHE, else `cache/` in a checkout, else a folder in the user's cache folder.

    Raises StoreError if GPRUNE_CACHE is not a valid folder name, or there is no home folder.
    """
    chosen = os.environ.get("GPRUNE_CACHE")
    with safe_parsing.reraise_as(StoreError):
        if chosen:
            return safe_parsing.path(chosen, "GPRUNE_CACHE").resolve()
        return _user_cache() if installation.INSTALLED else installation.APP_FOLDER / "cache"


def _user_cache() -> Path:
    # the XDG Base Directory Specification only allows absolute paths
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    folder = chosen if chosen.startswith("/") else "~/.cache"
    return (safe_parsing.path(folder, "GPRUNE_CACHE is not set, and the user's cache folder") / CACHE_NAME).resolve()


def require_folder(root: Path) -> None:
    """Raise StoreError if the cache or one of its parents exists and is not a folder."""
    existing = next((parent for parent in (root, *root.parents) if os.path.lexists(parent)), root.parent)
    if not existing.is_dir():
        raise StoreError(
            f"the cache {root} cannot be a folder, because {existing} is a file: set GPRUNE_CACHE to another "
            "folder, or move that file"
        )


def is_full(error: OSError) -> bool:
    """Return True if an error means a full disk.

    Numpy reports an incomplete write without the system's error number.
    """
    is_incomplete_write = error.errno is None and "requested and" in str(error) and "written" in str(error)
    return is_incomplete_write or error.errno in (errno.ENOSPC, errno.EDQUOT)


def store_error(error: OSError, folder: Path) -> StoreError:
    """Return the StoreError for an operating system error on the cache, with one sentence that ends with the remedy."""
    remedy = "or set GPRUNE_CACHE to another folder"
    if is_full(error):
        disk = f"the disk that holds the cache {folder}, or your quota on it,"
        return StoreError(f"{disk} is full: free some space, {remedy}")
    if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
        return StoreError(f"the cache {folder} cannot be written (read-only): change its permissions, {remedy}")
    return StoreError(f"the cache {folder} cannot be used ({error}): set GPRUNE_CACHE to another folder")


@contextlib.contextmanager
def explain_errors(folder: Path) -> Iterator[None]:
    """Turn an operating system error of the block into the StoreError of `store_error`."""
    try:
        yield
    except OSError as error:
        raise store_error(error, folder) from error


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files below a folder."""
    if not path.is_dir() or path.is_symlink():
        return _file_size(path)
    return sum(_file_size(Path(folder, name)) for folder, _, files in os.walk(path) for name in files)


def _file_size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def visible_entries(folder: Path) -> list[Path]:
    """Return the sorted contents of a folder without hidden names; empty if there is no such folder."""
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []


class Store:
    """Results by stage and key under one folder."""

    def __init__(self, root: Path | None = None) -> None:
        """Open a cache, by default `default_cache()`, without creating anything."""
        self.root = (root or default_cache()).resolve()

    @property
    def texts(self) -> Path:
        """Folder of texts from the hub."""
        return self.root / "texts"

    @property
    def digests(self) -> Path:
        """Folder of the digests of models and texts, which are stored outside the cache."""
        return self.root / checksums.DIGEST_FOLDER

    def folder(self, stage: str, key: str) -> Path:
        """Return the folder of a result. Raises StoreError for a name that would lead out of the cache."""
        for name in (stage, key):
            if not _NAME.fullmatch(name):
                raise StoreError(f"{name!r} is not a name of a stage or result")
        return self.root / stage / key

    def manifest(self, stage: str, key: str, record_type: type | None = None) -> dict[str, Any] | None:
        """Return the `meta.json` of a result; None if it is absent, damaged or of another class than `record_type`.

        Without `record_type`, the result may be of any class or a folder.
        """
        try:
            return dict(self._require_manifest(stage, key, record_type))
        except StoreError:
            return None

    def has(self, stage: str, key: str, record_type: type | None = None) -> bool:
        """Return True if the result is on disk. Its arrays are not read; for `record_type` see `manifest`."""
        return self.manifest(stage, key, record_type) is not None

    def get(self, stage: str, key: str, record_type: type[Record]) -> Record:
        """Return the record of a result, with read-only arrays.

        Raises DamagedError if a file differs from its checksum, StoreError if the result is absent or cannot be read.
        """
        folder = self.check(stage, key, record_type)
        try:
            values = self._require_manifest(stage, key, record_type)[checksums.VALUES]
            values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
            paths = {name: folder / f"{name}.npy" for name in axes_of(record_type)}
            arrays = {
                name: _read_array(paths[name], axes)
                for name, axes in axes_of(record_type).items()
                if not axes.optional or paths[name].exists()
            }
            return record_type(**values, **arrays)
        except OSError as error:
            raise _read_error(folder, error) from error
        except (KeyError, ValueError, TypeError, NumericsError) as error:
            raise DamagedError(stage, key, str(error)) from error

    def check(self, stage: str, key: str, record_type: type | None = None) -> Path:
        """Return the folder of a result after comparing every file with its checksum, once per process.

        Raises DamagedError if a file differs from its checksum, StoreError if the result is absent or cannot be read.
        """
        folder, meta = self.folder(stage, key), self._require_manifest(stage, key, record_type)
        try:
            checksums.require_unchanged(folder, meta)
        except OSError as error:
            raise _read_error(folder, error) from error
        except ValueError as error:
            raise DamagedError(stage, key, str(error)) from error
        return folder

    def stamp(self, stage: str, key: str) -> str:
        """Return a string that changes whenever a file of a result does; empty if there is no such result."""
        try:
            with os.scandir(self.folder(stage, key)) as entries:
                return repr(sorted((entry.name, *checksums.stamp_of(entry.stat())) for entry in entries))
        except OSError:
            return ""

    def _require_manifest(self, stage: str, key: str, record_type: type | None) -> dict[str, Any]:
        """Return the `meta.json` of a result. Raises StoreError if it is absent, DamagedError if invalid."""
        folder = self.folder(stage, key)
        try:
            meta = checksums.read_manifest(folder)
        except OSError as error:
            raise _read_error(folder, error) from error
        except ValueError as error:
            raise DamagedError(stage, key, str(error)) from error
        if meta is None:
            raise StoreError(f"no complete result at {folder}: run the study again, finished stages are kept")
        if record_type is not None and meta.get("record") != record_type.__name__:
            raise DamagedError(stage, key, f"it is not a {record_type.__name__}")
        return meta

    def set_aside(self, stage: str, key: str, record_type: type | None = None) -> str:
        """Move a damaged result to the folder `damaged`, and return a sentence about the move.

        The sentence is empty if the result is absent or not damaged. The caller holds the lock of the result. Raises
        StoreError if the cache cannot be written, or the result cannot be read.
        """
        if not os.path.lexists(self.folder(stage, key)):
            return ""
        try:
            self.check(stage, key, record_type)
        except DamagedError as error:
            with explain_errors(self.root):
                target = self._move_aside(stage, key)
            return f"the stored result was damaged ({error.fault}) and was moved to {target}"
        return ""

    def _move_aside(self, stage: str, key: str) -> Path:
        target = self.root / DAMAGED / f"{stage}-{key}-{uuid4().hex[:8]}"
        make_folder(target.parent)
        self.folder(stage, key).replace(target)
        return target

    def put(self, stage: str, key: str, record: object, details: dict[str, Any] | None = None) -> None:
        """Write a record; an intact existing result is not replaced.

        `details` are stored with the record: seconds, passes, versions. Raises StoreError if the disk is full or the
        cache is read-only.
        """

        def write(folder: Path) -> dict[str, Any]:
            values: dict[str, Any] = {}
            for field in fields(record):  # type: ignore[arg-type]
                value = getattr(record, field.name)
                if isinstance(value, np.ndarray):
                    np.save(folder / f"{field.name}.npy", value, allow_pickle=False)
                else:
                    values[field.name] = value
            return {"record": type(record).__name__, checksums.VALUES: values}

        self.put_folder(stage, key, write, details)

    def adopt(self, staged: "Store", results: Sequence[tuple[str, str]]) -> int:
        """Move results from another cache to this one if they are missing, and return the number of moved results.

        `staged` is the other cache, whose results are checked already; `results` are pairs of stage and key.
        """
        count = 0
        for stage, key in results:
            with self.lock(stage, key):
                if not self.has(stage, key):
                    # if a damaged result is in the way, it is moved
                    self.set_aside(stage, key)
                    make_folder(self.folder(stage, key).parent)
                    os.replace(staged.folder(stage, key), self.folder(stage, key))
                    count += 1
        return count

    def discard(self, stage: str, key: str) -> None:
        """Remove a result if it exists, in one step, so that no reader finds a part of it."""
        with explain_errors(self.root), contextlib.suppress(FileNotFoundError):
            discard(self.folder(stage, key))

    def put_folder(
        self, stage: str, key: str, write: Callable[[Path], dict[str, Any]], details: dict[str, Any] | None = None
    ) -> Path:
        """Let `write` fill a temporary folder, add a `meta.json`, rename the folder, and return its final path.

        `write` returns entries of `meta.json`, and `details` are additional entries. Raises StoreError if the disk is
        full or the cache is read-only.
        """
        final = self.folder(stage, key)
        temporary = temporary_path(final)
        try:
            make_folder(temporary)
            entries = write(temporary)
            checksums.write_manifest(temporary, {**(details or {}), **entries})
            self.set_aside(stage, key)
            self._rename(temporary, final)
        except OSError as error:
            raise store_error(error, self.root) from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return final

    def _rename(self, temporary: Path, final: Path) -> None:
        try:
            temporary.replace(final)
            sync(final.parent)
        except OSError as error:
            # a result that another process has written under this key has the same content
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise

    @contextlib.contextmanager
    def lock(self, stage: str, key: str, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
        """Hold the lock of a result, so that only one process computes it; a killed process releases the lock.

        `on_wait` is called about once a second while another process holds the lock, and may raise to stop waiting.
        Raises StoreError if the cache cannot be written.
        """
        path = self.root / "locks" / f"{self.folder(stage, key).parent.name}-{key}.lock"
        with explain_errors(self.root):
            make_folder(path.parent)
            lock = Lock(path)
            while not lock.acquire(1.0):
                if on_wait:
                    on_wait()
        try:
            yield
        finally:
            lock.release()

    def sweep(self) -> None:
        """Remove temporary files that killed processes left more than a day ago.

        The folder of a cache may have other files too. Only names that this program creates are removed, and no link is
        followed.
        """
        for path in (*self.root.glob("*/.*"), *self.root.glob("*/*/.*")):
            if is_temporary_name(path.name) and path.parent.resolve() == path.parent:
                with contextlib.suppress(OSError):
                    if time.time() - path.lstat().st_mtime > _STALE_SECONDS:
                        remove(path)


def _read_array(path: Path, axes: Axes) -> np.ndarray[Any, Any]:
    """Return an array of a record. Raises ValueError if its type of numbers is not that of its field."""
    with _PARSING:
        mode: Any = "r" if path.stat().st_size > LARGEST_IN_MEMORY else None
        array: np.ndarray[Any, Any] = np.load(path, mmap_mode=mode, allow_pickle=False)
    if array.dtype.kind not in axes.kinds:
        raise ValueError(f"{path.name} is not an array of the expected type")
    return array


def _read_error(folder: Path, error: OSError) -> StoreError:
    reason = error.strerror or str(error)
    return StoreError(f"the result in {folder} cannot be read ({reason}): check the disk and its permissions")
