"""The store: results by stage and key, put, looked at, read, checked and set aside."""

import contextlib
import errno
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import numpy as np

from gprune.store import array_files, digests, manifests
from gprune.store.folder import default_cache, explain, explained
from gprune.system.errors import DamagedError, NumericsError, StoreError
from gprune.system.files import beside, discard, is_beside, make_folder, remove, sync
from gprune.system.locks import Lock

Record = TypeVar("Record")
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,120}")
_STALE_SECONDS = 24 * 3600
DAMAGED = "damaged"
"""folder of what was set aside"""


class Store:
    """Results by stage and key under one folder."""

    def __init__(self, root: Path | None = None) -> None:
        """Opens a cache, by default `default_cache()`, without creating anything."""
        self.root = (root or default_cache()).resolve()

    @property
    def texts(self) -> Path:
        """Folder of texts."""
        return self.root / "texts"

    @property
    def digests(self) -> Path:
        """Folder in which digests of models and texts are kept, which lie elsewhere."""
        return self.root / digests.FOLDER

    def folder(self, stage: str, key: str) -> Path:
        """The folder of one result; StoreError for a name that is not plain and could leave the cache."""
        for name in (stage, key):
            if not _NAME.fullmatch(name):
                raise StoreError(f"{name!r} is not a name of a stage or result")
        return self.root / stage / key

    def manifest(self, stage: str, key: str, kind: type | None = None) -> dict[str, Any] | None:
        """The manifest of a whole result; None when it is absent or known to be damaged.

        `kind` is the class of its record, by default the one that the manifest names.
        """
        try:
            manifest = manifests.look(self.folder(stage, key), kind).manifest
        except OSError:
            return None
        return None if manifest is None else dict(manifest)

    def has(self, stage: str, key: str, kind: type | None = None) -> bool:
        """Whether a whole result is there, as far as it can be told without reading it; see `manifest`."""
        return self.manifest(stage, key, kind) is not None

    def get(self, stage: str, key: str, kind: type[Record]) -> Record:
        """Reads a result; its arrays are read-only.

        Raises DamagedError where it is not what was written, StoreError where it is absent or cannot be read.
        """
        folder, manifest = self.folder(stage, key), self._whole(stage, key, kind)
        try:
            return kind(**manifests.fields_of(folder, manifest, kind))
        except OSError as error:
            raise _unreadable(folder, error) from error
        except (ValueError, KeyError, TypeError, NumericsError) as error:
            manifests.refuse(folder, kind, str(error))
            raise DamagedError(stage, key, str(error)) from error

    def check(self, stage: str, key: str, kind: type | None = None) -> Path:
        """The folder of a result, every file read, once a process, and compared with what was written.

        Raises DamagedError where it is not what was written, StoreError where it is absent or cannot be read.
        """
        folder, manifest = self.folder(stage, key), self._whole(stage, key, kind)
        try:
            fault = manifests.unlike(folder, manifest)
        except OSError as error:
            raise _unreadable(folder, error) from error
        if fault:
            raise DamagedError(stage, key, fault)
        return folder

    def damaged(self, stage: str, key: str, kind: type | None = None) -> bool:
        """Whether what lies in a result's place is none, or it was set aside and has not been made anew.

        Told as by `manifest`, without reading it; a disk that does not give it says nothing.
        """
        folder = self.folder(stage, key)
        try:
            fault = manifests.look(folder, kind).fault
        except OSError:
            return False
        aside = (self.root / DAMAGED).glob(f"{stage}-{key}-{'[0-9a-f]' * 8}")
        return bool(fault) or (not os.path.lexists(folder) and any(aside))

    def stamp(self, stage: str, key: str) -> str:
        """What changes whenever a file of a record does; cheap, nothing is read."""
        return manifests.stamp_of(self.folder(stage, key))

    def _whole(self, stage: str, key: str, kind: type | None) -> dict[str, Any]:
        folder = self.folder(stage, key)
        try:
            looked = manifests.look(folder, kind)
        except OSError as error:
            raise _unreadable(folder, error) from error
        if looked.manifest is not None:
            return looked.manifest
        if looked.fault:
            raise DamagedError(stage, key, looked.fault)
        raise StoreError(f"no whole result at {folder}: run the study again, finished stages are kept")

    def set_aside(self, stage: str, key: str, kind: type | None = None) -> str:
        """Moves a damaged result out of the way; one that is whole stays.

        Its lock is held. Says in a sentence what was wrong with it and where it is now; empty if nothing was
        moved. Raises StoreError where the cache cannot be written, or the result not be read.
        """
        if not os.path.lexists(self.folder(stage, key)):
            return ""
        try:
            self.check(stage, key, kind)
        except DamagedError as error:
            target = self._aside(stage, key)
            where = f"is kept in {target}" if target else "another process has moved it away"
            return f"the stored result was damaged ({error.fault}) and {where}"
        return ""

    def _aside(self, stage: str, key: str) -> Path | None:
        """Moves a result away, and says where it is now; None where it has gone meanwhile."""
        target = self.root / DAMAGED / f"{stage}-{key}-{uuid4().hex[:8]}"
        try:
            make_folder(target.parent)
            self.folder(stage, key).replace(target)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise explain(error, self.root) from error
        return target

    def put(self, stage: str, key: str, record: object, details: dict[str, Any] | None = None) -> None:
        """Writes a frozen record; if another process has written it meanwhile, that one stays.

        `details` are kept beside it (settings, seconds, versions). Raises StoreError where the disk is full
        or the cache is read-only.
        """

        def write(folder: Path) -> dict[str, Any]:
            values: dict[str, Any] = {}
            for field in fields(record):  # type: ignore[arg-type]
                value = getattr(record, field.name)
                if isinstance(value, np.ndarray):
                    name = array_files.file_name(field.name)
                    sums[name] = array_files.write(folder / name, value)
                else:
                    values[field.name] = value
            return {"record": type(record).__name__, "values": values}

        sums: dict[str, str] = {}
        self.put_folder(stage, key, write, details, type(record), sums)

    def discard(self, stage: str, key: str) -> None:
        """Removes a result, if there is one; no reader meets half of it."""
        final = self.folder(stage, key)
        if os.path.lexists(final):
            with contextlib.suppress(FileNotFoundError):
                discard(final)

    def put_folder(
        self,
        stage: str,
        key: str,
        write: Callable[[Path], dict[str, Any]],
        details: dict[str, Any] | None = None,
        kind: type | None = None,
        sums: dict[str, str] | None = None,
    ) -> Path:
        """Lets `write` fill a temporary folder, adds the manifest and moves it into its place, its result.

        `write` returns entries for the manifest, of which `details` are more; `kind` is the class of the
        record that is written, if it is one; `sums` are SHA-256 of files that are known once `write` has
        returned; the others are computed. Raises StoreError where the disk is full or the cache is read-only.
        """
        final = self.folder(stage, key)
        temporary = beside(final)
        try:
            make_folder(temporary)
            entries = write(temporary)
            manifests.close(temporary, {**(details or {}), **entries}, sums or {}, kind)
            self._move(temporary, final, kind)
        except OSError as error:
            raise explain(error, self.root) from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return final

    def _move(self, temporary: Path, final: Path, kind: type | None) -> None:
        stage, key = final.parent.name, final.name
        if os.path.lexists(final):
            if self.has(stage, key, kind):
                return
            # a damaged result makes way
            self._aside(stage, key)
        try:
            temporary.replace(final)
            sync(final.parent)
        except OSError as error:
            # another process was faster: what it has made under this key has the same content
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise

    @contextlib.contextmanager
    def lock(self, stage: str, key: str, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
        """Holds a result for one process at a time; a killed process frees it.

        Nothing depends on it but time: of two that make the same, the result that is moved into place first
        stays, and the other has the same content. Under it, what its last holder has left is seen. `on_wait`
        is called about once a second while another process holds it; may raise to give up. Raises StoreError
        where the cache cannot be written.
        """
        path = self.root / "locks" / f"{self.folder(stage, key).parent.name}-{key}.lock"
        with explained(self.root):
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
        """Removes what killed processes left half-written more than a day ago.

        Only what bears a name that this program gives: a cache may be a folder in which other things lie as
        well, hidden ones among them, and a folder of it may be a link to such a one.
        """
        for path in (*self.root.glob("*/.*"), *self.root.glob("*/*/.*")):
            if not is_beside(path.name) or self._leads_out(path.parent):
                continue
            with contextlib.suppress(OSError):
                if time.time() - path.lstat().st_mtime > _STALE_SECONDS:
                    remove(path)

    def _leads_out(self, folder: Path) -> bool:
        """Whether a folder below the cache is reached through a link."""
        return folder.is_symlink() or (folder.parent != self.root and self._leads_out(folder.parent))


def _unreadable(folder: Path, error: OSError) -> StoreError:
    reason = error.strerror or str(error)
    return StoreError(f"the result in {folder} cannot be read ({reason}): check the disk and its permissions")
