"""Reads the records of runs, whatever is in the files."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gprune.pipeline.runs import form
from gprune.store import Store
from gprune.system import safe_parsing
from gprune.system.errors import StoreError, UnreadableError
from gprune.system.nearest import did_you_mean

RECORD = "run.json"
MOST_BYTES = 16 * 2**20
"""a run of every method on twenty texts leaves some hundred kilobytes"""
REMEDY = "run its study again, which finds every finished stage and writes the record anew"
"""what is to be done where a record cannot be read"""


def load(path: Path) -> dict[str, Any]:
    """The record in a file, with every field of the form that the program relies on.

    Raises UnreadableError with one sentence that begins with the file and says what is wrong with it.
    """
    try:
        return form.check(_values(path))
    except UnreadableError as error:
        raise UnreadableError(safe_parsing.sentence(f"{path} {error}")) from error


def _values(path: Path) -> Any:
    try:
        if not form.is_name(path.parent.name):
            raise UnreadableError("is in a folder whose name is not one of a run")
        status = path.stat()
        # a pipe would be waited for
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableError("is no file")
        if status.st_size > MOST_BYTES:
            raise UnreadableError(f"has {status.st_size} bytes; at most {MOST_BYTES} are read")
        data = path.read_bytes()
    except OSError as error:
        raise UnreadableError(f"cannot be read ({error.strerror or error})") from error
    try:
        # a perplexity in the result may be beyond every float
        return safe_parsing.json_value(data, "its text", finite=False)
    except UnreadableError as error:
        raise UnreadableError(f"is not readable JSON ({error})") from error


def read(store: Store, run: str) -> dict[str, Any] | None:
    """The record of a run; None when there is none that can be read."""
    try:
        return load(store.folder("runs", run) / RECORD)
    except UnreadableError:
        return None


def required(store: Store, run: str) -> dict[str, Any]:
    """The record of a run that a person has named; StoreError where none of that name can be read."""
    path = store.folder("runs", run) / RECORD
    try:
        return load(path)
    except UnreadableError as error:
        if os.path.lexists(path):
            raise StoreError(f"{error}; {REMEDY}") from error
        near = did_you_mean(run, (other.parent.name for other in path.parents[1].glob(f"*/{RECORD}")))
        raise StoreError(
            f"there is no run {safe_parsing.quoted(run)}{near} in {store.root}: `python -m gprune runs` "
            "lists those that are"
        ) from error


def every(store: Store) -> Iterator[tuple[str, dict[str, Any]]]:
    """The runs that can be read with their records, the latest written first."""
    found = []
    for path in (store.root / "runs").glob(f"*/{RECORD}"):
        try:
            found.append((path.stat().st_mtime_ns, path))
        except OSError:
            # it was deleted meanwhile
            continue
    for _, path in sorted(found, reverse=True):
        try:
            yield path.parent.name, load(path)
        except UnreadableError:
            continue
