"""File operations on a disk that several machines share: what can go wrong with each, and the answer.

A request goes over the network, its reply may be lost, and what a machine has asked before it remembers for
some seconds, also that there was nothing. All that depends on this goes through here (NFS names the cases):

- ESTALE: a file that another machine has replaced or removed while it was being read. `again` reads the new
  one.
- *Not there*, remembered: another machine's file is missed until its folder is opened. `refresh` opens it;
  `there` and `status` believe that something is missing only after that.
- A reply that was lost: the client asks a second time, and is told that the source of a rename is gone, or
  that a folder is there already. `move` looks at what has become of the source, `make` and `create` at what
  is there.
- A file that is open when it is removed stays as `.nfs…`, or is gone under the reader on another machine:
  see gprune.system.files.remove, and `forgets_open_files` for what reads arrays.
- Clocks differ: `age` asks the disk's own.
- Locks that are missing or lost: see gprune.system.locks.
"""

import contextlib
import errno
import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import psutil

Result = TypeVar("Result")

TRIES = 6
"""how often a file that is replaced under its reader is read"""
PAUSE_SECONDS = 0.02
"""before the second time; twice as long before each further one, 0.6 seconds in all"""
_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs")


def again(operation: Callable[[], Result], also: tuple[int, ...] = ()) -> Result:
    """Does something from its beginning, and once more where a file was replaced or removed under it.

    `operation` opens what it reads itself; `also` are further error numbers that may pass. Raises OSError as
    `operation`; ESTALE only after `TRIES` times.
    """
    for attempt in range(TRIES - 1):
        try:
            return operation()
        except OSError as error:
            if error.errno not in (errno.ESTALE, *also):
                raise
        time.sleep(PAUSE_SECONDS * 2**attempt)
    return operation()


def refresh(folder: Path) -> None:
    """Has the system forget which names it believes to be missing from a folder: opening it asks the server.

    A folder that is not there, or may not be read, is left alone.
    """
    try:
        os.scandir(folder).close()
    except FileNotFoundError:
        if folder.parent != folder:
            refresh(folder.parent)
            with contextlib.suppress(OSError):
                os.scandir(folder).close()
    except OSError:
        pass


def status(path: Path) -> os.stat_result | None:
    """What a name stands for, links not followed; None where it is missing also after a second look.

    Raises OSError where the disk or its permissions keep it from being told.
    """
    try:
        return again(lambda: os.lstat(path))
    except (FileNotFoundError, NotADirectoryError):
        refresh(path.parent)
    try:
        return again(lambda: os.lstat(path))
    except (FileNotFoundError, NotADirectoryError):
        return None


def there(path: Path) -> bool:
    """Whether there is something of a name, a link that leads nowhere included; see `status`."""
    try:
        return status(path) is not None
    except OSError:
        return False


def move(source: Path, target: Path) -> None:
    """Renames a file or a folder, in place of a file that is there; a reply that was lost is no failure.

    Raises OSError where it was not renamed.
    """
    before = again(lambda: os.lstat(source))
    try:
        source.replace(target)
    except OSError:
        if not _arrived(source, target, before):
            raise


def _arrived(source: Path, target: Path, before: os.stat_result) -> bool:
    """Whether a rename was done after all: the source is gone, and what it was has the new name.

    A hidden name is its writer's own: where that is gone it was moved, and another has taken its place since.
    """
    for folder in {source.parent, target.parent}:
        refresh(folder)
    try:
        now = os.lstat(target)
    except OSError:
        return False
    same = (now.st_dev, now.st_ino) == (before.st_dev, before.st_ino)
    return (same or source.name.startswith(".")) and not os.path.lexists(source)


def make(folder: Path, mode: int = 0o777) -> None:
    """Makes a folder; one that is there is as good, whoever has made it.

    Raises OSError where it cannot be made, or something else has its name.
    """
    try:
        folder.mkdir(mode=mode)
    except FileExistsError:
        refresh(folder.parent)
        if not folder.is_dir():
            raise


def create(path: Path) -> int:
    """Descriptor of a new file for writing, for its owner alone, in a folder that nobody else writes to.

    Raises FileExistsError where there is a file that somebody has written to, OSError where it cannot be
    made.
    """
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        found = os.lstat(path)
        # empty and our own: made by the request whose reply was lost
        if not stat.S_ISREG(found.st_mode) or found.st_size or found.st_uid != os.geteuid():
            raise
        return os.open(path, os.O_WRONLY | os.O_NOFOLLOW)


def age(path: Path) -> float:
    """Seconds since a file or folder was changed, by the clock of the disk that keeps it.

    Raises OSError where it is not there, or its folder cannot be written.
    """
    return now(path.parent) - os.lstat(path).st_mtime


def now(folder: Path) -> float:
    """Seconds since 1970 by the clock of a folder's disk; OSError where the folder cannot be written."""
    probe = folder / f".clock-{uuid4().hex}"
    os.close(create(probe))
    try:
        # a change of ours that the disk dates itself
        os.utime(probe)
        return os.lstat(probe).st_mtime
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()


@dataclass(frozen=True, slots=True)
class Mount:
    """Which disk keeps a folder."""

    kind: str
    """as the system calls it: ext4, nfs4; empty where it does not say"""
    options: tuple[str, ...]
    """how it was mounted"""

    @property
    def network(self) -> bool:
        """Whether it is another machine's, reached by a protocol that knows of no open files."""
        return self.kind in _NETWORK

    @property
    def local_locks(self) -> bool:
        """Whether locks exclude processes of the same machine alone, by how it was mounted."""
        return bool({"nolock", "local_lock=all", "local_lock=flock"} & set(self.options))


def mount(path: Path) -> Mount:
    """Which disk keeps a file or folder; OSError where it is not there."""
    return _mount(os.stat(path).st_dev, os.path.realpath(path))


@lru_cache(maxsize=256)
def _mount(_device: int, path: str) -> Mount:
    found, longest = Mount("", ()), 0
    for one in psutil.disk_partitions(all=True):
        inside = path == one.mountpoint or path.startswith(one.mountpoint.rstrip("/") + "/")
        # of two on one place the later one is what is seen
        if inside and len(one.mountpoint) >= longest:
            longest, found = len(one.mountpoint), Mount(one.fstype, tuple(one.opts.split(",")))
    return found


def forgets_open_files(path: Path) -> bool:
    """Whether a file can go while it is open, removed elsewhere; a map of it would end the process."""
    try:
        return mount(path.parent).network
    except OSError:
        return False
