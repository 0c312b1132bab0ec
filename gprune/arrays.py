"""Every result array of a study under documented names, for people who go on in a notebook.

The names and their shapes are listed in docs/arrays.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gprune.errors import SettingsError, StoreError
from gprune.files import replaced
from gprune.records import (
    AdaptedScores,
    Array,
    LearningHistory,
    ModuleStatistics,
    Partition,
    PruningMasks,
    RankDrift,
    Tokens,
    UnitScores,
)
from gprune.store import Store, is_full


def check_target(path: Path) -> None:
    """Refuses a target that cannot be written, before hours of work are spent.

    Raises:
        SettingsError: the name does not end in .npz, or its folder does not exist.
    """
    if path.suffix != ".npz":
        raise SettingsError(
            f"the arrays are written as .npz (got {str(path)!r}): give a name that ends in .npz"
        )
    if not path.resolve().parent.is_dir():
        raise SettingsError(f"the folder {str(path.resolve().parent)!r} does not exist: create it first")


def collect(store: Store, keys: dict[str, str]) -> dict[str, Array]:
    """Reads the arrays of a run.

    Args:
        store: the cache.
        keys: key of each stage by its name in the run.

    Returns:
        Arrays by documented name; those of modules and learning only where GPrune was among the methods.
    """
    arrays: dict[str, Array] = {}
    for role in ("primary", "auxiliary"):
        arrays[f"tokens_{role}"] = store.get("tokens", keys[f"tokens_{role}"], Tokens).ids
        scores = store.get("scores", keys[f"scores_{role}"], UnitScores)
        arrays[f"scores_{role}_ffn"], arrays[f"scores_{role}_heads"] = scores.ffn, scores.heads
    drift = store.get("drift", keys["drift"], RankDrift)
    arrays |= {"drift": drift.magnitude, "signed_drift": drift.signed}
    arrays["resample_drift_primary"] = drift.resample_primary
    arrays["resample_drift_auxiliary"] = drift.resample_auxiliary
    arrays["half_drift"] = drift.half
    if "adapted" in keys:
        arrays |= _module_arrays(store, keys)
    for name, key in keys.items():
        if name.startswith("masks_"):
            masks = store.get("masks", key, PruningMasks)
            suffix = "" if masks.method == "gprune" else f"_{masks.method}"
            arrays[f"ffn_mask{suffix}"], arrays[f"head_mask{suffix}"] = masks.ffn, masks.heads
    if "history" not in keys:
        return arrays
    history = store.get("history", keys["history"], LearningHistory)
    arrays |= {"history": history.steps, "module_threshold": history.thresholds}
    arrays["head_threshold"] = history.head_thresholds
    return arrays


def _module_arrays(store: Store, keys: dict[str, str]) -> dict[str, Array]:
    partition = store.get("partition", keys["partition"], Partition)
    modules = store.get("modules", keys["modules"], ModuleStatistics)
    adapted = store.get("adapted", keys["adapted"], AdaptedScores)
    return {
        "labels": partition.labels,
        "module_layer": partition.module_layer,
        "module_size": modules.size,
        "module_drift": modules.drift,
        "module_score": modules.score,
        "module_adapted": adapted.adapted,
        "module_source": adapted.source,
        "module_u_primary": modules.u_primary,
        "module_u_auxiliary": modules.u_auxiliary,
        "drift_threshold": np.array(adapted.drift_threshold),
        "score_threshold": np.array(adapted.score_threshold),
        "scores_adapted_ffn": adapted.scores,
    }


def write(store: Store, keys: dict[str, str], path: Path) -> tuple[str, ...]:
    """Writes the arrays of a run to an .npz file, whole or not at all.

    Args:
        store: the cache.
        keys: key of each stage by its name in the run.
        path: file to write; an existing one is replaced.

    Returns:
        The names written.

    Raises:
        StoreError: the file cannot be written.
    """
    arrays: dict[str, Any] = collect(store, keys)
    try:
        with replaced(path) as temporary:
            np.savez_compressed(temporary, **arrays)
    except OSError as error:
        reason = "the disk is full" if is_full(error) else str(error)
        raise StoreError(f"{str(path)!r} cannot be written: {reason}") from error
    return tuple(sorted(arrays))
