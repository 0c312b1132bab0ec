"""Who writes the record of a run, and what it may say: the truth, however many processes run the study.

- One process owns the record at a time. It holds the run's lock and is named in the record while the run goes
  on; only the owner writes. Any other starter of the study shares the work and watches: should the owner die
  or end, it takes the record over as soon as it notices, within a second or so, and enters what it has.
- A record that says "done" stays as it is for as long as it is true. A starter that finds everything it wants
  in it writes nothing; one that has to compute something, or wants more, says "running" when it begins to.
  So a starter that is stopped or fails leaves "done" where the results are all there, and never turns the
  state of another process's run into its own.
- A starter that reaches its end sees to it that the record says so. Where another one owns the record, it
  waits until that one has said "done" or has gone, and then says it itself. It does not wait for an owner
  that was asked for more: the record goes on to say "running", and lists what is there.
- Where a later starter was asked for more than an earlier one, the record goes on with it as with a new run:
  stopped on its way, the run is "cancelled", and what the first has finished stays in it.
- An owner that dies leaves "running" behind: readers see that its process is gone and call the run
  interrupted (gprune.pipeline.runs.writing). On a full disk the state and the reason are rewritten in
  place.
- A process that a signal asks to leave says "interrupted" itself, so that another machine knows as well.
- In a cache that cannot be written no record is, and a run all of whose results are there still ends well.
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
"""how often a starter that does not own the record looks whether it can"""


class RunOwner:
    """Keeps the record of one run true while the run goes on, as a context manager around it."""

    def __init__(self, record: RunRecord, wanted: tuple[Stage[Any], ...], listener: Listener) -> None:
        """Prepares; nothing is written. The listener is told of progress and may raise Cancelled."""
        self._record, self._wanted, self._listener = record, wanted, listener
        self._right = runs.Ownership(record.results.store, record.name)
        self._announced = False
        """whether this process has written the record"""
        self._was_done = False
        """whether the record said that all of this is done when this process took it over"""
        self._looked = self._written = time.monotonic()

    def __enter__(self) -> RunOwner:
        """Takes the record, if nobody has it, and says that the run goes on, unless it is done already.

        Raises StoreError where the record cannot be written.
        """
        try:
            self._claim()
        except BaseException:
            self._right.give_up()
            raise
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Says how the run ended, where that is this process's to say; the exception goes on."""
        try:
            if isinstance(error, Interrupted):
                self._stopped("interrupted", "its process was asked to leave; continue it, and it goes on there")
            elif isinstance(error, Cancelled | KeyboardInterrupt):
                self._stopped("cancelled", "stopped on request; finished stages are kept")
            elif isinstance(error, Exception):
                self._stopped("failed", safe_parsing.sentence(error))
        finally:
            self._right.give_up()

    def heard(self, stage: str, done: int, total: int, message: str) -> None:
        """Passes progress on, and now and then shows that the run is alive.

        Raises Cancelled where the listener wants the run to stop, StoreError where the record cannot be
        written.
        """
        self._listener(stage, done, total, message)
        now = time.monotonic()
        if self._right.held:
            if self._announced and now - self._written >= BEAT_SECONDS:
                self._save()
        elif now - self._looked >= LOOK_SECONDS:
            self._claim()

    def announce(self) -> None:
        """Says that something is being computed, whatever the record said; StoreError if it cannot."""
        if self._claim() and not self._announced:
            self._save()

    def noted(self, stage: Stage[Any]) -> None:
        """Writes down a stage that the record has just been told of, unless it is there already.

        Raises StoreError where the record cannot be written.
        """
        if self._claim() and (self._announced or not self._record.covers([stage])):
            self._save()

    def finish(self, result: dict[str, Any] | None) -> None:
        """Says that the run is done, or sees to it that its owner does; an earlier result stays without one.

        Raises Cancelled where the listener wants it to stop while it waits, StoreError where it cannot be
        written.
        """
        last = self._wanted[-1].name
        while not self._claim():
            self._record.read()
            if not self._right.writable or self._record.covers(self._wanted) or self._owner_goes_on():
                return
            self._listener(last, 0, 1, Waiting("waiting for the process that keeps the record of this run"))
            time.sleep(LOOK_SECONDS / 5)
        if self._announced or not self._record.covers(self._wanted):
            self._record.save("done", result)

    def _claim(self) -> bool:
        """Whether this process owns the record; one that becomes its owner goes on from what is there."""
        if self._right.held:
            return True
        self._looked = time.monotonic()
        if not self._right.take():
            return False
        self._record.read()
        # what a run is whole without does not make a finished one unfinished, should it not come
        self._was_done = self._record.covers([one for one in self._wanted if not KINDS[one.kind].extra])
        if not self._was_done:
            self._save()
        return True

    def _save(self) -> None:
        self._record.save("running")
        self._announced, self._written = True, time.monotonic()

    def _owner_goes_on(self) -> bool:
        """Whether the record is that of a living process which was asked for all of this and for more."""
        found = self._record.previous
        mine, theirs = {stage.name for stage in self._wanted}, set(found.get("expected") or {})
        return runs.standing(found) == "running" and mine < theirs

    def _stopped(self, state: str, error: str) -> None:
        """Says how a run ended before its end, where that is this process's to say."""
        if not self._right.held or not self._announced:
            return
        record = self._record
        done = self._was_done and record.whole(one for one in self._wanted if not KINDS[one.kind].extra)
        state, reason = ("done", None) if done else (state, error)
        try:
            record.save(state, error=reason)
        except StoreError:
            # on a full disk; where even this fails, the run reads as interrupted
            runs.restate(record.results.store, record.name, state, reason)
