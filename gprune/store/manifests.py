"""The `meta.json` of a result: how it was computed, the plain fields of its record, and checksums.

{"seconds": 1.5, ..., "record": "Tokens", "values": {...}, "sha256": {"ids.npy": "9f86…", "values": "6030…"},
 "digest": "1b4f…"}
"""

import json
import os
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from gprune.store import checksums
from gprune.store.checksums import Stamp
from gprune.system import safe_parsing
from gprune.system.files import sync

NAME = "meta.json"
SUMS = "sha256"
VALUES = "values"
DIGEST = "digest"
"""SHA-256 of all other entries"""
_KEY = re.compile(r"[0-9a-f]{32}")


def write(folder: Path, entries: Mapping[str, Any]) -> None:
    """Write the `meta.json` of a folder that was just filled, and flush all of it to the disk.

    Raises OSError if the disk has no room for it.
    """
    paths = sorted(folder.rglob("*"))
    sums = {path.relative_to(folder).as_posix(): checksums.of_file(path) for path in paths if path.is_file()}
    if VALUES in entries:
        sums[VALUES] = _digest(entries[VALUES])
    meta = {**entries, SUMS: sums}
    text = json.dumps({**meta, DIGEST: _digest(meta)}, indent=1, ensure_ascii=False)
    (folder / NAME).write_text(text, encoding="utf-8")
    for path in (*paths, folder / NAME):
        sync(path)
    sync(folder)


def read(folder: Path) -> dict[str, Any] | None:
    """Return the `meta.json` of a folder, or None if nothing is at its path.

    Raises ValueError if it is damaged or missing, OSError if the disk does not return it.
    """
    path = folder / NAME
    try:
        return _read(str(path), checksums.stamp(path))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        if os.path.lexists(folder):
            raise ValueError(f"it has no {NAME}") from error
        return None


@lru_cache(maxsize=4096)
def _read(path: str, _: Stamp) -> dict[str, Any]:
    meta = safe_parsing.json_object(Path(path).read_bytes(), NAME, finite=False)
    if meta.pop(DIGEST, "") != _digest(meta):
        raise ValueError(f"{NAME} does not hold what was written")
    return meta


def require_unchanged(folder: Path, meta: Mapping[str, Any], within: str = "") -> None:
    """Compare every file of a folder, or those below the path `within`, with its checksum.

    Raises ValueError if one was changed or is missing, OSError if one cannot be read.
    """
    for name, digest in meta[SUMS].items():
        if not f"{name}/".startswith(within):
            continue
        try:
            same = digest == (_digest(meta[VALUES]) if name == VALUES else checksums.of_file(folder / name))
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError, KeyError) as error:
            raise ValueError(f"{name} is missing") from error
        if not same:
            raise ValueError(f"{name} does not hold what was written")


def find_damage(path: Path) -> str:
    """Return the damage of a file or folder inside a result, such as the model of a checkpoint, in words.

    Empty if there is none, or the path is in no result. Raises OSError if it cannot be read.
    """
    path = path.absolute()
    for folder in path.parents:
        if _KEY.fullmatch(folder.name) and (folder / NAME).is_file():
            try:
                require_unchanged(folder, read(folder) or {SUMS: {}}, f"{path.relative_to(folder).as_posix()}/")
            except ValueError as error:
                return str(error)
    return ""


def _digest(values: Any) -> str:
    return checksums.of_bytes(json.dumps(values).encode())
