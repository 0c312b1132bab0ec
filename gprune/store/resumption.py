"""How a stage that takes long goes on where an earlier process was stopped, instead of beginning anew.

The stage says after every step what it would go on from; that is saved every so often (GPRUNE_SAVE_EVERY, in
no key: it changes no result) and when the stage is stopped. Saving never decides whether the work succeeds: a
full disk costs one notice, and after a kill the steps since the last state.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gprune.store.states import State, StateFile
from gprune.system import safe_parsing
from gprune.system.errors import Cancelled, DamagedError, SettingsError, StoreError
from gprune.system.progress import Notice, Progress

VARIABLE = "GPRUNE_SAVE_EVERY"
USUAL_SECONDS = 30.0
_EVERY = re.compile(r"(\d{1,9}(?:\.\d{1,6})?) ?(s|seconds|steps?)")


@dataclass(frozen=True, slots=True)
class Interval:
    """How often a state is saved: after so many steps or seconds; 0 of both for when it is stopped only."""

    steps: int = 0
    seconds: float = 0.0

    @classmethod
    def chosen(cls) -> Interval:
        """As the environment says; SettingsError where it says what is no interval."""
        text = os.environ.get(VARIABLE, "").strip()
        if not text:
            return cls(seconds=USUAL_SECONDS)
        match = _EVERY.fullmatch(text)
        if text != "off" and (match is None or not float(match[1])):
            raise SettingsError(
                f"{VARIABLE} must be seconds as '30 s', steps as '10 steps', or 'off' (got {safe_parsing.quoted(text)})"
            )
        if match is None:
            return cls()
        if match[2].startswith("step"):
            return cls(steps=max(1, int(float(match[1]))))
        return cls(seconds=float(match[1]))

    def over(self, steps: int, seconds: float) -> bool:
        """Whether so many steps and seconds after the last state it is time for the next."""
        return 0 < self.steps <= steps or 0 < self.seconds <= seconds


@dataclass(frozen=True, slots=True)
class Spent:
    """What a stage has cost so far."""

    forward: int = 0
    """tokens that the dense model was run over"""
    backward: int = 0
    """tokens whose gradients went back through it"""
    seconds: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        """What both have cost."""
        return Spent(self.forward + other.forward, self.backward + other.backward, self.seconds + other.seconds)

    @classmethod
    def of(cls, values: Any) -> Spent:
        """From a state; ValueError where it does not say."""
        fits = isinstance(values, list) and len(values) == 3 and {type(number) for number in values} <= {int, float}
        if not fits or not all(math.isfinite(number) and number >= 0 for number in values):
            raise ValueError("it does not say what it has cost")
        return cls(int(values[0]), int(values[1]), float(values[2]))

    @property
    def plain(self) -> list[float]:
        """As a state holds it."""
        return [self.forward, self.backward, round(self.seconds, 3)]


class Resumption:
    """Saves the state of one stage, and gives that of an earlier process; its result's lock is held."""

    def __init__(self, file: StateFile, here: Callable[[], Spent], progress: Progress) -> None:
        """Binds a result; nothing is read or written.

        `here` gives what this process has spent on the stage so far; `progress` is told of all this. Raises
        SettingsError where the environment names no interval.
        """
        self._file, self._here, self._progress = file, here, progress
        self._every = Interval.chosen()
        self._saved, self._moment, self._told = 0, time.monotonic(), False
        self.before = Spent()
        """what earlier processes have spent, of what the result is made from"""
        self.began = 0
        """the step after which this process went on; 0 where it has done all"""

    @property
    def spent(self) -> Spent:
        """What the stage has cost so far, whichever process it was."""
        return self.before + self._here()

    def found(self) -> State | None:
        """The state of an earlier process; None where there is none to go on from."""
        try:
            return self._file.read()
        except DamagedError as error:
            self.refuse(error.fault)
            return None

    def refuse(self, fault: str) -> None:
        """Moves a state away that cannot be gone on from, and says its fault, the end of a sentence."""
        try:
            where = f"is kept in {self._file.set_aside()}"
        except StoreError:
            # the next one takes its place
            where = "stays where it is until it is replaced"
        why = safe_parsing.sentence(fault, 120)
        said = f"the state of an earlier process cannot be used ({why}) and {where}"
        self._progress(0, 1, Notice(f"{said}: it starts at step 1"))

    def goes_on(self, state: State, spent: Spent) -> Notice:
        """Enters that this process goes on from a state, and gives the sentence that says so."""
        self.before, self.began, self._saved = spent, state.step, state.step
        return Notice(f"goes on at step {state.step + 1} of {state.steps}, where an earlier process was stopped")

    def due(self, step: int) -> bool:
        """Whether a state is to be saved after so many finished steps."""
        return self._every.over(step - self._saved, time.monotonic() - self._moment)

    def save(self, state: State) -> None:
        """Saves a state in the place of an earlier one; where that fails, the work goes on without."""
        try:
            self._file.write(state)
        except StoreError as error:
            # tried again when it is due, which may be after room was made
            if not self._told:
                self._told = True
                lost = f"stopped now, it would go on at step {self._saved + 1} of {state.steps}"
                words = f"its state was not saved ({safe_parsing.sentence(error, 200)}); it goes on: {lost}"
                self._progress(state.step, state.steps, Notice(words))
        else:
            self._saved = state.step
        self._moment = time.monotonic()

    def stopped(self, step: int, state: Callable[[], State]) -> None:
        """Saves the state of a stage that is stopped after so many steps, unless it is saved already."""
        # whoever listens may only say once more that it is to stop
        with contextlib.suppress(Cancelled):
            if step > self._saved:
                self.save(state())
            if step and step == self._saved:
                words = f"stopped after step {step}: its state is saved, and run again it goes on from there"
                self._progress(step, step, Notice(words))

    def end(self) -> None:
        """Removes the state: the result is there."""
        self._file.remove()
