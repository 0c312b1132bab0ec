"""Locks on files, which exclude other processes and are freed when their process dies.

A lock is the system's own (`flock`), which Linux also keeps on NFS: on the server, so that it excludes other
machines. It can be missing there: NFS without its lock service says ENOLCK, Lustre and some others mounted
without locks say ENOSYS or ENOTSUP. Then a lease takes its place: a file that its holder dates anew while it
lives, and that others take over once it has rested for some seconds by their own clocks, or at once where its
process was one of their machine. Who tries only once takes it after a quarter of an hour of rest, as a run
on another machine counts as gone then. A holder that was suspended for longer than that has lost its lease,
and is told so (`Lock.held`) once it goes on.

And a lock can be lost without a word: the server was started anew, or the mount keeps locks to itself. So
nothing relies on one for a right result. Two that compute the same give the same content, whichever is moved
into place first; whoever writes a file writes it whole. What a lost lock costs is time.
"""

import contextlib
import errno
import os
import time
from pathlib import Path

import filelock

from gprune.system.network_files import again, age, refresh
from gprune.system.processes import QUIET_SECONDS

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
        """Takes nothing yet; the file stays when the lock is freed.

        `poll` is seconds between two tries, to begin with, `lease` those after which a lease has run out; the
        same for all who lock this file.
        """
        self._path, self._poll, self._seconds = path, poll, lease
        self._waited = 0.0
        self._numbers: list[int] = []
        # the library's own way out knows neither ENOLCK nor the death of a holder elsewhere
        self._lock: filelock.BaseFileLock = filelock.FileLock(
            path, mode=0o600, poll_interval=poll, fallback_to_soft=False, on_acquired=self._numbers.append
        )

    @property
    def held(self) -> bool:
        """Whether this one has it; a lease that another has taken meanwhile is had no more."""
        return bool(self._lock.is_locked) and not self._overtaken

    @property
    def leased(self) -> bool:
        """Whether it is a lease, because the disk has no locks."""
        return isinstance(self._lock, filelock.SoftFileLease)

    @property
    def _overtaken(self) -> bool:
        """Whether this process has rested for so long that another has its lease; seen within 20 seconds."""
        return isinstance(self._lock, filelock.SoftFileLease) and self._lock.compromise is not None

    def acquire(self, seconds: float) -> bool:
        """Takes it as soon as nobody has it; says whether this process has it now.

        Waits so many seconds, 0 to try once. Raises OSError where the file cannot be made.
        """
        if self._overtaken:
            self.release()
        if not self.leased and _device(self._path.parent) in _without:
            self._lock = self._lease()
        try:
            # each try is a request to a shared disk
            seldom = self._poll if self._waited < PATIENT_SECONDS else max(self._poll, SELDOM_SECONDS)
            again(lambda: self._lock.acquire(timeout=seconds, poll_interval=seldom))
        except filelock.Timeout:
            self._waited += seconds
            return self._clear() and self.acquire(0)
        except OSError as error:
            if self.leased or error.errno not in _MISSING:
                raise
            _without.add(_device(self._path.parent))
            return self.acquire(seconds)
        refresh(self._path.parent)
        return True

    def release(self) -> None:
        """Lets another process have it; a server that has lost it says so in vain."""
        try:
            self._lock.release()
        except OSError:
            self._let_go()

    def _let_go(self) -> None:
        """Closes the file of a lock that the disk does not free: open, it would keep others out for good."""
        if self._lock.is_locked and not self.leased:
            with contextlib.suppress(OSError), open(os.devnull, "rb") as nothing:
                # its number stays the library's, which frees and closes what has it now
                os.dup2(nothing.fileno(), self._numbers[-1], inheritable=False)
                self._lock.release()

    def _clear(self) -> bool:
        """Removes a lease whose holder has died, never signed or long left alone; says whether."""
        if not self.leased:
            return False
        place = Path(self._lock.lock_file)
        with contextlib.suppress(OSError):
            found = os.lstat(place)
            # not every disk dates by one clock; whoever goes on waiting sees sooner that it rests
            least = max(self._seconds, QUIET_SECONDS if found.st_size else 0.0)
            if time.time() - found.st_mtime > least and age(place) > least:
                place.unlink()
                return True
        return False

    def _lease(self) -> filelock.SoftFileLease:
        # not the same file: an empty one that a lock has left would never run out
        place = self._path.with_name(f"{self._path.name}.lease")
        return filelock.SoftFileLease(place, lease_duration=self._seconds, mode=0o600, poll_interval=self._poll)


def _device(folder: Path) -> int:
    """Number of the disk that keeps a folder."""
    return os.stat(folder).st_dev
