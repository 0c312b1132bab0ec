"""Files written whole or not at all, and locks on files (`flock`), which end with the process that holds them.

A file is written under another name first, then moved into place in one step. A reader meets the old file or the new
one, never half of one; a write that fails leaves the old one alone. What is in place has reached the disk, so that this
holds when the machine loses its power as well. Folders made here are their owner's alone.
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
"""what to do where a download of the hub has no room"""
_BESIDE = re.compile(r"\..*-[0-9a-f]{32}(\.[^.]*)?", re.DOTALL)
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
WITHOUT_LOCKS = (
    "the disk that holds {} has no file locks ({}): "
    "mount it with flock, or set GPRUNE_CACHE to a folder on another disk"
)
"""what is said of a folder, with the reason"""


def temporary_path(path: Path) -> Path:
    """Return a hidden name in the same folder, with the same ending, that no other process or thread has chosen."""
    return path.with_name(f".{path.stem}-{uuid4().hex}{path.suffix}")


def is_temporary_name(name: str) -> bool:
    """Return True if `temporary_path` made a name: an old one belongs to a writer that was killed."""
    return _BESIDE.fullmatch(name) is not None


def remove(path: Path) -> None:
    """Remove a file, a link, or a folder with its content. Raises OSError if a file cannot be removed."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def discard(path: Path) -> None:
    """Remove a folder that others may read: rename it first, so that no reader meets half of it.

    Raises OSError if it cannot be renamed.
    """
    hidden = temporary_path(path)
    path.replace(hidden)
    with contextlib.suppress(OSError):
        remove(hidden)


def make_folder(path: Path) -> None:
    """Create a folder and its missing parents, readable by their owner alone; an existing one stays.

    Raises OSError if it cannot be created, or something else has its name.
    """
    if not path.is_dir():
        if not path.parent.exists():
            make_folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


def sync(path: Path) -> None:
    """Wait until the disk has a file, or which names a folder holds; not every disk can say so.

    Raises OSError if the disk has no room for it.
    """
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EROFS):
            raise
    finally:
        os.close(number)


@contextlib.contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; the file takes the place of `path` when the context ends without error.

    Nothing is left under the temporary name. Raises OSError if the file cannot be moved into place.
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
    """Raise SettingsError if no file can be written: a path without a folder, or that of a folder."""
    target = path.resolve()
    if not target.parent.is_dir():
        raise SettingsError(f"the folder {str(target.parent)!r} does not exist: create it first")
    if target.is_dir():
        raise SettingsError(f"{str(target)!r} is a folder: give the name of a file")


def require_room(kind: type[GpruneError], subject: str, size: int, folder: Path, remedy: str) -> None:
    """Check before the start that a disk has room for so many bytes.

    `subject` begins the sentence of the error, of the class `kind`, that names both, and `remedy` ends it; the
    folder need not exist yet.
    """
    existing_folder = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(existing_folder).free
    if free < size:
        raise kind(f"{subject} needs {amount(size)}, but {str(existing_folder)!r} has {amount(free)} free: {remedy}")


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file in one step; where an OSError says that it cannot, an older one is unchanged."""
    with replace_file(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """Write a text as `write_bytes` does, as UTF-8 and with its line ends as they are."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON, as `write_bytes` does; letters beyond ASCII stay readable."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False))


class Lock:
    """An exclusive lock on one file, which stays on disk when the lock is released."""

    def __init__(self, path: Path, poll: float = 0.05) -> None:
        """Prepare a lock; `poll` is the number of seconds between two attempts."""
        self._lock = filelock.FileLock(path, mode=0o600, poll_interval=poll, fallback_to_soft=False)

    @property
    def is_held(self) -> bool:
        """Return True if this object holds the lock."""
        return bool(self._lock.is_locked)

    def acquire(self, seconds: float) -> bool:
        """Wait up to `seconds` for the lock, and return True if this object holds it then.

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
