"""One process owns a run: it holds the run's lock, computes its stages and writes its record.

A second start of the study follows the first: it waits for the lock, then takes what is there and computes what is
missing. An owner that dies leaves "running" behind, and readers see that its process is gone
(gprune.pipeline.runs.writing). A run all of whose results are there works from a cache that cannot be written.
"""

from __future__ import annotations

import contextlib
from typing import Any

from gprune.pipeline import runs
from gprune.pipeline.record import Listener, RunRecord
from gprune.pipeline.stages import Stage
from gprune.system import safe_parsing
from gprune.system.errors import Cancelled, Interrupted, StoreError
from gprune.system.files import Lock, make_folder
from gprune.system.progress import Waiting

LOOK_SECONDS = 0.5
"""seconds between two messages that a second start waits"""


class RunOwner:
    """Owns one run and keeps its record, as a context manager around the work."""

    def __init__(self, record: RunRecord, plan: tuple[Stage[Any], ...], listener: Listener) -> None:
        """Prepare; nothing is written. The listener is told of progress and may raise Cancelled."""
        self._record, self._plan, self.listener = record, plan, listener
        self._lock_path = runs.lock_path(record.results.store.root, record.name)
        self._lock = Lock(self._lock_path)
        self._announced = False
        """True once this process has written the record"""

    def __enter__(self) -> RunOwner:
        """Take the lock, following its holder until it is free, and record that the run goes on unless it is done.

        Raises StoreError if the record cannot be written.
        """
        while self._is_owned_by_another():
            self._report_waiting()
        try:
            self._record.read()
            if not self._record.covers(self._plan):
                self._save_running()
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Record how the run ended; the exception goes on."""
        try:
            if isinstance(error, Interrupted):
                self._save_stopped("interrupted", "its process was asked to leave; continue it, and it goes on there")
            elif isinstance(error, Cancelled | KeyboardInterrupt):
                self._save_stopped("cancelled", "cancelled; finished stages are kept")
            elif isinstance(error, Exception):
                self._save_stopped("failed", safe_parsing.sentence(error))
        finally:
            self._lock.release()

    def announce(self) -> None:
        """Record that something is being computed, whatever the record said. Raises StoreError if it cannot."""
        if not self._announced:
            self._save_running()

    def record_progress(self) -> None:
        """Write the record after a stage has ended, unless the run was done before. Raises StoreError if it cannot."""
        if self._announced:
            self._save_running()

    def finish(self, result: dict[str, Any] | None) -> None:
        """Record that the run is done; an earlier result stays without one. StoreError if it cannot."""
        if self._announced:
            self._record.save("done", result)

    def _is_owned_by_another(self) -> bool:
        # a cache that cannot be written has no owner
        with contextlib.suppress(OSError):
            make_folder(self._lock_path.parent)
            return not self._lock.acquire(LOOK_SECONDS)
        return False

    def _report_waiting(self) -> None:
        record = runs.read(self._record.results.store, self._record.name) or {}
        owner, finished = record.get("owner") or {}, len(record.get("stages", {}))
        holder = f"process {owner['pid']} on {owner['host']}" if owner else "another process"
        text = f"waiting for {holder}, which runs this study ({finished} of {len(record.get('expected') or {})} stages)"
        self.listener(self._plan[-1].name, 0, 1, Waiting(text))

    def _save_running(self) -> None:
        if self._lock.is_held:
            self._record.save("running")
            self._announced = True

    def _save_stopped(self, state: str, error: str) -> None:
        if not self._announced:
            return
        # if the disk is full, the run is shown as interrupted once this process has ended
        with contextlib.suppress(StoreError):
            self._record.save(state, error=error)
