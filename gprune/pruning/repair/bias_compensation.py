"""Bias compensation, as FLAP has it: what the removed units give on average moves into the biases."""

from collections.abc import Sequence
from functools import reduce

import torch

from gprune.models.decoder import Decoder
from gprune.pruning.repair import OutputMap
from gprune.records import ActivationStatistics, Array, pool
from gprune.system.errors import ModelError
from gprune.system.progress import Progress


def ready(decoder: Decoder, means: Sequence[ActivationStatistics]) -> dict[str, Array]:
    """Mean inputs of the output maps over all shards of its texts, several of them as one, by map's name.

    o_proj has (layers, heads * head_width), down_proj (layers, neurons). Raises ModelError where the
    statistics are of another model.
    """
    statistics = reduce(pool, means).merge()
    found = {"down_proj": statistics.ffn_mean[0], "o_proj": statistics.attention_mean[0]}
    shape = decoder.shape
    shapes = [mean.shape for mean in found.values()]
    expected = [(shape.layers, shape.neurons), (shape.layers, shape.heads * shape.head_width)]
    if shapes != expected:
        raise ModelError(
            f"the statistics of {statistics.text!r} have the shapes {shapes[0]} and {shapes[1]}, "
            f"the model needs {expected[0]} and {expected[1]}: collect them with this model"
        )
    return found


def repair(_: Decoder, maps: Sequence[OutputMap], means: dict[str, Array], __: Progress) -> None:
    """Adds to every bias what the removed columns give at their mean input; a map without a bias gets one."""
    for one in maps:
        removed = one.columns(kept=False).double()
        mean = means[one.name][one.layer][~one.kept]
        lost = removed @ torch.as_tensor(mean, dtype=torch.float64, device=removed.device)
        bias = one.dense_bias() if one.bias is None else one.bias
        one.bias = (lost if bias is None else lost + bias.double()).to(one.dense.weight.dtype)
