"""Files that are written completely or not at all, and file locks (`flock`) that end with their process.

A file is written under another name first, then moved into place in one step. A reader finds the old or the new file,
never a partial one, and a failed write leaves the old file unchanged. The content is flushed to the disk before the
move, so this also holds after a power failure. New folders are accessible only to their owner.
"""

import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import filelock

from gprune.system.errors import GpruneError, SettingsError, StoreError
from gprune.system.units import amount

LARGER_DISK = "make room, or set HF_HOME to a folder on a larger disk"
"""remedy if a download from the hub does not fit on the disk"""
_TEMPORARY_NAME = re.compile(r"\..*-[0-9a-f]{32}(\.[^.]*)?", re.DOTALL)
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
WITHOUT_LOCKS = (
    "the disk that holds {} has no file locks ({}): "
    "mount it with flock, or set GPRUNE_CACHE to a folder on another disk"
)
"""error message, to be formatted with a folder and the reason"""


def temporary_path(path: Path) -> Path:
    """Return a unique hidden path in the same folder, with the same file extension."""
    return path.with_name(f".{path.stem}-{uuid4().hex}{path.suffix}")


def is_temporary_name(name: str) -> bool:
    """Return True if a name was made by `temporary_path`; an old file of this name belongs to a killed writer."""
    return _TEMPORARY_NAME.fullmatch(name) is not None


def remove(path: Path) -> None:
    """Remove a file, a link, or a folder with its content. Raises OSError if a file cannot be removed."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def discard(path: Path) -> None:
    """Remove a folder that others may read; it is renamed first, so that no reader finds a part of it.

    Raises OSError if it cannot be renamed.
    """
    hidden = temporary_path(path)
    path.replace(hidden)
    with contextlib.suppress(OSError):
        remove(hidden)


def make_folder(path: Path) -> None:
    """Create a folder and its missing parents, accessible only to their owner; an existing folder is not changed.

    Raises OSError if it cannot be created, or something else has its name.
    """
    if not path.is_dir():
        if not path.parent.exists():
            make_folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


def sync(path: Path) -> None:
    """Flush a file's content, or a folder's list of names, to the disk; do nothing if the disk does not support this.

    Raises OSError if the disk is full.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EROFS):
            raise
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; the file replaces `path` if the context ends without an error.

    The temporary file is removed in any case. Raises OSError if the file cannot be moved into place.
    """
    temporary = temporary_path(path)
    try:
        yield temporary
        sync(temporary)
        temporary.replace(path)
        sync(path.parent)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def require_place(path: Path) -> None:
    """Raise SettingsError if `path` cannot be a file: its folder does not exist, or it is a folder itself."""
    target = path.resolve()
    if not target.parent.is_dir():
        raise SettingsError(f"the folder {str(target.parent)!r} does not exist: create it first")
    if target.is_dir():
        raise SettingsError(f"{str(target)!r} is a folder: give the name of a file")


def require_room(kind: type[GpruneError], subject: str, size: int, folder: Path, remedy: str) -> None:
    """Raise an error of class `kind` if the disk has less than `size` bytes for a download or a computation.

    Its sentence begins with `subject`, names the needed and the free bytes, and ends with
    `remedy`. The folder need not exist yet.
    """
    existing_folder = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(existing_folder).free
    if free < size:
        raise kind(f"{subject} needs {amount(size)}, but {str(existing_folder)!r} has {amount(free)} free: {remedy}")


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file in one step. Raises OSError if it cannot be written; an older file is then unchanged."""
    with replace_file(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """Write a text as UTF-8 in one step, with its line ends unchanged; see `write_bytes`."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON in one step, with characters beyond ASCII unescaped; see `write_bytes`."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False))


class Lock:
    """An exclusive lock on one file, which remains on disk after the lock is released."""

    def __init__(self, path: Path, poll: float = 0.05) -> None:
        """Prepare a lock; `poll` is the number of seconds between two attempts."""
        self._lock = filelock.FileLock(path, mode=0o600, poll_interval=poll, fallback_to_soft=False)

    @property
    def is_held(self) -> bool:
        """Return True if this object holds the lock."""
        return bool(self._lock.is_locked)

    def acquire(self, seconds: float) -> bool:
        """Wait up to `seconds` for the lock, and return True if this object then holds it.

        Raises StoreError if the disk has no locks, OSError if the file cannot be created.
        """
        try:
            self._lock.acquire(timeout=seconds)
        except filelock.Timeout:
            return False
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            raise StoreError(WITHOUT_LOCKS.format(Path(self._lock.lock_file).parent, error.strerror)) from error
        return True

    def release(self) -> None:
        """Release the lock, if this object holds it."""
        self._lock.release()


def is_locked(path: Path) -> bool:
    """Return True if a process holds the lock of a file, on this machine or another one; nothing is written."""
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    return False
