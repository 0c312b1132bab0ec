"""Writes the records of runs."""

from __future__ import annotations

from typing import Any

from gprune.files import make_folder, write_json
from gprune.run_records.reading import RECORD
from gprune.store import Store, explain


def save(store: Store, run: str, values: dict[str, Any]) -> None:
    """Writes the record of a run (study, keys of its stages, state, result) in one step.

    Raises:
        StoreError: the disk is full or the cache is read-only.
    """
    folder = store.folder("runs", run)
    try:
        make_folder(folder)
        write_json(folder / RECORD, values)
    except OSError as error:
        raise explain(error, store.root) from error
