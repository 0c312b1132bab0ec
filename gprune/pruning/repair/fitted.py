"""Apply weights that `fitting` has computed for a set of masks."""

from collections.abc import Sequence

import numpy as np
import torch

from gprune.models.decoder import Decoder
from gprune.pruning.repair import OutputMap
from gprune.records import Array, RepairedWeights
from gprune.system.errors import ModelError
from gprune.system.progress import Progress


def ready(_: Decoder, weights: RepairedWeights) -> RepairedWeights:
    """Return the fitted weights unchanged; they are valid only for the masks they were fitted to."""
    return weights


def repair(_: Decoder, maps: Sequence[OutputMap], weights: RepairedWeights, __: Progress) -> None:
    """Set the fitted weights and biases of all maps. Raises ModelError if they were fitted to other masks."""
    columns = [int(output.mask.sum()) for output in maps]
    if columns != weights.columns.tolist() or any(
        len(output.dense.weight) * width != size
        for output, width, size in zip(maps, columns, np.diff(weights.ends, prepend=0), strict=True)
    ):
        raise ModelError(
            f"the weights repaired by {weights.kind} belong to other masks or another model: repair these masks again"
        )
    # the weights of all maps follow each other in `numbers`
    for index, (output, stop) in enumerate(zip(maps, weights.ends.tolist(), strict=True)):
        device, outputs = output.device, len(output.dense.weight)
        start = stop - outputs * columns[index]
        matrix = _tensor(weights.numbers[start:stop], weights.dtype).reshape(outputs, columns[index])
        output.weight = matrix.to(device, output.dense.weight.dtype)
        if len(weights.biases):
            output.bias = torch.tensor(weights.biases[index]).to(device, output.dense.weight.dtype)


def pack_maps(maps: Sequence[OutputMap], method: str, kind: str, errors: Array) -> RepairedWeights:
    """Return a record of the repaired maps; it has the dense weights for maps that were not repaired."""
    weights = [output.columns() if output.weight is None else output.weight for output in maps]
    biased = all(output.bias is not None for output in maps)
    return RepairedWeights(
        method=method,
        kind=kind,
        dtype=str(weights[0].dtype).removeprefix("torch."),
        columns=np.array([output.mask.sum() for output in maps]),
        ends=np.cumsum([weight.numel() for weight in weights]),
        numbers=np.concatenate([_flatten(weight) for weight in weights]),
        biases=np.stack([output.bias.float().cpu().numpy() for output in maps if output.bias is not None])
        if biased
        else np.zeros((0, len(weights[0])), np.float32),
        errors=errors,
    )


def _flatten(weight: torch.Tensor) -> Array:
    """Return a matrix as a flat array; bfloat16 is stored as integers, because numpy lacks this type."""
    flat = weight.contiguous().cpu().flatten()
    return (flat.view(torch.int16) if flat.dtype == torch.bfloat16 else flat).numpy()


def _tensor(numbers: Array, dtype: str) -> torch.Tensor:
    """Return the flat tensor that `_flatten` stored."""
    flat = torch.from_numpy(np.array(numbers))
    return flat.view(torch.bfloat16) if dtype == "bfloat16" else flat
