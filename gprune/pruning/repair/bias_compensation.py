"""Compensate biases as in FLAP: add the mean contribution of removed units to the biases."""

from collections.abc import Sequence
from functools import reduce

import torch

from gprune.models.decoder import Decoder
from gprune.pruning.repair import OutputMap
from gprune.records import ActivationStatistics, Array, pool
from gprune.system.progress import Progress


def ready(_: Decoder, means: Sequence[ActivationStatistics]) -> dict[str, Array]:
    """Return the mean inputs over all texts and shards by the map's name.

    The shapes are (layers, heads * head_width) for o_proj and (layers, neurons) for down_proj.
    """
    statistics = reduce(pool, means).merge()
    return {"down_proj": statistics.ffn_mean[0], "o_proj": statistics.attention_mean[0]}


def repair(_: Decoder, maps: Sequence[OutputMap], means: dict[str, Array], __: Progress) -> None:
    """Add the output of the removed columns at their mean input to every bias; create missing biases."""
    for output in maps:
        removed_weights = output.columns(removed=True).double()
        mean = means[output.name][output.layer][~output.mask]
        missing_output = removed_weights @ torch.as_tensor(mean, dtype=torch.float64, device=removed_weights.device)
        bias = output.dense_bias() if output.bias is None else output.bias
        output.bias = (missing_output if bias is None else missing_output + bias.double()).to(output.dense.weight.dtype)
