"""Fold learned scales and biases into the output maps; `gprune.pruning.sparsity.scales` learns them."""

from collections.abc import Sequence

import numpy as np
import torch

from gprune.models.decoder import Decoder
from gprune.pruning.repair import OutputMap, dense_maps, fitted
from gprune.records import LearnedScales, PrunedModel, PruningMasks, RepairedWeights
from gprune.system.errors import ModelError
from gprune.system.progress import Progress, silent


def ready(_: Decoder, scales: LearnedScales) -> LearnedScales:
    """Return the scales unchanged; they are valid only for the masks for which they were learned."""
    return scales


def fold(decoder: Decoder, masks: PruningMasks, weights: RepairedWeights, scales: LearnedScales) -> RepairedWeights:
    """Multiply fitted weights by scales learned after the fit, and add the learned biases."""
    maps = dense_maps(decoder, PrunedModel(masks))
    fitted.repair(decoder, maps, weights, silent)
    repair(decoder, maps, scales, silent)
    return fitted.pack_maps(maps, weights.method, f"{weights.kind}_scales", weights.errors)


def repair(decoder: Decoder, maps: Sequence[OutputMap], scales: LearnedScales, _: Progress) -> None:
    """Multiply every kept column by its factor and add the learned biases; create missing biases.

    Raises ModelError if the scales were learned for other masks.
    """
    heads = np.repeat(scales.heads, decoder.shape.group_channels, axis=1)
    # position of the map among the biases of a layer, and the factors of its columns
    factors = {"o_proj": (0, heads), "down_proj": (1, scales.ffn)}
    for output in maps:
        position, rows = factors[output.name]
        if not np.array_equal(rows[output.layer] != 0, output.mask):
            raise ModelError(f"the scales of {scales.method} belong to other masks or another model: learn them again")
        weight, bias = output.pruned_parameters()
        float_type = torch.promote_types(weight.dtype, torch.float32)
        factor = torch.tensor(rows[output.layer][output.mask]).to(weight.device, float_type)
        learned_bias = torch.tensor(scales.biases[output.layer, position]).to(weight.device, float_type)
        output.weight = (weight.to(float_type) * factor).to(weight.dtype)
        output.bias = (learned_bias if bias is None else bias.to(float_type) + learned_bias).to(weight.dtype)
