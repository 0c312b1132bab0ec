"""Bias compensation, as in FLAP: the mean contribution of removed units moves into the biases."""

from collections.abc import Sequence
from functools import reduce

import torch

from gprune.models.decoder import Decoder
from gprune.pruning.repair import OutputMap
from gprune.records import ActivationStatistics, Array, pool
from gprune.system.progress import Progress


def ready(_: Decoder, means: Sequence[ActivationStatistics]) -> dict[str, Array]:
    """Mean inputs of the output maps over all shards of its texts, several of them as one, by map's name.

    o_proj has (layers, heads * head_width), down_proj (layers, neurons).
    """
    statistics = reduce(pool, means).merge()
    return {"down_proj": statistics.ffn_mean[0], "o_proj": statistics.attention_mean[0]}


def repair(_: Decoder, maps: Sequence[OutputMap], means: dict[str, Array], __: Progress) -> None:
    """Add to every bias what the removed columns give at their mean input; a map without a bias gets one."""
    for output in maps:
        removed = output.columns(staying=False).double()
        mean = means[output.name][output.layer][~output.mask]
        lost = removed @ torch.as_tensor(mean, dtype=torch.float64, device=removed.device)
        bias = output.dense_bias() if output.bias is None else output.bias
        output.bias = (lost if bias is None else lost + bias.double()).to(output.dense.weight.dtype)
