"""Where results are kept: one folder a result, written whole or not at all.

    <cache>/<stage>/<key>/{FIELD.npy ..., manifest.json}

The key says everything a result depends on (gprune.stages), so a result never goes stale; it is written to
a temporary folder, its manifest last, and moved into place in one step, so that it is either whole or
absent. Arrays are read back as read-only memory maps. Nothing is pickled.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import time
import typing
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import filelock
import numpy as np

from gprune.errors import StoreError
from gprune.files import beside, write_json

Record = TypeVar("Record")
_NAME = re.compile(r"^[a-z0-9][a-z0-9_.-]{0,120}$")
_STALE_SECONDS = 24 * 3600


def default_cache() -> Path:
    """The cache folder: GPRUNE_CACHE, or `cache/` in the project."""
    chosen = os.environ.get("GPRUNE_CACHE")
    return Path(chosen).expanduser().resolve() if chosen else Path(__file__).resolve().parents[1] / "cache"


def is_full(error: OSError) -> bool:
    """Whether an error means a full disk; numpy reports a short write without the system's error number."""
    short = error.errno is None and "requested and" in str(error) and "written" in str(error)
    return short or error.errno in (errno.ENOSPC, errno.EDQUOT)


def explain(error: OSError, folder: Path) -> StoreError:
    """Turns an operating system error about the cache into one sentence with the remedy."""
    remedy = "or set GPRUNE_CACHE to another folder"
    if is_full(error):
        return StoreError(f"the disk that holds the cache {folder} is full: free some space, {remedy}")
    if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
        return StoreError(
            f"the cache {folder} cannot be written (read-only): change its permissions, {remedy}"
        )
    return StoreError(f"the cache {folder} cannot be used: {error}")


class Store:
    """Results by stage and key under one folder."""

    def __init__(self, root: Path | None = None) -> None:
        """Opens a cache without creating anything.

        Args:
            root: the cache folder; `default_cache()` when left out.
        """
        self.root = (root or default_cache()).resolve()

    @property
    def texts(self) -> Path:
        """Folder in which texts that are built on the spot are kept."""
        return self.root / "texts"

    def folder(self, stage: str, key: str) -> Path:
        """The folder of one result; names that could leave the cache are refused.

        Raises:
            StoreError: the stage or the key is not a plain name.
        """
        for name in (stage, key):
            if not _NAME.match(name):
                raise StoreError(f"{name!r} is not a name of a stage or result")
        return self.root / stage / key

    def manifest(self, stage: str, key: str) -> dict[str, Any] | None:
        """The manifest of a whole result; None when it is absent or any of its files is damaged."""
        folder = self.folder(stage, key)
        try:
            manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
            whole = all((folder / name).stat().st_size == size for name, size in manifest["files"].items())
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return manifest if whole else None

    def has(self, stage: str, key: str) -> bool:
        """Whether a whole result is there."""
        return self.manifest(stage, key) is not None

    def get(self, stage: str, key: str, kind: type[Record]) -> Record:
        """Reads a result; its arrays are read-only memory maps.

        Raises:
            StoreError: the result is absent or damaged.
        """
        manifest = self.manifest(stage, key)
        folder = self.folder(stage, key)
        if manifest is None:
            raise StoreError(f"no whole result at {folder}: run the study again, finished stages are kept")
        try:
            return kind(**_values(kind, folder, manifest))
        except (KeyError, ValueError, TypeError) as error:
            raise StoreError(
                f"the result in {folder} is damaged ({error}): delete this folder and run the study again"
            ) from error

    def put(self, stage: str, key: str, record: object, details: dict[str, Any] | None = None) -> None:
        """Writes a record; if another process has written it meanwhile, that one stays.

        Args:
            stage: name of the stage.
            key: content key of the result.
            record: a frozen record of gprune.records.
            details: what to keep beside it (settings, seconds, versions).

        Raises:
            StoreError: the disk is full or the cache is read-only.
        """

        def write(folder: Path) -> dict[str, Any]:
            values: dict[str, Any] = {}
            for field in fields(record):  # type: ignore[arg-type]
                value = getattr(record, field.name)
                if isinstance(value, np.ndarray):
                    np.save(folder / f"{field.name}.npy", value, allow_pickle=False)
                else:
                    values[field.name] = value
            return {"record": type(record).__name__, "values": values}

        self.put_folder(stage, key, write, details)

    def discard(self, stage: str, key: str) -> None:
        """Removes a result, if there is one; no reader meets half of it."""
        final = self.folder(stage, key)
        if final.exists():
            aside = beside(final)
            final.rename(aside)
            shutil.rmtree(aside, ignore_errors=True)

    def put_folder(
        self,
        stage: str,
        key: str,
        write: Callable[[Path], dict[str, Any]],
        details: dict[str, Any] | None = None,
    ) -> Path:
        """Lets `write` fill a temporary folder, adds the manifest and moves it into place.

        Args:
            stage: name of the stage.
            key: content key of the result.
            write: fills the folder it is given and returns entries for the manifest.
            details: further entries for the manifest.

        Returns:
            The folder in its final place.
        """
        final = self.folder(stage, key)
        temporary = beside(final)
        try:
            temporary.mkdir(parents=True)
            manifest = write(temporary)
            files = {
                str(path.relative_to(temporary)): path.stat().st_size
                for path in sorted(temporary.rglob("*"))
                if path.is_file()
            }
            write_json(temporary / "manifest.json", {**(details or {}), **manifest, "files": files})
            self._move(temporary, final)
        except OSError as error:
            raise explain(error, self.root) from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return final

    def _move(self, temporary: Path, final: Path) -> None:
        if final.exists() and self.has(final.parent.name, final.name):
            return
        # a damaged result makes way
        self.discard(final.parent.name, final.name)
        try:
            temporary.rename(final)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise

    @contextlib.contextmanager
    def lock(self, stage: str, key: str, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
        """Holds a result for one process at a time; a killed process frees it.

        Args:
            stage: name of the stage.
            key: content key of the result.
            on_wait: called about once a second while another process holds it; may raise to give up.

        Raises:
            StoreError: the cache cannot be written.
        """
        path = self.root / "locks" / f"{self.folder(stage, key).parent.name}-{key}.lock"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            held = filelock.FileLock(path)
            while True:
                try:
                    held.acquire(timeout=1.0)
                    break
                except filelock.Timeout:
                    if on_wait:
                        on_wait()
        except OSError as error:
            raise explain(error, self.root) from error
        try:
            yield
        finally:
            held.release()

    def sweep(self) -> None:
        """Removes what killed processes left half-written more than a day ago."""
        for path in self.root.glob("*/.*"):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > _STALE_SECONDS:
                    shutil.rmtree(path, ignore_errors=True)


def _values(kind: type, folder: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """Every field of a record of some kind, arrays as memory maps."""
    hints = typing.get_type_hints(kind)
    values: dict[str, Any] = {}
    for field in fields(kind):
        path = folder / f"{field.name}.npy"
        if path.name in manifest["files"]:
            values[field.name] = _read_array(path)
        else:
            value = manifest["values"][field.name]
            is_tuple = typing.get_origin(hints[field.name]) is tuple
            values[field.name] = tuple(value) if is_tuple else value
    return values


def _read_array(path: Path) -> np.ndarray:
    try:
        # an empty array cannot be mapped
        return np.load(path, mmap_mode="r" if path.stat().st_size > 1024 else None, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise StoreError(
            f"the array {path} cannot be read ({error}): delete its folder and run again"
        ) from error
