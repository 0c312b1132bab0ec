"""Arrays as files: summed up while they are written, held against that when they are read, never pickled.

Large arrays are read as read-only memory maps, small ones into memory. A map whose file another program
shortens in place ends the process that looks at it (SIGBUS), so that what is mapped is a copy without a name
on the same disk, which nobody else can reach; where a disk has no room or no such files it is in memory. On a
network file system, where another machine can remove a file that is mapped here, all are read into memory.
"""

import io
import math
import os
import re
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np

from gprune.store import checksums
from gprune.store.checksums import Writer

LARGEST_IN_MEMORY = 2**20
"""bytes of a file up to which an array is read into memory"""
# as numpy writes it for plain numbers; its own reader runs a parser of Python over whatever stands there
_HEADER = re.compile(
    rb"\{'descr': '([<>|][fiub]\d{1,2})', 'fortran_order': (?:True|False), "
    rb"'shape': \(((?:\d{1,18},? ?){0,8})\), \} *\n"
)
_LONGEST_HEADER = 2**12
_BLOCK = 2**22
# NumPy parses a header as Python source, and CPython 3.11 can fail at that in two threads at once: "AST
# constructor recursion depth mismatch"
_PARSING = threading.Lock()


def file_name(field: str) -> str:
    """The file that keeps an array field of a record."""
    return f"{field}.npy"


def write(path: Path, array: np.ndarray[Any, Any]) -> str:
    """Writes an array to a new file that only its owner may read; SHA-256 of it. OSError if it cannot."""
    with open(path, "xb") as file:
        writer = Writer(file)
        np.save(writer, array, allow_pickle=False)
        return writer.digest


def read(path: Path, expected: str) -> np.ndarray[Any, Any]:
    """Read an array of this SHA-256 from a file that `write` made.

    Raises OSError where it cannot be read, ValueError where it holds something else, or no array.
    """
    stamp = checksums.stamp(path)
    if stamp[0] > LARGEST_IN_MEMORY:
        _require(expected, checksums.of_file(path), path)
        mapped = _mapped(path, stamp)
        if mapped is not None:
            return mapped
    data = path.read_bytes()
    digest = checksums.of_bytes(data)
    checksums.remember(path, stamp, digest)
    _require(expected, digest, path)
    with _PARSING:
        array: np.ndarray[Any, Any] = np.load(io.BytesIO(data), allow_pickle=False)
    return array


def _mapped(path: Path, stamp: checksums.Stamp) -> np.ndarray[Any, Any] | None:
    """A map of a copy of a file that has this stamp; None where there is no room for one, or no such file.

    Raises OSError where the file cannot be read, ValueError where it changes meanwhile, or holds no array.
    """
    with open(path, "rb") as source:
        try:
            copy = os.open(path.parent, os.O_TMPFILE | os.O_RDWR, 0o600)
        except (AttributeError, OSError):
            return None
        with open(copy, "wb") as target:
            try:
                shutil.copyfileobj(source, target, _BLOCK)
                target.flush()
            except OSError:
                return None
            if checksums.stamp_of(os.fstat(source.fileno())) != stamp:
                raise ValueError(f"{path.name} was changed while it was read")
            with _PARSING:
                return np.load(f"/proc/self/fd/{copy}", mmap_mode="r", allow_pickle=False)


def header(path: Path) -> tuple[tuple[int, ...], np.dtype[Any]] | None:
    """Shape and number type that an array's file begins with; None where the rest does not follow.

    Raises OSError where the file cannot be read.
    """
    with open(path, "rb") as file:
        start, size = file.read(_LONGEST_HEADER), os.fstat(file.fileno()).st_size
    length = int.from_bytes(start[8:10], "little")
    match = _HEADER.fullmatch(start[10 : 10 + length])
    if not start.startswith(b"\x93NUMPY\x01\x00") or match is None:
        return None
    shape = tuple(int(digits) for digits in re.findall(rb"\d+", match[2]))
    try:
        dtype = np.dtype(match[1].decode())
    except TypeError:
        return None
    return (shape, dtype) if 10 + length + math.prod(shape) * dtype.itemsize == size else None


def _require(expected: str, digest: str, path: Path) -> None:
    if digest != expected:
        raise ValueError(f"{path.name} does not hold what was written")
