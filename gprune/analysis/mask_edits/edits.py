"""One line of a list of edits: units that a person wants kept or removed, whatever a method says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gprune.records import Array, ModelShape, Partition
from gprune.system import safe_parsing
from gprune.system.errors import SettingsError

KINDS = {"neuron": "neuron", "module": "module", "group": "key/value group"}
"""what an edit can be about, as people call it; a key/value group goes with all its query heads"""
MOST_EDITS = 20_000
_FIELDS = ("keep", "kind", "layer", "number")


@dataclass(frozen=True, slots=True)
class Edit:
    """Units of one layer that are to stay, or to go."""

    keep: bool
    """whether they stay"""
    kind: str
    """one of KINDS"""
    layer: int
    """from 0"""
    number: int
    """of the neuron, module or group within its layer, from 0"""

    @property
    def unit(self) -> str:
        """For people: `layer 1 · module 3`."""
        return f"layer {self.layer} · {KINDS[self.kind]} {self.number}"

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {field: getattr(self, field) for field in _FIELDS}


def from_plain(value: Any, where: str) -> Edit:
    """An edit that a file holds.

    Raises:
        SettingsError: it is no edit.
    """
    if not isinstance(value, dict) or set(value) != set(_FIELDS):
        raise SettingsError(
            f"{where} is no edit with {', '.join(_FIELDS)} (got {safe_parsing.quoted(value)})"
        )
    if not isinstance(value["keep"], bool) or value["kind"] not in KINDS:
        shown = safe_parsing.quoted([value["keep"], value["kind"]])
        raise SettingsError(f"{where} must keep or not, and name one of {', '.join(KINDS)} (got {shown})")
    numbers = value["layer"], value["number"]
    if any(isinstance(one, bool) or not isinstance(one, int) or one < 0 for one in numbers):
        raise SettingsError(f"{where} needs whole numbers from 0 (got {safe_parsing.quoted(numbers)})")
    return Edit(value["keep"], value["kind"], *numbers)


def fixed(edits: Iterable[Edit], shape: ModelShape, partition: Partition) -> tuple[Array, Array]:
    """Which units the edits fix; a later line counts more than an earlier one.

    Args:
        edits: the list.
        shape: sizes of the decoder.
        partition: the modules that numbers of modules mean.

    Returns:
        (layers, neurons) and (layers, key/value groups) int8: 1 stays, -1 goes, 0 is free.

    Raises:
        SettingsError: a unit does not exist.
    """
    neurons = np.zeros((shape.layers, shape.neurons), dtype=np.int8)
    groups = np.zeros((shape.layers, shape.kv_heads), dtype=np.int8)
    for edit in edits:
        require_there(edit, shape, partition)
        sign = 1 if edit.keep else -1
        if edit.kind == "module":
            neurons[edit.layer, partition.labels[edit.layer] == edit.number] = sign
        else:
            (neurons if edit.kind == "neuron" else groups)[edit.layer, edit.number] = sign
    return neurons, groups


def require_there(edit: Edit, shape: ModelShape, partition: Partition) -> None:
    """Checks that the model has what an edit names.

    Raises:
        SettingsError: it has not.
    """
    if not 0 <= edit.layer < shape.layers:
        raise SettingsError(
            f"there is no layer {edit.layer}: the model has the layers 0 to {shape.layers - 1}"
        )
    count = {
        "neuron": shape.neurons,
        "module": int(partition.counts[edit.layer]),
        "group": shape.kv_heads,
    }[edit.kind]
    if not 0 <= edit.number < count:
        raise SettingsError(
            f"layer {edit.layer} has no {KINDS[edit.kind]} {edit.number}: choose one from 0 to {count - 1}"
        )
