"""Puts weights that were fitted to some masks into the output maps; `fitting` makes them."""

from collections.abc import Sequence

import numpy as np
import torch

from gprune.models.decoder import Decoder
from gprune.pruning.repair import OutputMap
from gprune.records import Array, RepairedWeights
from gprune.system.errors import ModelError
from gprune.system.progress import Progress


def ready(_: Decoder, weights: RepairedWeights) -> RepairedWeights:
    """Fitted weights hold for the masks that they were fitted to alone: nothing to make ahead."""
    return weights


def repair(_: Decoder, maps: Sequence[OutputMap], weights: RepairedWeights, __: Progress) -> None:
    """Sets weights and biases of all maps. Raises ModelError where they were fitted to other masks."""
    columns = [int(one.kept.sum()) for one in maps]
    if columns != weights.columns.tolist() or any(
        len(one.dense.weight) * kept != size
        for one, kept, size in zip(maps, columns, np.diff(weights.ends, prepend=0), strict=True)
    ):
        raise ModelError(
            f"the weights repaired by {weights.kind} are those of other masks, or of another model: repair "
            "these masks anew"
        )
    for index, (one, stop) in enumerate(zip(maps, weights.ends.tolist(), strict=True)):
        device, outputs = one.device, len(one.dense.weight)
        start = stop - outputs * columns[index]
        found = _tensor(weights.numbers[start:stop], weights.dtype).reshape(outputs, columns[index])
        one.weight = found.to(device, one.dense.weight.dtype)
        if len(weights.biases):
            one.bias = torch.tensor(weights.biases[index]).to(device, one.dense.weight.dtype)


def packed(maps: Sequence[OutputMap], method: str, kind: str, errors: Array) -> RepairedWeights:
    """Repaired maps as a record; maps that have no weights of their own keep those of the dense model."""
    weights = [one.columns() if one.weight is None else one.weight for one in maps]
    biased = all(one.bias is not None for one in maps)
    return RepairedWeights(
        method=method,
        kind=kind,
        dtype=str(weights[0].dtype).removeprefix("torch."),
        columns=np.array([one.kept.sum() for one in maps]),
        ends=np.cumsum([weight.numel() for weight in weights]),
        numbers=np.concatenate([_numbers(weight) for weight in weights]),
        biases=np.stack([one.bias.float().cpu().numpy() for one in maps if one.bias is not None])
        if biased
        else np.zeros((0, len(weights[0])), np.float32),
        errors=errors,
    )


def _numbers(weight: torch.Tensor) -> Array:
    """A matrix as a row of numbers; numpy has no bfloat16, whose bits are kept as whole numbers."""
    flat = weight.contiguous().cpu().flatten()
    return (flat.view(torch.int16) if flat.dtype == torch.bfloat16 else flat).numpy()


def _tensor(numbers: Array, dtype: str) -> torch.Tensor:
    flat = torch.from_numpy(np.array(numbers))
    return flat.view(torch.bfloat16) if dtype == "bfloat16" else flat
