"""SHA-256 of files: computed on the first read in a process, and known while the file stays as it is.

A file counts as the same while its size, its number on the disk and the time of its last change are; that
time (`ctime`) is kept by the system and cannot be set back, so that a file changed in place is read again.
"""

import hashlib
import io
import os
import time
from pathlib import Path
from typing import BinaryIO

Stamp = tuple[int, int, int]
"""size, number on the disk and time of the last change of a file"""

# two changes within a tick of the system's clock look like one
_TICK_NANOSECONDS = 50_000_000
_known: dict[str, tuple[Stamp, str]] = {}


class Writer(io.RawIOBase):
    """Writes to a file and sums up what goes by."""

    def __init__(self, file: BinaryIO) -> None:
        """Begins; the file stays open when this one is done."""
        self._file, self._sum = file, hashlib.sha256()

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, data: object, /) -> int:
        """Writes some bytes; OSError where the file cannot take them."""
        view = memoryview(data).cast("B")  # type: ignore[arg-type]
        self._file.write(view)
        self._sum.update(view)
        return len(view)

    @property
    def digest(self) -> str:
        """Of all that was written."""
        return self._sum.hexdigest()


def stamp(path: Path) -> Stamp:
    """What changes whenever a file does; OSError where there is no such file."""
    return stamp_of(path.stat())


def of_bytes(data: bytes) -> str:
    """SHA-256 of some bytes."""
    return hashlib.sha256(data).hexdigest()


def of_file(path: Path) -> str:
    """SHA-256 of a file's content, read in blocks unless it is known; OSError if it cannot be read."""
    with open(path, "rb") as file:
        stamp_before = stamp_of(os.fstat(file.fileno()))
        digest = known(path, stamp_before) or hashlib.file_digest(file, "sha256").hexdigest()
        if stamp_of(os.fstat(file.fileno())) == stamp_before:
            remember(path, stamp_before, digest)
    return digest


def known(path: Path, stamp: Stamp) -> str | None:
    """SHA-256 of a file that looks so, where it is known; nothing is read."""
    entry = _known.get(str(path))
    return entry[1] if entry is not None and entry[0] == stamp else None


def remember(path: Path, stamp: Stamp, digest: str) -> None:
    """Keeps what a file's content sums up to, unless the file is so young that it could change unseen."""
    if settled(stamp):
        _known[str(path)] = stamp, digest


def settled(stamp: Stamp) -> bool:
    """Whether a further change of a file that looks so would be seen."""
    return abs(time.time_ns() - stamp[2]) > _TICK_NANOSECONDS


def stamp_of(status: os.stat_result) -> Stamp:
    """The stamp of a file whose status is known."""
    return status.st_size, status.st_ino, status.st_ctime_ns
