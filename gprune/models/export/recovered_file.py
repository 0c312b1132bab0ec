"""What recovery has trained, beside a plan: low-rank factors of linear maps, in one safetensors file.

The weights of the folder have them merged in and need no such file. It is for whoever makes the model again
from its plan and the dense one.
"""

from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from gprune.models.export import repaired_file
from gprune.models.export.plan_file import CutPlan, Recovery
from gprune.models.low_rank import pairs
from gprune.records import RecoveredWeights
from gprune.store import checksums
from gprune.system.errors import CheckpointError

RECOVERED_FILE = "recovered_weights.safetensors"


def write(folder: Path, recovered: RecoveredWeights | None) -> Recovery | None:
    """Writes the factors of every map, and gives what a plan says of them; nothing where there are none."""
    if recovered is None:
        return None
    sizes = [(outputs, inputs) for outputs, inputs in recovered.sizes.tolist()]
    found = pairs(torch.tensor(recovered.numbers), sizes, recovered.rank)
    tensors = {
        f"{name}.{letter}": part.contiguous()
        for name, factors in zip(recovered.maps, found, strict=True)
        for letter, part in zip("AB", factors, strict=True)
    }
    save_file(tensors, folder / RECOVERED_FILE)
    digest = checksums.of_file(folder / RECOVERED_FILE)
    return Recovery(recovered.kind, recovered.rank, recovered.scale, digest)


def read(folder: Path, plan: CutPlan) -> RecoveredWeights | None:
    """The factors beside a plan that names their digest; None where it names none.

    Raises CheckpointError where the file is missing, another one, or holds no such factors.
    """
    said = plan.recovery
    if said is None:
        return None
    found = repaired_file.named(folder / RECOVERED_FILE, said.digest, f"recovery ({said.kind})", "recovery")
    maps = sorted({name.rpartition(".")[0] for name in found})
    try:
        factors = [(found.pop(f"{name}.A"), found.pop(f"{name}.B")) for name in maps]
        if found or any(len(a) != said.rank or b.shape[1] != said.rank for a, b in factors):
            raise KeyError("rank")
    except (KeyError, IndexError) as error:
        raise CheckpointError(f"{RECOVERED_FILE} holds no factors of rank {said.rank}: copy it again") from error
    return RecoveredWeights(
        method=plan.pruned.masks.method,
        kind=said.kind,
        scale=said.scale,
        rank=said.rank,
        maps=tuple(maps),
        sizes=np.array([(len(b), a.shape[1]) for a, b in factors]),
        numbers=torch.cat([part.float().flatten() for pair in factors for part in pair]).numpy(),
        steps=np.zeros((0, 0)),
        columns=(),
    )
