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
from functools import partial
from pathlib import Path

from gprune.store.checksums import Stamp, settled, stamp_of
from gprune.system import machine, safe_parsing
from gprune.system.errors import UnreadableError
from gprune.system.files import make_folder, write_json
from gprune.system.network_files import again

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
        return [again(partial(_of_file, path, memory, salt)) for path in paths]
    with ThreadPoolExecutor(min(len(paths), machine.cores())) as pool:
        return list(pool.map(lambda path: again(partial(_of_file, path, memory, salt)), paths))


def _of_file(path: Path, memory: Path | None, salt: bytes) -> str:
    place = path.resolve()
    with open(place, "rb") as file:
        seen = stamp_of(os.fstat(file.fileno()))
        kept = _record(memory, place, salt) if memory is not None and seen[0] >= _LARGE else None
        known, found = _known.get((str(place), salt)), None
        if known is not None and known[0] == seen:
            found = known[1]
        elif kept is not None:
            found = _recorded(kept, seen)
        digest = found or hashlib.file_digest(file, lambda: hashlib.sha256(salt)).hexdigest()
        if settled(seen) and stamp_of(os.fstat(file.fileno())) == seen:
            _known[str(place), salt] = seen, digest
            if kept is not None and found is None:
                _keep(kept, seen, digest)
    return digest


def _record(memory: Path, place: Path, salt: bytes) -> Path:
    """The small file that keeps the digest of a file."""
    named = hashlib.sha256(os.fsencode(place) + b"\0" + salt).hexdigest()
    return memory / f"{named[:32]}.json"


def _recorded(kept: Path, seen: Stamp) -> str | None:
    """The digest that was kept of a file which looks so; what cannot be read or is none counts as nothing."""
    try:
        found = safe_parsing.json_object(kept.read_bytes(), "the digest")
    except (OSError, UnreadableError):
        return None
    digest = found.get("sha256")
    valid = isinstance(digest, str) and len(digest) == 64 and not set(digest) - set("0123456789abcdef")
    return str(digest) if valid and found.get("stamp") == list(seen) else None


def _keep(kept: Path, seen: Stamp, digest: str) -> None:
    # a cache that is not there yet, full or closed costs the next process its time, and nothing else
    with contextlib.suppress(OSError):
        if not kept.parent.parent.is_dir():
            return
        make_folder(kept.parent)
        write_json(kept, {"stamp": list(seen), "sha256": digest})
