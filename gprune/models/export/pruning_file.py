"""``pruning.json`` of an exported folder: which units of which dense model it holds, and how they were chosen."""

from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError, model_validator

from gprune.records import REPAIRS, Array, PrunedModel, PruningMasks
from gprune.records.repairs import in_order
from gprune.system.errors import CheckpointError, UnreadableError
from gprune.system.safe_parsing import contents, sentence

PRUNING_FILE = "pruning.json"
Units = list[list[int]]
"""indices of kept units by layer"""


class PruningRecord(BaseModel):
    """Description of the pruning of an exported folder, with a short answer of its model to recognise it by."""

    model_config = ConfigDict(frozen=True, strict=True)

    source: str
    """the dense model as the study names it"""
    fingerprint: str
    """SHA-256 of the dense model's configuration and weights"""
    run: str = ""
    """name of the run that chose the masks"""
    method: str
    retention: float
    """kept fraction of the decoder's linear weights"""
    target: float
    """the retention of the study"""
    repairs: list[str] = []
    """names in ``REPAIRS``"""
    recovery: str = ""
    """training after the repairs that is merged into the weights, such as "lora of rank 8\""""
    trained: bool = False
    """whether the weights were changed after the cut, its repairs and its recovery"""
    padded: bool = False
    """whether zeros fill every layer up to the widest"""
    neurons: int
    """FFN neurons of a dense layer"""
    key_value_groups: int
    """key/value groups of a dense layer"""
    kept_neurons: Units
    kept_key_value_groups: Units
    probe_tokens: list[NonNegativeInt]
    """token ids of a short input"""
    probe_logits: list[float]
    """logits after its last token, at tokens spread evenly over the vocabulary"""
    study: dict[str, Any] | None = None

    @classmethod
    def of(cls, pruned: PrunedModel, **facts: Any) -> Self:
        """Describe a pruned model; `facts` are the fields that its masks and repairs do not give."""
        masks, recovered = pruned.masks, pruned.recovered
        return cls(
            method=masks.method,
            retention=masks.retention,
            target=masks.target,
            repairs=[repair.name for repair in pruned.repairs],
            recovery="" if recovered is None else f"{recovered.kind} of rank {recovered.rank}",
            neurons=masks.ffn.shape[1],
            key_value_groups=masks.heads.shape[1],
            kept_neurons=[np.flatnonzero(row).tolist() for row in masks.ffn],
            kept_key_value_groups=[np.flatnonzero(row).tolist() for row in masks.heads],
            **facts,
        )

    @model_validator(mode="after")
    def require_units(self) -> Self:
        """Raise ValueError if a kept unit is none of its layer, or the two kinds have other layers."""
        for units, width in ((self.kept_neurons, self.neurons), (self.kept_key_value_groups, self.key_value_groups)):
            strangers = [unit for layer in units for unit in layer if not 0 <= unit < width]
            if strangers:
                raise ValueError(f"it keeps unit {strangers[0]} of layers with {width}")
        if len(self.kept_neurons) != len(self.kept_key_value_groups):
            raise ValueError("it lists neurons and key/value groups of different numbers of layers")
        return self

    @cached_property
    def pruned(self) -> PrunedModel:
        """Return masks and repairs; the folder does not contain the records that the repairs were made from."""
        neurons = _mask(self.kept_neurons, self.neurons)
        groups = _mask(self.kept_key_value_groups, self.key_value_groups)
        masks = PruningMasks(self.method, neurons, groups, self.retention, self.target)
        return PrunedModel(masks, in_order(name for name in REPAIRS if name in self.repairs))

    @property
    def widths(self) -> tuple[list[int], list[int]]:
        """Return kept neurons and key/value groups of every layer."""
        return [len(units) for units in self.kept_neurons], [len(units) for units in self.kept_key_value_groups]


def write_record(folder: Path, record: PruningRecord) -> None:
    """Write the ``pruning.json`` of a folder."""
    (folder / PRUNING_FILE).write_text(record.model_dump_json() + "\n", encoding="utf-8")


def read_record(folder: Path) -> PruningRecord:
    """Read the ``pruning.json`` of a folder. Raises CheckpointError if it is missing or cannot be read."""
    path = folder / PRUNING_FILE
    try:
        return PruningRecord.model_validate_json(contents(path, "it"))
    except FileNotFoundError as error:
        raise CheckpointError(
            f"the folder {str(folder)!r} has no {PRUNING_FILE}, so it is no pruned checkpoint: name the folder of one"
        ) from error
    except ValidationError as error:
        fault = error.errors()[0]
        fault_text = " ".join([*(f"{part}:" for part in fault["loc"]), fault["msg"]])
        raise _unreadable(path, fault_text) from error
    except UnreadableError as error:
        raise _unreadable(path, str(error)) from error


def _unreadable(path: Path, reason: str) -> CheckpointError:
    return CheckpointError(f"{str(path)!r} cannot be read ({sentence(reason, 160)}): export the model again")


def _mask(kept_units: Units, width: int) -> Array:
    mask = np.zeros((len(kept_units), width), dtype=bool)
    for row, units in zip(mask, kept_units, strict=True):
        row[units] = True
    return mask
