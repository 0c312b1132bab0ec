"""Files written whole or not at all: under another name first, then moved into place in one step.

A reader meets the old file or the new one, never half of one; a write that fails leaves the old one alone.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4


def beside(path: Path) -> Path:
    """A hidden name in the same folder, with the same ending, that no other process or thread has chosen."""
    return path.with_name(f".{path.stem}-{uuid4().hex}{path.suffix}")


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A temporary path to write to; the file takes the place of `path` when the context ends without error.

    Nothing is left under the temporary name, whatever happens.

    Raises:
        OSError: the file cannot be moved into place.
    """
    temporary = beside(path)
    try:
        yield temporary
        temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def write_bytes(path: Path, data: bytes) -> None:
    """Writes a file in one step.

    Raises:
        OSError: the file cannot be written; one that was there is unchanged.
    """
    with replaced(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """Writes a text in one step, as UTF-8 and with its line ends as they are.

    Raises:
        OSError: the file cannot be written; one that was there is unchanged.
    """
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Writes a value as JSON in one step; letters beyond ASCII stay readable.

    Args:
        path: file to write; an existing one is replaced.
        value: what JSON can hold.

    Raises:
        OSError: the file cannot be written; one that was there is unchanged.
    """
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False))
