"""Answers: which units of which dense model does a checkpoint hold?

``plan.json`` lists the kept units of every layer, so that the same cut can be made again from the dense
model.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gprune.errors import CheckpointError
from gprune.records import Array, PruningMasks

PLAN_FILE = "plan.json"
_FORMAT = "gprune-plan"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class CutPlan:
    """How a checkpoint was made, and a short answer of the model by which it is known again."""

    masks: PruningMasks
    """the kept units of the dense model"""
    source: str
    """the dense model as the person named it"""
    fingerprint: str
    """SHA-256 of the dense model's configuration and weights"""
    bias_compensation: bool
    """whether the removed units' mean contribution was added to the biases"""
    study: dict[str, Any] | None
    """the settings that led to the masks, where known"""
    probe_ids: tuple[int, ...]
    """token ids of a short input"""
    probe_logits: tuple[float, ...]
    """logits after its last token, at tokens spread evenly over the vocabulary"""


def write(folder: Path, plan: CutPlan) -> None:
    """Writes ``plan.json`` into a folder."""
    masks = plan.masks
    values = {
        "format": _FORMAT,
        "version": _VERSION,
        "source": plan.source,
        "fingerprint": plan.fingerprint,
        "method": masks.method,
        "retention": masks.retention,
        "target": masks.target,
        "bias_compensation": plan.bias_compensation,
        "neurons": masks.ffn.shape[1],
        "key_value_heads": masks.heads.shape[1],
        "kept_neurons": [np.flatnonzero(row).tolist() for row in masks.ffn],
        "kept_key_value_groups": [np.flatnonzero(row).tolist() for row in masks.heads],
        "probe": {"ids": list(plan.probe_ids), "logits": list(plan.probe_logits)},
        "study": plan.study,
    }
    (folder / PLAN_FILE).write_text(json.dumps(values) + "\n", encoding="utf-8")


def read(folder: Path) -> CutPlan:
    """Reads ``plan.json`` from a checkpoint folder.

    Raises:
        CheckpointError: the file is missing, is not such a plan, or names units that cannot exist.
    """
    path = folder / PLAN_FILE
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if (values["format"], values["version"]) != (_FORMAT, _VERSION):
            raise ValueError(f"format {values['format']!r} version {values['version']!r}")
        masks = PruningMasks(
            method=str(values["method"]),
            ffn=_mask(values["kept_neurons"], values["neurons"]),
            heads=_mask(values["kept_key_value_groups"], values["key_value_heads"]),
            retention=float(values["retention"]),
            target=float(values["target"]),
        )
        return CutPlan(
            masks=masks,
            source=str(values["source"]),
            fingerprint=str(values["fingerprint"]),
            bias_compensation=bool(values["bias_compensation"]),
            study=values["study"],
            probe_ids=tuple(int(i) for i in values["probe"]["ids"]),
            probe_logits=tuple(float(x) for x in values["probe"]["logits"]),
        )
    except FileNotFoundError as error:
        raise CheckpointError(
            f"the folder {str(folder)!r} has no {PLAN_FILE}: it is no pruned checkpoint"
        ) from error
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise CheckpointError(f"{str(path)!r} cannot be read ({error}): save the checkpoint again") from error


def _mask(kept: list[list[int]], units: int) -> Array:
    mask = np.zeros((len(kept), units), dtype=bool)
    for row, index in zip(mask, kept, strict=True):
        if index and min(index) < 0:
            raise ValueError(f"unit {min(index)} does not exist")
        row[index] = True
    return mask
