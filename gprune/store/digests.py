"""SHA-256 of the models and texts that a study reads, which stay where they are and are large.

Digests of large files are kept in small files of the cache, so that a command on a model of 7 billion
parameters does not read 13 GB before it starts. They hold while size, inode and time of last change are the same.
"""

import contextlib
import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gprune.store import checksums
from gprune.store.checksums import Stamp
from gprune.system import machine, safe_parsing
from gprune.system.errors import UnreadableError
from gprune.system.files import make_folder, write_json

FOLDER = "digests"
"""folder of the cache that keeps them"""
_LARGE = 1 << 20


def of_files(paths: Sequence[Path], memory: Path | None = None, salt: bytes = b"") -> list[str]:
    """Return the SHA-256 of some files, in order.

    `memory` is a folder that keeps the digests of large files for other processes; `salt` is hashed before the
    content. Raises OSError if a file cannot be read.
    """
    if sum(path.stat().st_size >= _LARGE for path in paths) < 2:
        return [_of_file(path, memory, salt) for path in paths]
    with ThreadPoolExecutor(min(len(paths), machine.cores())) as pool:
        return list(pool.map(lambda path: _of_file(path, memory, salt), paths))


def _of_file(path: Path, memory: Path | None, salt: bytes) -> str:
    path = path.resolve()
    stamp = checksums.stamp(path)
    digest = checksums.remembered_checksum(path, stamp, salt)
    if digest is not None or memory is None or stamp[0] < _LARGE:
        return digest or checksums.of_file(path, salt)
    record = memory / f"{hashlib.sha256(os.fsencode(path) + bytes(1) + salt).hexdigest()[:32]}.json"
    digest = _recorded_digest(record, stamp)
    if digest is not None:
        checksums.remember(path, stamp, digest, salt)
        return digest
    digest = checksums.of_file(path, salt)
    if checksums.remembered_checksum(path, stamp, salt):
        _record_digest(record, stamp, digest)
    return digest


def _recorded_digest(record: Path, stamp: Stamp) -> str | None:
    try:
        values = safe_parsing.json_object(record.read_bytes(), "the digest")
    except (OSError, UnreadableError):
        return None
    digest: str | None = values.get("sha256") if values.get("stamp") == list(stamp) else None
    return digest


def _record_digest(record: Path, stamp: Stamp, digest: str) -> None:
    # without a cache, or with a full or read-only one, the next process computes the digest again
    with contextlib.suppress(OSError):
        if record.parent.parent.is_dir():
            make_folder(record.parent)
            write_json(record, {"stamp": list(stamp), "sha256": digest})
