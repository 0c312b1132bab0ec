"""LLM-Pruner's allocation: keep the first and last layers dense and prune the middle layers at one ratio.

A baseline of section 4, without fine-tuning. The published layer range is for 32 layers and is scaled to the depth.
"""

import math
from dataclasses import replace

import numpy as np

from gprune.pruning.allocation import uniform
from gprune.records import ModelShape, PruningMasks, UnitScores
from gprune.records.budget import nearest_whole
from gprune.system.errors import MethodError

PUBLISHED_LAYERS, FIRST, LAST = 32, 4, 30
"""number of layers that LLM-Pruner was published for, and the range of layers that it prunes there"""


def pruned_layers(layers: int) -> range:
    """Return the range of layers that LLM-Pruner prunes in a decoder of `layers` layers; at least one layer.

    With three or more layers the last layer is not pruned, as at the published depth.
    """
    first = nearest_whole(FIRST * layers / PUBLISHED_LAYERS)
    last = min(nearest_whole(LAST * layers / PUBLISHED_LAYERS), layers - 1 if layers > 2 else layers)
    return range(first, max(last, first + 1))


def lowest_retention(shape: ModelShape) -> float:
    """Return the retention with one neuron and one key/value group left in each layer that is pruned."""
    pruned = len(pruned_layers(shape.layers))
    dense = shape.decoder_weights * (shape.layers - pruned) / shape.layers
    return (dense + pruned * (shape.group_weights + shape.neuron_weights)) / shape.decoder_weights


def allocate(scores: UnitScores, shape: ModelShape, target: float) -> PruningMasks:
    """Return masks that prune the middle layers at the ratio that meets the target over the whole decoder.

    Raises MethodError if the target is below `lowest_retention`.
    """
    block, lowest = pruned_layers(shape.layers), lowest_retention(shape)
    if target < lowest:
        raise MethodError(
            f"LLM-Pruner prunes {len(block)} of {shape.layers} layers and cannot reach a retention of "
            f"{target}: ask for {math.ceil(lowest * 1000) / 1000} or more, or leave the method out"
        )
    # the pruned layers lose everything that the decoder must lose
    block_target = 1 - (1 - target) * shape.layers / len(block)
    block_shape = replace(shape, layers=len(block))
    ffn = np.ones((shape.layers, shape.neurons), dtype=bool)
    heads = np.ones((shape.layers, shape.kv_heads), dtype=bool)
    for index, layer in enumerate(block):
        layer_scores = scores.ffn[layer], scores.heads[layer]
        ffn[layer], heads[layer] = uniform.allocate_layer(*layer_scores, block_shape, block_target, index)
    return uniform.build_masks(shape, ffn, heads, target, "llm_pruner")
