"""One line of a list of edits: units that a person wants kept or removed, whatever a method says."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from gprune.records import Array, ModelShape, Partition
from gprune.system.errors import SettingsError
from gprune.system.forms import NOT_NEGATIVE, Form, one_of
from gprune.system.safe_parsing import quoted

KINDS = {"neuron": "neuron", "module": "module", "group": "key/value group"}
"""what an edit can be about, as people call it; a key/value group goes with all its query heads"""
MOST_EDITS = 20_000
_WRITTEN = re.compile(r"([kr])([nmg])(\d{1,5})\.(\d{1,8})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Edit(Form):
    """Units of one layer that are to stay, or to go."""

    keep: bool
    """whether they stay"""
    kind: Annotated[str, one_of(tuple(KINDS))]
    """one of KINDS"""
    layer: Annotated[int, NOT_NEGATIVE]
    """from 0"""
    number: Annotated[int, NOT_NEGATIVE]
    """of the neuron, module or group within its layer, from 0"""

    @property
    def unit(self) -> str:
        """For people: `layer 1 · module 3`."""
        return f"layer {self.layer} · {KINDS[self.kind]} {self.number}"


def written(edits: Iterable[Edit]) -> str:
    """A list in one line of letters, figures, points and commas, as `rm1.3,kg0.1`: see `read`."""
    return ",".join(f"{'k' if one.keep else 'r'}{one.kind[0]}{one.layer}.{one.number}" for one in edits)


def read(line: str) -> tuple[Edit, ...]:
    """The list that `written` has written.

    Each edit is k (keep) or r (remove), then n, m or g for a neuron, module or group, layer and number.
    Raises SettingsError where it is none, or has more than MOST_EDITS edits.
    """
    parts = line.split(",") if line else []
    found = [_WRITTEN.fullmatch(part) for part in parts[:MOST_EDITS]]
    if None in found or len(parts) > MOST_EDITS:
        raise SettingsError(f"{quoted(line)} is no list of edits: as rm1.3,kg0.1")
    kinds = {kind[0]: kind for kind in KINDS}
    return tuple(Edit(one[1] == "k", kinds[one[2]], int(one[3]), int(one[4])) for one in found if one is not None)


def fixed(edits: Iterable[Edit], shape: ModelShape, partition: Partition) -> tuple[Array, Array]:
    """Which units the edits fix; a later line counts more than an earlier one.

    Gives (layers, neurons) and (layers, key/value groups) int8: 1 stays, -1 goes, 0 is free. Numbers of
    modules mean those of `partition`. Raises SettingsError where a unit does not exist.
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
    """Raises SettingsError where the model lacks what an edit names."""
    if not 0 <= edit.layer < shape.layers:
        raise SettingsError(f"there is no layer {edit.layer}: the model has the layers 0 to {shape.layers - 1}")
    count = {
        "neuron": shape.neurons,
        "module": int(partition.counts[edit.layer]),
        "group": shape.kv_heads,
    }[edit.kind]
    if not 0 <= edit.number < count:
        raise SettingsError(
            f"layer {edit.layer} has no {KINDS[edit.kind]} {edit.number}: choose one from 0 to {count - 1}"
        )
