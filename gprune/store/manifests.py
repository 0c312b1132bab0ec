"""What stands in a result's folder: which files, how long and of which content, and the record's values.

    {..., "record": "Tokens", "values": {...}, "files": {"ids.npy": 4224},
     "sha256": {"ids.npy": "9f86…"}, "seal": "60303…"}

The seal is the SHA-256 of the manifest itself with zeros in its place, so that a changed letter is found as a
changed array is.

`look` says whether a folder is what its manifest says, without reading an array: names, sizes, number types
and shapes. What a record may hold follows from its class. `unlike` reads everything and compares checksums.
"""

import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from gprune import records
from gprune.records.base import axes_of
from gprune.store import array_files, checksums
from gprune.store.checksums import Stamp
from gprune.store.manifest_records import details_fault, plain_values, record_fault
from gprune.system import safe_parsing
from gprune.system.errors import UnreadableError
from gprune.system.files import sync

NAME = "manifest.json"
SUMS = "sha256"
SEAL, _UNSEALED = "seal", "0" * 64
OF_FILES = ("files", SUMS, SEAL)
"""what a manifest says of the files beside it, and of itself"""
_MOST_BYTES = 2**24
_MISSING: Stamp = (-1, -1, -1)
_DIGEST, _KEY = re.compile(r"[0-9a-f]{64}"), re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Looked:
    """What a folder was seen to hold."""

    manifest: dict[str, Any] | None
    """None where it is damaged or absent"""
    fault: str
    """what is wrong with it, as the end of a sentence; empty if nothing is or nothing is there"""
    stamps: dict[str, Stamp]
    """every file that was looked at"""


_looked: dict[tuple[str, type | None], Looked] = {}


class _DamagedError(ValueError):
    """Something is not as it was written."""


def sealed(entries: Mapping[str, Any]) -> bytes:
    """A manifest as it is written, with its own checksum as the last entry."""
    text = json.dumps({**entries, SEAL: _UNSEALED}, indent=1, ensure_ascii=False)
    head, _, tail = text.rpartition(_UNSEALED)
    return f"{head}{checksums.of_bytes(text.encode())}{tail}".encode()


def close(folder: Path, entries: Mapping[str, Any], sums: Mapping[str, str], kind: type | None) -> None:
    """Ends a folder that was just filled: its manifest is written, and the disk has all of it.

    Nobody else knows of its files; `entries` are what the manifest says besides of files and checksums, of
    which `sums` are known from the writing; `kind` is the class of the record, if it is one. Raises OSError
    where the disk has no room for it, ValueError where what was written is no such record.
    """
    paths = sorted(folder.rglob("*"))
    names = {str(path.relative_to(folder)): path for path in paths if path.is_file()}
    manifest = {
        **{name: value for name, value in entries.items() if name not in OF_FILES},
        "files": {name: path.stat().st_size for name, path in names.items()},
        SUMS: {name: sums.get(name) or checksums.of_file(path) for name, path in names.items()},
    }
    fault = record_fault(folder, json.loads(json.dumps(manifest)), kind) if kind else ""
    if fault:
        raise ValueError(f"what was made is not what it should be: {fault}")
    (folder / NAME).write_bytes(sealed(manifest))
    for path in (*paths, folder / NAME):
        path.chmod(0o700 if path.is_dir() else 0o600)
        sync(path)
    sync(folder)


def fields_of(folder: Path, manifest: Mapping[str, Any], kind: type) -> dict[str, Any]:
    """Every field of a record, from a folder that was looked at; what is read is held against its checksum.

    Raises OSError where a file cannot be read, ValueError where one does not hold what was written.
    """
    sums = manifest[SUMS]
    names = {name: array_files.file_name(name) for name in axes_of(kind)}
    arrays = {name: array_files.read(folder / file, sums[file]) for name, file in names.items()}
    return plain_values(kind, manifest) | arrays


def look(folder: Path, kind: type | None = None) -> Looked:
    """What a result's folder holds; known while none of its files has changed.

    `kind` is the class of its record, by default the one that the manifest names. Raises OSError where the
    disk or its permissions keep it from being read.
    """
    looked = _looked.get((str(folder), kind))
    if looked is None or looked.stamps != _stamps(folder, looked.stamps):
        looked = _look(folder, kind)
        _keep(folder, kind, looked)
    if looked.manifest is not None:
        for name, expected in looked.manifest[SUMS].items():
            # what a read has found out; nothing is read here
            if checksums.known(folder / name, looked.stamps[name]) not in (expected, None):
                return Looked(None, changed(name), looked.stamps)
    return looked


def stamp_of(folder: Path) -> str:
    """What changes whenever a file that lies right in a folder does; empty where there is no such folder."""
    try:
        with os.scandir(folder) as entries:
            stamps = sorted((entry.name, *checksums.stamp_of(entry.stat())) for entry in entries)
    except OSError:
        return ""
    return repr(stamps)


def refuse(folder: Path, kind: type, fault: str) -> None:
    """Remembers that a folder cannot be used although its manifest fits, until one of its files changes."""
    for record_type in (kind, None):
        looked = look(folder, record_type)
        _keep(folder, record_type, Looked(None, looked.fault or fault, looked.stamps))


def unlike(folder: Path, manifest: Mapping[str, Any]) -> str:
    """Which file of a folder does not hold what was written; every file is read.

    Empty if all do. Raises OSError where one cannot be read.
    """
    sums = manifest[SUMS]
    return next((changed(name) for name in sums if checksums.of_file(folder / name) != sums[name]), "")


def spoilt(path: Path) -> str:
    """What is wrong with a file or a folder inside a result, as the model of a checkpoint.

    The end of a sentence; empty if nothing is wrong, or the path lies in no result. Raises OSError where it
    cannot be read.
    """
    for folder in path.absolute().parents:
        if _KEY.fullmatch(folder.name) and (folder / NAME).is_file():
            looked, inner = look(folder), path.absolute().relative_to(folder).as_posix()
            sums = (looked.manifest or {}).get(SUMS, {})
            chosen = {name: one for name, one in sums.items() if f"{name}/".startswith(f"{inner}/")}
            return looked.fault or unlike(folder, {SUMS: chosen})
    return ""


def changed(name: str) -> str:
    """The fault of a file with another checksum."""
    return f"{name} does not hold what was written"


def _keep(folder: Path, kind: type | None, looked: Looked) -> None:
    if _MISSING not in looked.stamps.values() and all(map(checksums.settled, looked.stamps.values())):
        _looked[str(folder), kind] = looked
    else:
        _looked.pop((str(folder), kind), None)


def _stamps(folder: Path, names: Mapping[str, Stamp]) -> dict[str, Stamp]:
    stamps = {}
    for name in names:
        try:
            stamps[name] = checksums.stamp(folder / name)
        except OSError:
            stamps[name] = _MISSING
    return stamps


def _look(folder: Path, kind: type | None) -> Looked:
    stamps = _stamps(folder, {NAME: (0, 0, 0)})
    try:
        status = os.lstat(folder / NAME)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_BYTES:
            return Looked(None, f"its {NAME} is no file of such a kind", stamps)
        data = (folder / NAME).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        half = os.path.lexists(folder)
        return Looked(None, f"it has no {NAME}" if half else "", stamps)
    try:
        manifest = _read(data)
        _require_names(manifest["files"])
        stamps |= _stamps(folder, manifest["files"])
        _require_files(folder, manifest["files"])
        record_type = kind or _named(manifest)
        fault = details_fault(manifest) or (record_fault(folder, manifest, record_type) if record_type else "")
    except (UnreadableError, _DamagedError) as error:
        return Looked(None, str(error), stamps)
    return Looked(None if fault else manifest, fault, stamps)


def _read(data: bytes) -> dict[str, Any]:
    """A manifest whose entries on files are in order."""
    manifest = safe_parsing.json_object(data, NAME, finite=False)
    seal = manifest.get(SEAL)
    if not isinstance(seal, str) or not _DIGEST.fullmatch(seal) or _seal_of(data, seal) != seal:
        raise _DamagedError(f"{NAME} is not as it was written")
    files = manifest.get("files")
    if not isinstance(files, dict) or not all(type(size) is int and size >= 0 for size in files.values()):
        raise _DamagedError(f"{NAME} does not say which files there are")
    if not _is_sums(manifest.get(SUMS), files):
        raise _DamagedError(f"{NAME} lacks checksums")
    return manifest


def _seal_of(data: bytes, seal: str) -> str:
    head, _, tail = data.rpartition(seal.encode())
    return checksums.of_bytes(head + _UNSEALED.encode() + tail)


def _is_sums(sums: object, files: Mapping[str, int]) -> bool:
    if not isinstance(sums, dict) or sums.keys() != files.keys():
        return False
    return all(isinstance(value, str) and _DIGEST.fullmatch(value) for value in sums.values())


def _require_names(files: Mapping[str, int]) -> None:
    """Checks that every file is named as one below the folder."""
    for name in files:
        path = PurePosixPath(name)
        longest = max((len(part.encode("utf-8", "surrogatepass")) for part in path.parts), default=0)
        plain = str(path) == name and not path.is_absolute() and ".." not in path.parts
        if not plain or "\0" in name or not 0 < longest <= 255 or name == NAME:
            raise _DamagedError(f"{NAME} names the file {safe_parsing.quoted(name)}")


def _require_files(folder: Path, files: Mapping[str, int]) -> None:
    """Checks that the files are there, of the sizes that they had, and nowhere else."""
    for name, size in files.items():
        parts = PurePosixPath(name).parts
        try:
            places = [folder.joinpath(*parts[: end + 1]) for end in range(len(parts))]
            statuses = [os.lstat(place) for place in places]
        except (OSError, ValueError) as error:
            raise _DamagedError(f"{safe_parsing.quoted(name)} is missing") from error
        *above, status = statuses
        if not all(stat.S_ISDIR(parent.st_mode) for parent in above):
            # a link could lead anywhere
            raise _DamagedError(f"{safe_parsing.quoted(name)} is in no folder of its own")
        if not stat.S_ISREG(status.st_mode):
            raise _DamagedError(f"{safe_parsing.quoted(name)} is no file")
        if status.st_size != size:
            raise _DamagedError(f"{safe_parsing.quoted(name)} has {status.st_size} bytes instead of {size}")


def _named(manifest: Mapping[str, Any]) -> type | None:
    """The class of the record that a manifest names; None for a folder without a record."""
    name = manifest.get("record")
    if name is None:
        return None
    if not isinstance(name, str) or name not in records.__all__:
        raise _DamagedError(f"{NAME} names the record {safe_parsing.quoted(name)}")
    return getattr(records, name)
