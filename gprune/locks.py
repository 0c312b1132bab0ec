"""Locks on files, which exclude other processes and are freed when their process dies.

A lock is the system's own (`flock`), which Linux also keeps on NFS: on the server, so that it excludes other
machines. It can be missing there: NFS without its lock service says ENOLCK, Lustre and some others mounted
without locks say ENOSYS or ENOTSUP. Then a lease takes its place: a file that its holder dates anew while it
lives, and that others take over once it has rested for some seconds by their own clocks, or at once where its
process was one of their machine.

And a lock can be lost without a word: the server was started anew, or the mount keeps locks to itself. So
nothing relies on one for a right result. Two that compute the same give the same content, whichever is moved
into place first; whoever writes a file writes it whole. What a lost lock costs is time.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

import filelock

from gprune.shared_files import again, age, refresh

LEASE_SECONDS = 30.0
"""so long a lease has rested before others take it; its holder dates it three times as often"""
PATIENT_SECONDS, SELDOM_SECONDS = 5.0, 0.5
"""who has waited for so long tries no more often than that"""
_MISSING = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
_without: set[int] = set()
"""disks that have said that they have no locks, by their number"""


class Lock:
    """A lock of one file; what is seen under it of the file's folder is what its last holder has left."""

    def __init__(self, path: Path, poll: float = 0.05, lease: float = LEASE_SECONDS) -> None:
        """Takes nothing yet.

        Args:
            path: the file; it stays when the lock is freed.
            poll: seconds between two tries, to begin with.
            lease: seconds after which a lease has run out; the same for all who lock this file.
        """
        self._path, self._poll, self._seconds = path, poll, lease
        self._waited = 0.0
        # the library's own way out knows neither ENOLCK nor the death of a holder elsewhere
        self._lock: filelock.BaseFileLock = filelock.FileLock(
            path, mode=0o600, poll_interval=poll, fallback_to_soft=False
        )

    @property
    def held(self) -> bool:
        """Whether this one has it."""
        return bool(self._lock.is_locked)

    @property
    def leased(self) -> bool:
        """Whether it is a lease, because the disk has no locks."""
        return isinstance(self._lock, filelock.SoftFileLease)

    def acquire(self, seconds: float) -> bool:
        """Takes it as soon as nobody has it; says whether this process has it now.

        Args:
            seconds: how long to wait for it; 0 to try once.

        Raises:
            OSError: the file cannot be made.
        """
        if not self.leased and _device(self._path.parent) in _without:
            self._lock = self._lease()
        try:
            again(lambda: self._lock.acquire(timeout=seconds, poll_interval=self._interval()))
        except filelock.Timeout:
            self._waited += seconds
            self._clear()
            return False
        except OSError as error:
            if self.leased or error.errno not in _MISSING:
                raise
            _without.add(_device(self._path.parent))
            return self.acquire(seconds)
        refresh(self._path.parent)
        return True

    def release(self) -> None:
        """Lets another process have it; a server that has lost it says so in vain."""
        with contextlib.suppress(OSError):
            self._lock.release()

    def _interval(self) -> float:
        """Seconds between two tries: more for who has waited long, as each is a request to a shared disk."""
        return self._poll if self._waited < PATIENT_SECONDS else max(self._poll, SELDOM_SECONDS)

    def _clear(self) -> None:
        """Removes a lease that was made and never signed: whoever made it has died over it."""
        if not self.leased:
            return
        place = Path(self._lock.lock_file)
        with contextlib.suppress(OSError):
            if not os.lstat(place).st_size and age(place) > self._seconds:
                place.unlink()

    def _lease(self) -> filelock.SoftFileLease:
        # not the same file: an empty one that a lock has left would never run out
        place = self._path.with_name(f"{self._path.name}.lease")
        return filelock.SoftFileLease(
            place, lease_duration=self._seconds, mode=0o600, poll_interval=self._poll
        )


def _device(folder: Path) -> int:
    """Number of the disk that keeps a folder."""
    return os.stat(folder).st_dev
