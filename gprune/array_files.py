"""Arrays as files: summed up while they are written, held against that when they are read, never pickled.

Large arrays are read as read-only memory maps, small ones into memory: a map whose file another program
shortens in place ends the process that looks at it (SIGBUS), and a small array is not worth that.
"""

from __future__ import annotations

import io
import math
import os
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from gprune import checksums
from gprune.checksums import Writer

LARGEST_IN_MEMORY = 2**20
"""bytes of a file up to which an array is read into memory"""
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def file_name(field: str) -> str:
    """The file that keeps an array field of a record."""
    return f"{field}.npy"


def write(path: Path, array: np.ndarray[Any, Any]) -> str:
    """Writes an array to a new file that only its owner may read.

    Returns:
        SHA-256 of what was written.

    Raises:
        OSError: the file cannot be written.
    """
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        writer = Writer(file)
        np.save(writer, array, allow_pickle=False)
        return writer.digest


def read(path: Path, wanted: str | None) -> np.ndarray[Any, Any]:
    """Reads an array.

    Args:
        path: file that `write` made.
        wanted: SHA-256 of what was written; None where it is not known.

    Raises:
        OSError: the file cannot be read.
        ValueError: it holds something else, or no array.
    """
    seen = checksums.stamp(path)
    if seen[0] > LARGEST_IN_MEMORY:
        _require(wanted, checksums.of_file(path) if wanted else wanted, path)
        return np.load(path, mmap_mode="r", allow_pickle=False)
    data = path.read_bytes()
    digest = checksums.of_bytes(data)
    checksums.remember(path, seen, digest)
    _require(wanted, digest if wanted else wanted, path)
    found: np.ndarray[Any, Any] = np.load(io.BytesIO(data), allow_pickle=False)
    return found


def header(path: Path) -> tuple[tuple[int, ...], np.dtype[Any]] | None:
    """Shape and number type that an array's file begins with; None where the rest does not follow."""
    try:
        with open(path, "rb") as file:
            shape, dtype = _read_header(file)
            rest = os.fstat(file.fileno()).st_size - file.tell()
    except (OSError, ValueError, TypeError, MemoryError, RecursionError, KeyError):
        return None
    whole = all(type(length) is int and length >= 0 for length in shape)
    return (shape, dtype) if whole and math.prod(shape) * dtype.itemsize == rest else None


def _read_header(file: BinaryIO) -> tuple[tuple[int, ...], np.dtype[Any]]:
    shape, _, dtype = _HEADERS[np.lib.format.read_magic(file)](file)
    return shape, dtype


def _require(wanted: str | None, digest: str | None, path: Path) -> None:
    if digest != wanted:
        raise ValueError(f"{path.name} does not hold what was written")
