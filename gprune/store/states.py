"""Checkpoints of unfinished learning: one file beside the result, `<cache>/<stage>/<key>.state`.

The file is safetensors with JSON in its metadata, replaced as a whole by the process that holds the lock of
the result. The metadata has a SHA-256 of the content, and names the result and the layout of the checkpoint.
"""

import contextlib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from gprune.records import Array
from gprune.store.folder import explain_errors
from gprune.store.results import Store
from gprune.system import safe_parsing
from gprune.system.errors import DamagedError, StoreError
from gprune.system.files import is_temporary_name, make_folder, write_bytes

FORM = 2
"""raised when the content of a checkpoint changes: older ones are not used"""
SUFFIX = ".state"


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """All that the next step of a stage depends on, as it was between two steps."""

    step: int
    """finished steps"""
    steps: int
    """steps in all"""
    arrays: Mapping[str, Array]
    values: Mapping[str, Any]
    """JSON values"""


class StateFile:
    """The checkpoint of one stage that is not finished."""

    def __init__(self, store: Store, stage: str, key: str) -> None:
        """Bind a result. Raises StoreError if the stage or the key could leave the cache."""
        self.store, self.stage, self.key = store, stage, key
        self.path = store.folder(stage, key).with_name(f"{key}{SUFFIX}")

    def read(self) -> State | None:
        """Return the checkpoint, or None if there is none.

        Raises DamagedError if it cannot be read, or belongs to another result or layout.
        """
        try:
            with safe_open(self.path, framework="numpy") as file:
                metadata, arrays = file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}
            about = metadata["about"]
            if _digest(arrays, about) != metadata["sha256"]:
                raise ValueError("it is not as it was written")
            values = safe_parsing.json_value(about, "its metadata")
            if values["of"] != [FORM, self.stage, self.key]:
                raise ValueError("it is of another result or version")
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
            write_bytes(self.path, save(arrays, {"about": about, "sha256": _digest(arrays, about)}))

    def remove(self) -> None:
        """Remove the checkpoint and what a killed process left of one, as far as possible."""
        partial = [path for path in self.path.parent.glob(f".{self.key}-*{SUFFIX}") if is_temporary_name(path.name)]
        for path in (self.path, *partial):
            with contextlib.suppress(OSError):
                path.unlink()


def sweep(store: Store) -> None:
    """Remove checkpoints of finished results: their processes ended between the two."""
    for path in store.root.glob(f"*/[!.]*{SUFFIX}"):
        stage, key = path.parent.name, path.name.removesuffix(SUFFIX)
        with contextlib.suppress(StoreError):
            if store.has(stage, key):
                StateFile(store, stage, key).remove()


def _digest(arrays: Mapping[str, Array], about: str) -> str:
    sha = hashlib.sha256(about.encode())
    for name in sorted(arrays):
        sha.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        sha.update(arrays[name].tobytes())
    return sha.hexdigest()
