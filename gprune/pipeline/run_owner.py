"""One process owns a run: it holds the run's lock, computes its stages and writes its record.

A second start of the study says so and follows the first: it waits for the lock, then takes what is there and
computes what is missing. An owner that dies leaves "running" behind, and readers see that its process is gone
(gprune.pipeline.runs.writing). A run all of whose results are there works from a cache that cannot be written.
"""

from __future__ import annotations

import time
from typing import Any

from gprune.pipeline import runs
from gprune.pipeline.record import Listener, RunRecord
from gprune.pipeline.runs.writing import BEAT_SECONDS
from gprune.pipeline.stages import KINDS, Stage
from gprune.system import safe_parsing
from gprune.system.errors import Cancelled, Interrupted, StoreError
from gprune.system.progress import Waiting

LOOK_SECONDS = 0.5
"""how often a second start tries the lock"""


class RunOwner:
    """Owns one run and keeps its record, as a context manager around the work."""

    def __init__(self, record: RunRecord, wanted: tuple[Stage[Any], ...], listener: Listener) -> None:
        """Prepare; nothing is written. The listener is told of progress and may raise Cancelled."""
        self._record, self._wanted, self._listener = record, wanted, listener
        self._lock = runs.Ownership(record.results.store, record.name)
        self._announced = False
        """whether this process has written the record"""
        self._was_done = False
        """whether the record said that all of this is done when this process took the lock"""
        self._written = time.monotonic()

    def __enter__(self) -> RunOwner:
        """Take the lock, following its holder until it is free, and record that the run goes on unless it is done.

        Raises StoreError where the record cannot be written.
        """
        while not self._lock.take() and self._lock.writable:
            self._follow()
        try:
            self._record.read()
            self._was_done = self._record.covers(self._essential())
            if not self._was_done:
                self._save()
        except BaseException:
            self._lock.give_up()
            raise
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Record how the run ended; the exception goes on."""
        try:
            if isinstance(error, Interrupted):
                self._stop("interrupted", "its process was asked to leave; continue it, and it goes on there")
            elif isinstance(error, Cancelled | KeyboardInterrupt):
                self._stop("cancelled", "stopped on request; finished stages are kept")
            elif isinstance(error, Exception):
                self._stop("failed", safe_parsing.sentence(error))
        finally:
            self._lock.give_up()

    def heard(self, stage: str, done: int, total: int, message: str) -> None:
        """Pass progress on, and write the record at least every BEAT_SECONDS, which shows that the run is alive.

        Raises Cancelled where the listener wants the run to stop, StoreError where the record cannot be written.
        """
        self._listener(stage, done, total, message)
        if self._announced and time.monotonic() - self._written >= BEAT_SECONDS:
            self._save()

    def announce(self) -> None:
        """Record that something is being computed, whatever the record said; StoreError if it cannot."""
        if not self._announced:
            self._save()

    def noted(self, stage: Stage[Any]) -> None:
        """Write the record after a stage has ended, unless it says so already; StoreError if it cannot."""
        if self._announced or not self._record.covers([stage]):
            self._save()

    def finish(self, result: dict[str, Any] | None) -> None:
        """Record that the run is done; an earlier result stays without one. StoreError if it cannot."""
        if self._lock.held and (self._announced or not self._record.covers(self._wanted)):
            self._record.save("done", result)

    def _follow(self) -> None:
        found = runs.read(self._record.results.store, self._record.name) or {}
        owner, done = found.get("owner") or {}, len(found.get("stages", {}))
        where = f"process {owner['pid']} on {owner['host']}" if owner else "another process"
        words = f"waiting for {where}, which runs this study ({done} of {len(found.get('expected') or {})} stages)"
        self._listener(self._wanted[-1].name, 0, 1, Waiting(words))
        time.sleep(LOOK_SECONDS)

    def _save(self) -> None:
        if self._lock.held:
            self._record.save("running")
            self._announced, self._written = True, time.monotonic()

    def _stop(self, state: str, error: str) -> None:
        if not self._announced:
            return
        if self._was_done and self._record.whole(self._essential()):
            self._record.save("done")
            return
        try:
            self._record.save(state, error=error)
        except StoreError:
            # on a full disk the run reads as interrupted once this process has ended
            return

    def _essential(self) -> list[Stage[Any]]:
        """Return the stages without those that a run is complete without."""
        return [stage for stage in self._wanted if not KINDS[stage.kind].extra]
