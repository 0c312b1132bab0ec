"""Writes the records of runs, so that a full disk can still be told.

A record begins with its state and its error in a room of fixed size. Saving it replaces the whole file; where
that needs space which is not there, these two are rewritten in place: within one page, so that a reader never
meets half of them, and without any new space.
"""

from __future__ import annotations

import json
import os
from typing import Any

from gprune.pipeline.runs.reading import RECORD
from gprune.store import Store, explain
from gprune.system.files import make_folder, write_bytes
from gprune.system.safe_parsing import sentence

ROOM = 2048
"""bytes of state and error: an error has at most 300 characters, of six bytes each"""


def save(store: Store, run: str, values: dict[str, Any]) -> None:
    """Writes the record of a run (study, keys of its stages, state, result) in one step.

    Raises:
        StoreError: the disk is full or the cache is read-only.
    """
    folder = store.folder("runs", run)
    rest = {name: value for name, value in values.items() if name not in ("state", "error")}
    tail = json.dumps(rest, indent=1, ensure_ascii=False).encode("utf-8")
    known = "state" in values
    data = _head(values["state"], values.get("error")) + tail[1:] if known else tail
    try:
        make_folder(folder)
        write_bytes(folder / RECORD, data)
    except OSError as error:
        raise explain(error, store.root) from error


def restate(store: Store, run: str, state: str, error: str | None) -> bool:
    """Changes the state in a record that is there, without any new space; says whether that was possible."""
    try:
        with open(store.folder("runs", run) / RECORD, "r+b", buffering=0) as file:
            found = file.read(ROOM)
            if len(found) < ROOM or not found.startswith(b'{"state": ') or not found.endswith(b" ,"):
                return False
            os.pwrite(file.fileno(), _head(state, error), 0)
            os.fsync(file.fileno())
    except OSError:
        return False
    return True


def _head(state: object, error: object) -> bytes:
    """The beginning of a record, up to its third field."""
    values = {"state": state, "error": error if error is None else sentence(error)}
    text = json.dumps(values, ensure_ascii=False).encode("utf-8", "replace")[:-1]
    return text.ljust(ROOM - 1) + b","
