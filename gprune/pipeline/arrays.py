"""Export of a study's result arrays under documented names, for analysis in a notebook.

The names and their shapes are listed in docs/python.md.
"""

from pathlib import Path
from typing import Any

import numpy as np

from gprune.pipeline import stages
from gprune.pipeline.stages import Results
from gprune.records import Array
from gprune.store import is_full
from gprune.study.methods import METHODS
from gprune.system.errors import SettingsError, StoreError
from gprune.system.files import replace_file, require_place


def check_target(path: Path) -> None:
    """Raise SettingsError if the target file cannot be written, before hours of work are spent.

    The name must end in .npz, and its folder must exist.
    """
    if path.suffix != ".npz":
        raise SettingsError(f"the file name must end in .npz (got {str(path)!r})")
    require_place(path)


_EXPERT_SUMS = ("routed", "weights", "weighted_norms", "norms")


def collect_arrays(results: Results) -> dict[str, Array]:
    """Return the arrays of a study by documented name.

    Arrays of modules and learning exist only if GPrune is among the methods. Masks exist only for methods that could
    run. A study that prunes experts has arrays of experts. Raises StoreError if another result is missing, or one is
    damaged.
    """
    if results.graph.study.prunes_experts:
        return _collect_expert_arrays(results)
    arrays: dict[str, Array] = {}
    for role in stages.PAIR:
        arrays[f"tokens_{role}"] = results.get(stages.tokens, role).ids
        scores = results.get(stages.scores, role)
        arrays[f"scores_{role}_ffn"], arrays[f"scores_{role}_heads"] = scores.ffn, scores.heads
    drift = results.get(stages.drift)
    arrays |= {"drift": drift.magnitude, "signed_drift": drift.signed, "half_drift": drift.half}
    arrays["resample_drift_primary"] = drift.resample_primary
    arrays["resample_drift_auxiliary"] = drift.resample_auxiliary
    has_learning = "gprune" in results.graph.study.methods
    if has_learning:
        arrays |= _collect_module_arrays(results)
    methods = (METHODS[name] for name in results.graph.study.methods)
    # several methods can share masks
    for name in dict.fromkeys(method.masks for method in methods if method.decision != "none"):
        if results.has(stages.masks, name):
            masks = results.get(stages.masks, name)
            suffix = "" if name == "gprune" else f"_{name}"
            arrays[f"ffn_mask{suffix}"], arrays[f"head_mask{suffix}"] = masks.ffn, masks.heads
    if has_learning:
        learning = results.get(stages.learning)
        arrays |= {"history": learning.steps, "module_threshold": learning.thresholds}
        arrays["head_threshold"] = learning.head_thresholds
    return arrays


def _collect_expert_arrays(results: Results) -> dict[str, Array]:
    """Return tokens, statistics, rank drift and masks of a study that prunes experts."""
    arrays: dict[str, Array] = {}
    for role in stages.PAIR:
        statistics = results.get(stages.expert_statistics, role)
        arrays[f"tokens_{role}"] = results.get(stages.tokens, role).ids
        arrays |= {f"expert_{name}_{role}": getattr(statistics, name) for name in _EXPERT_SUMS}
    for drift in map(results.record, stages.drifts_of_experts(results.graph)):
        arrays |= {f"expert_drift_{drift.criterion}": drift.signed, f"half_drift_{drift.criterion}": drift.half}
        arrays[f"resample_drift_primary_{drift.criterion}"] = drift.resample_primary
        arrays[f"resample_drift_auxiliary_{drift.criterion}"] = drift.resample_auxiliary
    for name in results.graph.study.methods:
        if name != "dense":
            arrays[f"expert_mask_{name}"] = results.get(stages.expert_masks, name).experts
    return arrays


def _collect_module_arrays(results: Results) -> dict[str, Array]:
    partition = results.get(stages.partition)
    modules, adapted = results.get(stages.modules), results.get(stages.adapted_scores)
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


def write(results: Results, path: Path) -> tuple[str, ...]:
    """Write the arrays of a study to an .npz file and return their names; for the arrays see `collect_arrays`.

    The file appears only when it is complete, and replaces an existing file. Raises StoreError if it cannot be written.
    """
    arrays: dict[str, Any] = collect_arrays(results)
    try:
        with replace_file(path) as temporary:
            np.savez_compressed(temporary, **arrays)
    except OSError as error:
        reason = "the disk is full" if is_full(error) else str(error)
        raise StoreError(f"{str(path)!r} cannot be written: {reason}") from error
    return tuple(sorted(arrays))
