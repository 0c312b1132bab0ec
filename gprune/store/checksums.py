"""SHA-256 of files, computed at the first read in a process and remembered while the file does not change.

A file counts as unchanged while its size, inode and time of last change (`ctime`) are the same.
"""

import hashlib
import os
import time
from pathlib import Path

Stamp = tuple[int, int, int]
"""size, inode and time of the last change of a file"""

# two changes within a tick of the clock of the file system have the same time
_TICK_NANOSECONDS = 50_000_000
_remembered: dict[tuple[str, bytes], tuple[Stamp, str]] = {}


def stamp(path: Path) -> Stamp:
    """Return the stamp of a file, which changes whenever the file does. Raises OSError if there is none."""
    return stamp_of(path.stat())


def stamp_of(status: os.stat_result) -> Stamp:
    """Return the stamp of a file from its status."""
    return status.st_size, status.st_ino, status.st_ctime_ns


def of_bytes(data: bytes) -> str:
    """Return the SHA-256 of some bytes."""
    return hashlib.sha256(data).hexdigest()


def of_file(path: Path, salt: bytes = b"") -> str:
    """Return the SHA-256 of a salt and a file's content. Raises OSError if the file cannot be read."""
    before = stamp(path)
    digest = remembered_checksum(path, before, salt)
    if digest is None:
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, lambda: hashlib.sha256(salt)).hexdigest()
            if stamp_of(os.fstat(file.fileno())) == before:
                remember(path, before, digest, salt)
    return digest


def remembered_checksum(path: Path, stamp: Stamp, salt: bytes = b"") -> str | None:
    """Return the remembered SHA-256 of a file with this stamp; None if there is none. No file is read."""
    entry = _remembered.get((str(path), salt))
    return entry[1] if entry is not None and entry[0] == stamp else None


def remember(path: Path, stamp: Stamp, digest: str, salt: bytes = b"") -> None:
    """Remember the SHA-256 of a file with this stamp, unless a further change could leave the stamp as it is."""
    if time.time_ns() - stamp[2] > _TICK_NANOSECONDS:
        _remembered[str(path), salt] = stamp, digest
