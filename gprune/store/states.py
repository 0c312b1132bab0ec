"""What an unfinished stage goes on from: one file beside its result, `<cache>/<stage>/<key>.state`.

The file is of the safetensors format, with its plain values as JSON in the header: nothing is pickled. The
header holds the SHA-256 of the whole file with zeros in its own place, the stage, the key and the form, so
that what is damaged, or was written for another result or by another version, is told before it is used.
It is written whole or not at all, and by one process at a time: whoever holds the result's lock.
"""

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from gprune.records import Array
from gprune.store import checksums
from gprune.store.folder import explained
from gprune.store.results import DAMAGED, Store
from gprune.system import safe_parsing
from gprune.system.errors import DamagedError, StoreError, UnreadableError
from gprune.system.files import is_beside, make_folder, write_bytes

FORM = 1
"""raised when what a state holds changes: an older one is set aside"""
SUFFIX = ".state"
MOST_BYTES = 2**30
_DIGEST, _ABOUT, _UNSEALED = "sha256", "gprune", "0" * 64
_MOST_HEADER = 2**24
# a generator's state is a number of 128 bits
_DIGITS = 40


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """All that the next step of a stage reads, as it was between two steps."""

    step: int
    """finished steps"""
    steps: int
    """steps in all"""
    arrays: Mapping[str, Array]
    values: Mapping[str, Any]
    """what JSON can hold"""


class StateFile:
    """The state of one stage that is not finished."""

    def __init__(self, store: Store, stage: str, key: str) -> None:
        """Binds a result; nothing is read. StoreError where the stage or the key is not a plain name."""
        self.store, self.stage, self.key = store, stage, key
        self.path = store.folder(stage, key).with_name(f"{key}{SUFFIX}")

    def read(self) -> State | None:
        """Reads the state; None where there is none.

        Raises:
            DamagedError: it is not what was written, belongs to another result or version, or cannot be read.
        """
        try:
            data = safe_parsing.contents(self.path, self.path.name, most=MOST_BYTES)
        except FileNotFoundError:
            return None
        except UnreadableError as error:
            raise DamagedError(self.stage, self.key, str(error)) from error
        try:
            about = self._about(data)
            return State(about["step"], about["steps"], load(data), about["values"])
        except (ValueError, KeyError, TypeError, SafetensorError) as error:
            raise DamagedError(self.stage, self.key, safe_parsing.sentence(error, 120)) from error

    def _about(self, data: bytes) -> dict[str, Any]:
        """The plain values of a file, once it is known to be the one that was written for this result."""
        length = int.from_bytes(data[:8], "little")
        if not 0 < length <= min(_MOST_HEADER, len(data) - 8):
            raise ValueError("its header is cut off")
        header = safe_parsing.json_object(data[8 : 8 + length], "its header")
        metadata = header.get("__metadata__")
        if not isinstance(metadata, dict) or not all(
            isinstance(metadata.get(field), str) for field in (_DIGEST, _ABOUT)
        ):
            raise ValueError("it is no state of ours")
        if _sum_of(data, metadata[_DIGEST]) != metadata[_DIGEST]:
            raise ValueError("it is not as it was written")
        about: dict[str, Any] = safe_parsing.json_value(metadata[_ABOUT], "what it says", digits=_DIGITS)
        for name, expected in (("form", FORM), ("stage", self.stage), ("key", self.key)):
            if about[name] != expected:
                raise ValueError(f"its {name} is {safe_parsing.quoted(about[name])} and not {expected!r}")
        if not all(type(about[name]) is int for name in ("step", "steps")) or type(about["values"]) is not dict:
            raise ValueError("it does not say where it stands")
        return about

    def write(self, state: State) -> int:
        """Writes the state in the place of an earlier one, in one step, and gives its bytes.

        Raises StoreError where the disk is full, or the cache cannot be written.
        """
        about = {
            "form": FORM,
            "stage": self.stage,
            "key": self.key,
            "step": state.step,
            "steps": state.steps,
            "values": dict(state.values),
        }
        # of one piece in memory, which a view of another array is not
        arrays = {name: np.array(array, order="C") for name, array in state.arrays.items()}
        data = save(arrays, {_ABOUT: json.dumps(about, allow_nan=False), _DIGEST: _UNSEALED})
        sealed = data.replace(_UNSEALED.encode(), checksums.of_bytes(data).encode(), 1)
        with explained(self.store.root):
            make_folder(self.path.parent)
            write_bytes(self.path, sealed)
        return len(sealed)

    def set_aside(self) -> Path:
        """Moves a state that cannot be gone on from out of the way, and says where it is now.

        Raises StoreError where the cache cannot be written.
        """
        target = self.store.root / DAMAGED / f"{self.stage}-{self.key}-{uuid4().hex[:8]}{SUFFIX}"
        with explained(self.store.root):
            make_folder(target.parent)
            self.path.replace(target)
        return target

    def remove(self) -> None:
        """Removes the state, and what a killed process has left of one; where that may not be, they stay.

        Nobody writes one now: the result's lock is held, or the result is there.
        """
        torn = self.path.parent.glob(f".{self.key}-*{SUFFIX}")
        for path in (self.path, *(leftover for leftover in torn if is_beside(leftover.name))):
            with contextlib.suppress(OSError):
                path.unlink()


def listed(store: Store, stage: str) -> list[StateFile]:
    """The states that a cache holds of a kind of result."""
    paths = sorted((store.root / stage).glob(f"[!.]*{SUFFIX}"))
    files = []
    for path in paths:
        # a file of another name was not put there by this program
        with contextlib.suppress(StoreError):
            files.append(StateFile(store, stage, path.name.removesuffix(SUFFIX)))
    return files


def sweep(store: Store) -> None:
    """Removes states whose results are there: their processes ended between the two."""
    for path in store.root.glob(f"*/[!.]*{SUFFIX}"):
        stage, key = path.parent.name, path.name.removesuffix(SUFFIX)
        with contextlib.suppress(StoreError):
            if store.has(stage, key):
                StateFile(store, stage, key).remove()


def _sum_of(data: bytes, digest: str) -> str:
    """What a file sums up to with zeros in the place of what it says that it does."""
    seal = digest.encode()
    return checksums.of_bytes(data.replace(seal, _UNSEALED.encode(), 1) if len(seal) == 64 else b"")
