"""SHA-256 checksums of files, and the `meta.json` of a result, which has the checksums of its files.

A process computes a checksum at the first read, and remembers it as long as the file's size, inode and time of last
change (`ctime`) stay the same. Models and texts of a study are large files outside the cache. The cache therefore
stores their digests, so that a command on a model of 7 billion parameters does not read 13 GB before it starts.

`meta.json` holds how a result was computed, the plain fields of its record, and checksums:

    {"seconds": 1.5, ..., "record": "Tokens", "values": {...}, "sha256": {"ids.npy": "9f86…", "values": "6030…"},
     "digest": "1b4f…"}
"""

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

from gprune.system import machine, safe_parsing
from gprune.system.errors import UnreadableError
from gprune.system.files import make_folder, sync, write_json

Stamp = tuple[int, int, int]
"""size, inode and time of the last change (`ctime`, in nanoseconds) of a file"""

# two changes within one tick of the file system's clock have the same time
_TICK_NANOSECONDS = 50_000_000
_remembered: dict[tuple[str, bytes], tuple[Stamp, str]] = {}
"""stamp and SHA-256 of the files that this process has read, by path and salt"""
DIGEST_FOLDER = "digests"
"""folder of the cache with the digests of large files"""
_LARGE_FILE = 1 << 20
"""size in bytes from which a file's digest is stored in that folder"""
MANIFEST = "meta.json"
SUMS = "sha256"
"""entry of `meta.json` with the SHA-256 of each file and of the entry VALUES"""
VALUES = "values"
"""entry with the plain fields of the record"""
DIGEST = "digest"
"""entry with the SHA-256 of all other entries"""
_KEY = re.compile(r"[0-9a-f]{32}")
"""name of a result's folder"""


def stamp(path: Path) -> Stamp:
    """Return the stamp of a file, which changes whenever the file does. Raises OSError if there is none."""
    return stamp_of(path.stat())


def stamp_of(status: os.stat_result) -> Stamp:
    """Return the stamp of a file from its status."""
    return status.st_size, status.st_ino, status.st_ctime_ns


def of_file(path: Path, salt: bytes = b"") -> str:
    """Return the SHA-256 of a salt followed by a file's content. Raises OSError if the file cannot be read."""
    before = stamp(path)
    digest = remembered_checksum(path, before, salt)
    if digest is None:
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, lambda: hashlib.sha256(salt)).hexdigest()
            # a file that changed while it was read is not remembered
            if stamp_of(os.fstat(file.fileno())) == before:
                remember(path, before, digest, salt)
    return digest


def remembered_checksum(path: Path, stamp: Stamp, salt: bytes = b"") -> str | None:
    """Return the remembered SHA-256 of a file if it still has this stamp, else None. No file is read."""
    entry = _remembered.get((str(path), salt))
    return entry[1] if entry is not None and entry[0] == stamp else None


def remember(path: Path, stamp: Stamp, digest: str, salt: bytes = b"") -> None:
    """Remember the SHA-256 of a file with this stamp, unless a later change could give the same stamp."""
    # the last entry of a stamp is the time of the change
    if time.time_ns() - stamp[-1] > _TICK_NANOSECONDS:
        _remembered[str(path), salt] = stamp, digest


def of_files(paths: Sequence[Path], digest_folder: Path | None = None, salt: bytes = b"") -> list[str]:
    """Return the SHA-256 of some files, in order.

    `digest_folder` is a folder that stores the digests of large files for other processes; `salt` is hashed before the
    content. Raises OSError if a file cannot be read.
    """
    if sum(path.stat().st_size >= _LARGE_FILE for path in paths) < 2:
        return [_digest_file(path, digest_folder, salt) for path in paths]
    with ThreadPoolExecutor(min(len(paths), machine.cores())) as pool:
        return list(pool.map(lambda path: _digest_file(path, digest_folder, salt), paths))


def _digest_file(path: Path, digest_folder: Path | None, salt: bytes) -> str:
    """Return the SHA-256 of a file, that of a large one from `digest_folder` if it is stored there."""
    path = path.resolve()
    before = size, _, _ = stamp(path)
    digest = remembered_checksum(path, before, salt)
    if digest is not None or digest_folder is None or size < _LARGE_FILE:
        return digest or of_file(path, salt)
    # a zero byte separates the path, which cannot contain one, from the salt
    digest_path = digest_folder / f"{hashlib.sha256(os.fsencode(path) + bytes(1) + salt).hexdigest()[:32]}.json"
    digest = _read_digest(digest_path, before)
    if digest is not None:
        remember(path, before, digest, salt)
        return digest
    digest = of_file(path, salt)
    # a digest that is not even remembered may be outdated, so it is not stored either
    if remembered_checksum(path, before, salt):
        _write_digest(digest_path, before, digest)
    return digest


def _read_digest(path: Path, stamp: Stamp) -> str | None:
    """Return the stored digest of a file if the file still has this stamp, else None."""
    try:
        values = safe_parsing.json_object(path.read_bytes(), "the digest")
    except (OSError, UnreadableError):
        return None
    digest: str | None = values.get("sha256") if values.get("stamp") == list(stamp) else None
    return digest


def _write_digest(path: Path, stamp: Stamp, digest: str) -> None:
    # without a cache, or with a full or read-only one, the next process computes the digest again
    with contextlib.suppress(OSError):
        # the second parent is the cache, which is not created for a digest
        if path.parent.parent.is_dir():
            make_folder(path.parent)
            write_json(path, {"stamp": list(stamp), "sha256": digest})


def write_manifest(folder: Path, entries: Mapping[str, Any]) -> None:
    """Write `entries` and checksums to the `meta.json` of a newly filled folder, and flush the folder to the disk.

    Raises OSError if the disk is full.
    """
    paths = sorted(folder.rglob("*"))
    sums = {path.relative_to(folder).as_posix(): of_file(path) for path in paths if path.is_file()}
    if VALUES in entries:
        sums[VALUES] = _digest_values(entries[VALUES])
    meta = {**entries, SUMS: sums}
    text = json.dumps({**meta, DIGEST: _digest_values(meta)}, indent=1, ensure_ascii=False)
    (folder / MANIFEST).write_text(text, encoding="utf-8")
    for path in (*paths, folder / MANIFEST):
        sync(path)
    sync(folder)


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """Return the `meta.json` of a folder, or None if the folder does not exist.

    Raises ValueError if the file is damaged or missing, OSError if the disk cannot read it.
    """
    path = folder / MANIFEST
    try:
        return _read_manifest(str(path), stamp(path))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        if os.path.lexists(folder):
            raise ValueError(f"it has no {MANIFEST}") from error
        return None


@lru_cache(maxsize=4096)
def _read_manifest(path: str, _: Stamp) -> dict[str, Any]:
    """Return the contents of a `meta.json`. Raises ValueError if they do not match their own digest."""
    # the stamp is part of the cache key, so a changed file is read again
    meta = safe_parsing.json_object(Path(path).read_bytes(), MANIFEST, finite=False)
    if meta.pop(DIGEST, "") != _digest_values(meta):
        raise ValueError(f"{MANIFEST} does not hold what was written")
    return meta


def require_unchanged(folder: Path, meta: Mapping[str, Any], within: str = "") -> None:
    """Compare every file of a folder with its checksum in `meta`, the folder's `meta.json`.

    With `within`, only the files at or below this path in the folder are compared; it ends in a slash. Raises
    ValueError if a file was changed or is missing, OSError if a file cannot be read.
    """
    for name, digest in meta[SUMS].items():
        if not f"{name}/".startswith(within):
            continue
        try:
            same = digest == (_digest_values(meta[VALUES]) if name == VALUES else of_file(folder / name))
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError, KeyError) as error:
            raise ValueError(f"{name} is missing") from error
        if not same:
            raise ValueError(f"{name} does not hold what was written")


def find_damage(path: Path) -> str:
    """Return a description of the damage to a file or folder inside a result, such as the model of a checkpoint.

    The description is empty if there is no damage, or if the path is in no result. Raises OSError if the path cannot
    be read.
    """
    path = path.absolute()
    for folder in path.parents:
        if _KEY.fullmatch(folder.name) and (folder / MANIFEST).is_file():
            try:
                require_unchanged(
                    folder, read_manifest(folder) or {SUMS: {}}, f"{path.relative_to(folder).as_posix()}/"
                )
            except ValueError as error:
                return str(error)
    return ""


def _digest_values(values: Any) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()
