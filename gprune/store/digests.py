"""SHA-256 of what a study reads: models and texts, which stay where they are and are large.

A digest is known while the file's size, its number on the disk and the time of its last change are the same,
see `checksums`; that of a large file also from one process to the next, as a small file in the cache. Without
that, every command on a model of 7 billion parameters reads 13 GB before it does anything.
"""

import contextlib
import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gprune.store.checksums import Stamp, settled, stamp_of
from gprune.system import machine, safe_parsing
from gprune.system.errors import UnreadableError
from gprune.system.files import make_folder, write_json

FOLDER = "digests"
"""folder of the cache that keeps them"""
_LARGE = 1 << 20
_known: dict[tuple[str, bytes], tuple[Stamp, str]] = {}


def of_files(paths: Sequence[Path], memory: Path | None = None, salt: bytes = b"") -> list[str]:
    """SHA-256 of some files, read several at a time unless they are known.

    `memory` keeps the digests of large files for other processes; `salt` is digested before the content. 64
    hexadecimal digits for each file, in order. Raises OSError where one cannot be read.
    """
    if sum(path.stat().st_size >= _LARGE for path in paths) < 2:
        return [_of_file(path, memory, salt) for path in paths]
    with ThreadPoolExecutor(min(len(paths), machine.cores())) as pool:
        return list(pool.map(lambda path: _of_file(path, memory, salt), paths))


def _of_file(path: Path, memory: Path | None, salt: bytes) -> str:
    resolved = path.resolve()
    with open(resolved, "rb") as file:
        stamp = stamp_of(os.fstat(file.fileno()))
        record = _record(memory, resolved, salt) if memory is not None and stamp[0] >= _LARGE else None
        entry, digest_before = _known.get((str(resolved), salt)), None
        if entry is not None and entry[0] == stamp:
            digest_before = entry[1]
        elif record is not None:
            digest_before = _recorded(record, stamp)
        digest = digest_before or hashlib.file_digest(file, lambda: hashlib.sha256(salt)).hexdigest()
        if settled(stamp) and stamp_of(os.fstat(file.fileno())) == stamp:
            _known[str(resolved), salt] = stamp, digest
            if record is not None and digest_before is None:
                _keep(record, stamp, digest)
    return digest


def _record(memory: Path, path: Path, salt: bytes) -> Path:
    """The small file that keeps the digest of a file."""
    name = hashlib.sha256(os.fsencode(path) + b"\0" + salt).hexdigest()
    return memory / f"{name[:32]}.json"


def _recorded(path: Path, stamp: Stamp) -> str | None:
    """The digest that was kept of a file which looks so; what cannot be read or is none counts as nothing."""
    try:
        values = safe_parsing.json_object(path.read_bytes(), "the digest")
    except (OSError, UnreadableError):
        return None
    digest = values.get("sha256")
    valid = isinstance(digest, str) and len(digest) == 64 and not set(digest) - set("0123456789abcdef")
    return str(digest) if valid and values.get("stamp") == list(stamp) else None


def _keep(path: Path, stamp: Stamp, digest: str) -> None:
    # a cache that is not there yet, full or closed costs the next process its time, and nothing else
    with contextlib.suppress(OSError):
        if not path.parent.parent.is_dir():
            return
        make_folder(path.parent)
        write_json(path, {"stamp": list(stamp), "sha256": digest})
