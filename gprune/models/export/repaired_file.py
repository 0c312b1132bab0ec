"""Repaired weights beside a plan, so that the plan and the dense model give the repaired model again.

A plan lists units and can hold biases; fitted weights of o_proj and down_proj are too many for it. They stand
in one safetensors file of the folder, whose digest the plan names.
"""

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from gprune.models.export.plan_file import OUTPUT_MAPS
from gprune.models.families import Layout
from gprune.store import checksums
from gprune.system import safe_parsing
from gprune.system.errors import CheckpointError

REPAIRED_FILE = "repaired_weights.safetensors"


def projections(model: Any, layout: Layout) -> dict[str, nn.Linear]:
    """The output maps of a model, by names such as 3.o_proj."""
    layers = model.get_submodule(layout.layers).children()
    return {
        f"{number}.{name}": layer.get_submodule(getattr(layout, name))
        for number, layer in enumerate(layers)
        for name in OUTPUT_MAPS
    }


def size(model: Any, layout: Layout) -> int:
    """Bytes of the file."""
    weights = (one.weight for one in projections(model, layout).values())
    return sum(weight.numel() * weight.element_size() for weight in weights)


def write(folder: Path, model: Any, layout: Layout) -> str:
    """Writes the weights of a model's output maps; their SHA-256."""
    weights = {name: one.weight.detach().cpu() for name, one in projections(model, layout).items()}
    save_file(weights, folder / REPAIRED_FILE)
    return checksums.of_file(folder / REPAIRED_FILE)


def read(folder: Path, digest: str, repaired_by: str) -> dict[str, torch.Tensor]:
    """The weights beside a plan that names their digest.

    Raises CheckpointError where the file is missing, another one, or damaged.
    """
    return named(folder / REPAIRED_FILE, digest, repaired_by, "repair")


def named(file: Path, digest: str, made_with: str, what: str) -> dict[str, torch.Tensor]:
    """The tensors of a file whose digest a plan names; `what` is missing without it.

    Raises CheckpointError where it is missing, another one, or damaged.
    """
    if not file.is_file():
        raise CheckpointError(
            f"the plan was made with {made_with}, whose weights are in {file.name}: that file is not "
            f"beside it, so the {what} is missing. Copy it into {str(file.parent)!r}"
        )
    try:
        if checksums.of_file(file) != digest:
            raise CheckpointError(
                f"{file.name} beside the plan is not the one that the plan names ({digest[:12]}): copy "
                "both from one folder"
            )
        return load_file(file)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"{str(file)!r} cannot be read ({safe_parsing.sentence(error, 160)}): copy it again"
        ) from error


@torch.no_grad()
def put(model: Any, layout: Layout, weights: dict[str, torch.Tensor]) -> None:
    """Gives a cut model the weights; CheckpointError where they are of other widths."""
    for name, one in projections(model, layout).items():
        found = weights.get(name)
        if found is None or found.shape != one.weight.shape:
            shown = "nothing" if found is None else tuple(found.shape)
            raise CheckpointError(
                f"{REPAIRED_FILE} has {shown} for {name}, which the plan cuts to {tuple(one.weight.shape)}: "
                "copy both from one folder"
            )
        one.weight = nn.Parameter(found.to(one.weight.dtype), requires_grad=False)
