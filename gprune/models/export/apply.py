"""Answers: how is a checkpoint made again from its plan and the dense model?

The plan lists the kept units of every layer (section 3), so the cut needs no calibration text. Where a
repair had made other biases, the plan holds the biases, and where it had made other weights, they stand in a
file beside the plan; so does what recovery has trained.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gprune.models import identity, loading, low_rank
from gprune.models.decoder import Decoder
from gprune.models.export import checkpoint, plan_file, recovered_file, repaired_file, same_model
from gprune.models.export.plan_file import CutPlan
from gprune.records import Array
from gprune.system.errors import CheckpointError
from gprune.system.progress import Progress, silent

_STEPS = 4


def save(
    place: Path,
    model: str,
    folder: Path,
    cut: Callable[..., nn.Module],
    on_progress: Progress = silent,
) -> Path:
    """Cuts a dense model as a plan says and saves it; its tensors equal those of the first checkpoint.

    `place` is a plan file, or a checkpoint folder that has one; `model` is ``demo``, a folder or a hub name;
    `folder` must not exist, or be empty, and is given back; `cut` is ``gprune.pruning.surgery.cut``.
    `on_progress` is told each of the four steps. Raises CheckpointError where the plan cannot be read or is
    of another model, the cut model answers otherwise than the first one, the target is taken or the disk is
    full: nothing is left behind. ModelError where the dense model cannot be found or read.
    """
    place = Path(place)
    checkpoint.require_as_written(place / plan_file.PLAN_FILE if place.is_dir() else place)
    plan = plan_file.read(place)
    _require_held(plan)
    beside = place if place.is_dir() else place.parent
    weights = repaired_file.read(beside, plan.weights, plan.pruned.repaired_by) if plan.weights else None
    recovered = recovered_file.read(beside, plan)
    on_progress(0, _STEPS, "checking the dense model")
    _require_model(plan, model)
    on_progress(1, _STEPS, "reading the dense model")
    # on the CPU a copied row or column is the same whatever machine made the first checkpoint
    decoder = loading.load(model, device="cpu", dtype=plan.dtype or "auto")
    on_progress(2, _STEPS, "cutting")

    def repaired(made: nn.Module) -> None:
        if weights is not None:
            repaired_file.put(made, decoder.layout, weights)
        if plan.biases is not None:
            _set_biases(made, decoder, plan.biases)

    pruned = cut(decoder, plan.pruned.masks, then=repaired)
    with low_rank.merged(pruned, decoder.layout, recovered):
        _require_answer(pruned, plan)
    on_progress(3, _STEPS, "writing and reading back")
    checkpoint.save(
        pruned,
        decoder.tokenizer,
        folder,
        replace(plan.pruned, recovered=recovered),
        source=plan.source,
        fingerprint=plan.fingerprint,
        study=plan.study,
    )
    on_progress(_STEPS, _STEPS, "applied")
    return Path(folder).absolute()


def _require_held(plan: CutPlan) -> None:
    if plan.trained:
        raise CheckpointError(
            "the model of the plan was trained on after it was cut, and the plan does not hold what that "
            "changed: copy the folder itself"
        )
    repairs, remedy = plan.pruned.repairs, "run its study again, and use the plan of the new checkpoint"
    if any(repair.weights for repair in repairs) and plan.weights is None:
        lacking, remedy = "weights", "copy the folder itself, or run its study again"
    elif plan.pruned.biased and plan.biases is None:
        lacking = "biases"
    else:
        return
    raise CheckpointError(
        f"the plan was made with {plan.pruned.repaired_by} but does not hold the {lacking}, which depend on "
        f"the calibration text: {remedy}"
    )


def _require_model(plan: CutPlan, model: str) -> None:
    identity.locate(model, download=True)
    actual = identity.fingerprint(model)
    if actual != plan.fingerprint:
        raise CheckpointError(
            f"the plan is for the model {plan.source!r} with the fingerprint {plan.fingerprint[:12]}, but "
            f"{model!r} has {actual[:12]}: give the dense model with exactly the weights that were pruned"
        )


def _require_answer(pruned: nn.Module, plan: CutPlan) -> None:
    try:
        same_model.require_plan_answer(pruned, plan)
    except CheckpointError as error:
        raise CheckpointError(
            "the model that the plan cuts answers otherwise than the first checkpoint did: the plan has been "
            "changed, copy it again"
        ) from error


@torch.no_grad()
def _set_biases(pruned: Any, decoder: Decoder, biases: dict[str, Array]) -> None:
    for layer, module in enumerate(pruned.get_submodule(decoder.layout.layers).children()):
        for name, rows in biases.items():
            projection = module.get_submodule(getattr(decoder.layout, name))
            bias = torch.tensor(rows[layer], dtype=projection.weight.dtype)
            if bias.shape != projection.weight.shape[:1]:
                raise CheckpointError(
                    f"the plan holds {len(bias)} biases for {name} of layer {layer}, which has "
                    f"{len(projection.weight)} rows: copy the plan again"
                )
            projection.bias = nn.Parameter(bias, requires_grad=False)
