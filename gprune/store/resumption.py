"""Checkpoints of long stages, from which a stage resumes after its process has stopped.

On a CPU, a resumed stage gives the same bits as an uninterrupted one. The checkpoint is replaced after every epoch,
after a step if the checkpoint is 60 seconds old, and when the stage is stopped between two steps. If the checkpoint
cannot be written, a notice says so and the stage continues.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from gprune.records import Array
from gprune.store.results import Store, explain_errors
from gprune.system import safe_parsing
from gprune.system.errors import Cancelled, DamagedError, SettingsError, StoreError
from gprune.system.files import is_temporary_name, make_folder, write_bytes
from gprune.system.progress import Notice, Progress

FORM = 2
"""incremented when the content of a checkpoint changes; older checkpoints are then ignored"""
SUFFIX = ".state"
"""ending of a checkpoint file"""
VARIABLE = "GPRUNE_SAVE_SECONDS"
"""environment variable with the maximum number of seconds between two checkpoints; it is in no key"""
SAVE_SECONDS = 60.0
"""default of this number"""


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """The data between two steps of a stage on which the remaining steps depend."""

    step: int
    """finished steps"""
    steps: int
    """total number of steps"""
    arrays: Mapping[str, Array]
    values: Mapping[str, Any]
    """JSON values"""


class StateFile:
    """The checkpoint of one unfinished stage."""

    def __init__(self, store: Store, stage: str, key: str) -> None:
        """Bind the checkpoint to a result. Raises StoreError if the stage or the key would lead out of the cache."""
        self.store, self.stage, self.key = store, stage, key
        self.path = store.folder(stage, key).with_name(f"{key}{SUFFIX}")

    def read(self) -> State | None:
        """Return the checkpoint, or None if there is none.

        Raises DamagedError if it cannot be read, or belongs to another result or version.
        """
        try:
            with safe_open(self.path, framework="numpy") as file:
                metadata, arrays = file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}
            about = metadata["about"]
            if _digest_state(arrays, about) != metadata["sha256"]:
                raise ValueError("it has changed since it was written")
            values = safe_parsing.json_value(about, "its metadata")
            if values["of"] != [FORM, self.stage, self.key]:
                raise ValueError("it belongs to another result or version")
            return State(values["step"], values["steps"], arrays, values["values"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            raise DamagedError(self.stage, self.key, safe_parsing.sentence(error, 120)) from error

    def write(self, state: State) -> None:
        """Replace the checkpoint. Raises StoreError if the disk is full or the cache is read-only."""
        about = json.dumps(
            {
                "of": [FORM, self.stage, self.key],
                "step": state.step,
                "steps": state.steps,
                "values": dict(state.values),
            },
            allow_nan=False,
        )
        arrays = {name: np.array(array, order="C") for name, array in state.arrays.items()}
        with explain_errors(self.store.root):
            make_folder(self.path.parent)
            write_bytes(self.path, save(arrays, {"about": about, "sha256": _digest_state(arrays, about)}))

    def remove(self) -> None:
        """Remove the checkpoint and temporary files of a killed process, as far as possible."""
        partial = [path for path in self.path.parent.glob(f".{self.key}-*{SUFFIX}") if is_temporary_name(path.name)]
        for path in (self.path, *partial):
            with contextlib.suppress(OSError):
                path.unlink()


def sweep_checkpoints(store: Store) -> None:
    """Remove checkpoints of finished results.

    They remain if a process ends after it has written a result and before it has removed the checkpoint.
    """
    for path in store.root.glob(f"*/[!.]*{SUFFIX}"):
        stage, key = path.parent.name, path.name.removesuffix(SUFFIX)
        with contextlib.suppress(StoreError):
            if store.has(stage, key):
                StateFile(store, stage, key).remove()


def _digest_state(arrays: Mapping[str, Array], about: str) -> str:
    sha = hashlib.sha256(about.encode())
    for name in sorted(arrays):
        sha.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        sha.update(arrays[name].tobytes())
    return sha.hexdigest()


@dataclass(frozen=True, slots=True)
class Spent:
    """Cost of a stage so far: passes of the dense model and time."""

    forward: int = 0
    """number of tokens in forward passes of the dense model"""
    backward: int = 0
    """number of tokens in backward passes of the dense model"""
    seconds: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        """Return the sum of both costs."""
        return Spent(self.forward + other.forward, self.backward + other.backward, self.seconds + other.seconds)

    @classmethod
    def of(cls, values: Any) -> Spent:
        """Return the cost from the list that `plain` returned. Raises ValueError if a checkpoint has no such list."""
        valid = isinstance(values, list) and len(values) == 3 and {type(number) for number in values} <= {int, float}
        if not valid or not all(math.isfinite(number) and number >= 0 for number in values):
            raise ValueError("it lacks the cost so far")
        return cls(int(values[0]), int(values[1]), float(values[2]))

    @property
    def plain(self) -> list[float]:
        """Cost as a list for a checkpoint: forward tokens, backward tokens, seconds."""
        return [self.forward, self.backward, round(self.seconds, 3)]


class Resumption:
    """Reads and replaces the checkpoint of one stage; the caller holds the lock of its result."""

    def __init__(self, file: StateFile, spent_here: Callable[[], Spent], progress: Progress) -> None:
        """Bind a checkpoint; `spent_here` returns the cost of the stage in this process so far.

        Raises SettingsError if GPRUNE_SAVE_SECONDS is not a number.
        """
        self._file, self._spent_here, self._progress = file, spent_here, progress
        text = os.environ.get(VARIABLE, str(SAVE_SECONDS))
        try:
            self._save_seconds = float(text)
        except ValueError as error:
            raise SettingsError(f"{VARIABLE} must be a number of seconds (got {safe_parsing.quote(text)})") from error
        self._saved_step, self._last_attempt, self._has_failed = 0, time.monotonic(), False
        self.before = Spent()
        """cost of the resumed part of the result in earlier processes"""
        self.began = 0
        """step after which this process resumed; 0 if it computed all steps"""

    @property
    def spent(self) -> Spent:
        """Cost of the stage so far over all processes."""
        return self.before + self._spent_here()

    def load(self) -> State | None:
        """Return the checkpoint of an earlier process, or None if there is no usable one."""
        try:
            return self._file.read()
        except DamagedError as error:
            self.refuse(error.fault)
            return None

    def refuse(self, fault: str) -> None:
        """Report that the checkpoint cannot be used; the next checkpoint replaces it."""
        why = safe_parsing.sentence(fault, 120)
        self._progress(0, 1, Notice(f"the state of an earlier process cannot be used ({why}): restart at step 1"))

    def resume(self, state: State, spent: Spent) -> Notice:
        """Record that this process resumes from a checkpoint whose steps cost `spent`, and return a notice about it."""
        self.before, self.began, self._saved_step = spent, state.step, state.step
        return Notice(f"resumes at step {state.step + 1} of {state.steps}, after an earlier process was stopped")

    @property
    def is_due(self) -> bool:
        """Return True if the time between two checkpoints has passed, by default 60 seconds."""
        return time.monotonic() - self._last_attempt >= self._save_seconds

    def save(self, state: State) -> None:
        """Replace the checkpoint unless it has this step already; only the first failure is reported."""
        if state.step <= self._saved_step:
            return
        try:
            self._file.write(state)
        except StoreError as error:
            if not self._has_failed:
                self._has_failed = True
                risk = f"if stopped now, the stage would resume at step {self._saved_step + 1} of {state.steps}"
                message = f"its state was not saved ({safe_parsing.sentence(error, 200)}); the stage continues: {risk}"
                self._progress(state.step, state.steps, Notice(message))
        else:
            self._saved_step = state.step
        self._last_attempt = time.monotonic()

    def stop(self, state: State) -> None:
        """Replace the checkpoint of a stage that is being cancelled, and report that its state is saved."""
        # the listener may raise Cancelled again when it receives a notice
        with contextlib.suppress(Cancelled):
            self.save(state)
            if state.step == self._saved_step:
                message = f"stopped after step {state.step}: its state is saved, and the next run resumes there"
                self._progress(state.step, state.step, Notice(message))

    def end(self) -> None:
        """Remove the checkpoint of a finished result."""
        self._file.remove()
