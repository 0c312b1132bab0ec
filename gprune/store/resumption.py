"""Resume a stage that takes long where an earlier process stopped, with the same bits on a CPU.

The checkpoint is replaced after every epoch, at least every 60 seconds of steps, and when the stage is stopped
between two steps. A checkpoint that cannot be written costs one notice, and the work goes on.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gprune.store.states import State, StateFile
from gprune.system import safe_parsing
from gprune.system.errors import Cancelled, DamagedError, SettingsError, StoreError
from gprune.system.progress import Notice, Progress

VARIABLE = "GPRUNE_SAVE_SECONDS"
"""environment variable with the most seconds between two checkpoints; in no key"""
SAVE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Spent:
    """Cost of a stage so far."""

    forward: int = 0
    """tokens that the dense model was run over"""
    backward: int = 0
    """tokens whose gradients went back through it"""
    seconds: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        """Return the sum of both costs."""
        return Spent(self.forward + other.forward, self.backward + other.backward, self.seconds + other.seconds)

    @classmethod
    def of(cls, values: Any) -> Spent:
        """Read `plain` from a checkpoint. Raises ValueError if it is no such list."""
        valid = isinstance(values, list) and len(values) == 3 and {type(number) for number in values} <= {int, float}
        if not valid or not all(math.isfinite(number) and number >= 0 for number in values):
            raise ValueError("it does not say what it has cost")
        return cls(int(values[0]), int(values[1]), float(values[2]))

    @property
    def plain(self) -> list[float]:
        """A list for a checkpoint."""
        return [self.forward, self.backward, round(self.seconds, 3)]


class Resumption:
    """Reads and replaces the checkpoint of one stage; the caller holds the lock of its result."""

    def __init__(self, file: StateFile, spent_here: Callable[[], Spent], progress: Progress) -> None:
        """Bind a checkpoint; `spent_here` returns what this process has spent on the stage so far.

        Raises SettingsError if the environment variable is not a number.
        """
        self._file, self._here, self._progress = file, spent_here, progress
        text = os.environ.get(VARIABLE, str(SAVE_SECONDS))
        try:
            self._seconds = float(text)
        except ValueError as error:
            raise SettingsError(f"{VARIABLE} must be a number of seconds (got {safe_parsing.quote(text)})") from error
        self._saved, self._moment, self._failed = 0, time.monotonic(), False
        self.before = Spent()
        """what earlier processes have spent on the part of the result that is resumed"""
        self.began = 0
        """the step after which this process resumed; 0 where it did all"""

    @property
    def spent(self) -> Spent:
        """Cost of the stage so far, in all processes."""
        return self.before + self._here()

    def load(self) -> State | None:
        """Return the checkpoint of an earlier process, or None if there is none that can be used."""
        try:
            return self._file.read()
        except DamagedError as error:
            self.refuse(error.fault)
            return None

    def refuse(self, fault: str) -> None:
        """Report that the checkpoint cannot be used; the next one replaces it."""
        why = safe_parsing.sentence(fault, 120)
        self._progress(0, 1, Notice(f"the state of an earlier process cannot be used ({why}): it starts at step 1"))

    def resume(self, state: State, spent: Spent) -> Notice:
        """Record that this process resumes at a checkpoint, and return a sentence that says so."""
        self.before, self.began, self._saved = spent, state.step, state.step
        return Notice(f"goes on at step {state.step + 1} of {state.steps}, where an earlier process was stopped")

    @property
    def is_due(self) -> bool:
        """Return True if the last checkpoint is 60 seconds old."""
        return time.monotonic() - self._moment >= self._seconds

    def save(self, state: State) -> None:
        """Replace the checkpoint, unless it is of this step; a failure is reported once."""
        if state.step <= self._saved:
            return
        try:
            self._file.write(state)
        except StoreError as error:
            if not self._failed:
                self._failed = True
                lost = f"stopped now, it would go on at step {self._saved + 1} of {state.steps}"
                words = f"its state was not saved ({safe_parsing.sentence(error, 200)}); it goes on: {lost}"
                self._progress(state.step, state.steps, Notice(words))
        else:
            self._saved = state.step
        self._moment = time.monotonic()

    def stop(self, state: State) -> None:
        """Replace the checkpoint of a stage that is stopped after a step, and report it."""
        # the listener may only repeat that the stage is to stop
        with contextlib.suppress(Cancelled):
            self.save(state)
            if state.step == self._saved:
                words = f"stopped after step {state.step}: its state is saved, and run again it goes on from there"
                self._progress(state.step, state.step, Notice(words))

    def end(self) -> None:
        """Remove the checkpoint of a finished result."""
        self._file.remove()
