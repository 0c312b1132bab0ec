"""Locks on files (`flock`), which exclude other processes and end with the process that holds them."""

import errno
import fcntl
from pathlib import Path

import filelock

from gprune.system.errors import StoreError

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)


WITHOUT_LOCKS = (
    "the disk that holds {} has no file locks ({}): "
    "mount it with flock, or set GPRUNE_CACHE to a folder on another disk"
)
"""what is said of a folder, with the reason"""


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
