"""Answers: what does the model look like without the units a plan removes?

Structured pruning as in section 3: ``cut`` makes a physically smaller model, which says what the dense one
says while the removed units are silent. A key/value group leaves whole, with all its query heads, so that
grouped-query attention keeps its group size in every layer. ``Silenced`` is that dense model with silent
units: it says what the cut one says, and needs no copy.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from gprune.errors import ModelError
from gprune.models.decoder import Decoder
from gprune.records import ActivationStatistics, Array, ModelShape, PruningMasks


def cut(decoder: Decoder, masks: PruningMasks, statistics: ActivationStatistics | None = None) -> nn.Module:
    """Makes a smaller model of the same class, without the units that the masks remove.

    Only the kept rows and columns are copied. Embeddings, norms and LM head are the dense model's own.

    Args:
        decoder: the dense model; it stays as it is.
        masks: which units are kept, at least one neuron and one key/value group in every layer.
        statistics: of the calibration text; where given, the mean contribution of the removed units is added
            to the biases of down_proj and o_proj (FLAP's bias compensation), which get one if they have none.

    Returns:
        A causal language model in evaluation mode, on the dense model's device and of its number type. Its
        ``config`` is a copy of the dense one and still tells the dense widths; each projection knows its own.

    Raises:
        ModelError: the masks or the statistics are of another model, or a layer would lose all its neurons or
            all its key/value groups.
        SettingsError: the dense model's layers are offloaded.
    """
    decoder.require_whole("pruning")
    _require_fit(decoder.shape, masks)
    _require_something_left(masks)
    means = None if statistics is None else _means(decoder.shape, statistics)
    replaced: dict[int, Any] = {}
    with torch.no_grad():
        for layer in range(decoder.shape.layers):
            replaced |= _narrowed_layer(decoder, layer, masks, means)
    return _copy_around(decoder, replaced)


class Silenced:
    """The dense model with the removed units silent, for as long as one wants: what ``cut`` says, uncopied.

    While ``applied``, hooks zero the inputs of down_proj and o_proj that belong to removed units, and with
    statistics the compensating biases stand in for the dense ones.
    """

    def __init__(
        self, decoder: Decoder, masks: PruningMasks, statistics: ActivationStatistics | None = None
    ) -> None:
        """Prepares masks and biases; the decoder stays as it is. See ``cut`` for arguments and errors."""
        shape = decoder.shape
        _require_fit(shape, masks)
        _require_something_left(masks)
        means = None if statistics is None else _means(shape, statistics)
        channels = _channel_masks(shape, masks)
        self._places: list[tuple[nn.Linear, torch.Tensor, nn.Parameter | None]] = []
        for layer in range(shape.layers):
            maps = (decoder.down_proj(layer), masks.ffn[layer]), (decoder.o_proj(layer), channels[layer])
            for part, (dense, kept) in enumerate(maps):
                bias = None
                if means is not None:
                    with torch.no_grad():
                        values = _compensating_bias(dense, kept, means[part][layer])
                    bias = nn.Parameter(values, requires_grad=False)
                self._places.append((dense, torch.as_tensor(~kept, device=dense.weight.device), bias))

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Silences the units, and leaves the decoder as it was, whatever happens inside."""
        with ExitStack() as undone:
            for dense, removed, bias in self._places:
                undone.callback(dense.register_forward_pre_hook(_silence(removed)).remove)
                if bias is not None:
                    undone.callback(setattr, dense, "bias", dense.bias)
                    dense.bias = bias
            yield


def _silence(removed: torch.Tensor) -> Any:
    def fill(_: nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        # filled, not multiplied: what overflows in a removed unit must not reach the others as NaN
        return (inputs[0].masked_fill(removed, 0), *inputs[1:])

    return fill


def _narrowed_layer(
    decoder: Decoder, layer: int, masks: PruningMasks, means: tuple[Array, Array] | None
) -> dict[int, Any]:
    """The seven projections of a layer without the removed units, by the identity of the dense ones."""
    shape = decoder.shape
    neurons = masks.ffn[layer]
    queries = np.repeat(masks.heads[layer], shape.group_channels)
    keys = np.repeat(masks.heads[layer], shape.head_width)
    rows = (
        (decoder.gate_proj(layer), neurons),
        (decoder.up_proj(layer), neurons),
        (decoder.q_proj(layer), queries),
        (decoder.k_proj(layer), keys),
        (decoder.v_proj(layer), keys),
    )
    columns = ((decoder.down_proj(layer), neurons, 0), (decoder.o_proj(layer), queries, 1))
    narrowed: dict[int, Any] = {id(dense): _keep_rows(dense, kept) for dense, kept in rows}
    for dense, kept, part in columns:
        narrowed[id(dense)] = _keep_columns(dense, kept, None if means is None else means[part][layer])
    return narrowed


def _keep_rows(dense: nn.Linear, kept: Array) -> nn.Linear:
    index = _index(kept, dense.weight.device)
    bias = None if dense.bias is None else dense.bias.index_select(0, index)
    return _linear(dense.weight.index_select(0, index), bias)


def _keep_columns(dense: nn.Linear, kept: Array, mean: Array | None) -> nn.Linear:
    """Keeps columns; with a mean input, what the removed columns give on average moves into the bias."""
    weight = dense.weight.index_select(1, _index(kept, dense.weight.device))
    bias = None if dense.bias is None else dense.bias.clone()
    if mean is None:
        return _linear(weight, bias)
    return _linear(weight, _compensating_bias(dense, kept, mean))


def _compensating_bias(dense: nn.Linear, kept: Array, mean: Array) -> torch.Tensor:
    """The bias of a dense map, with what its removed inputs give on average."""
    removed = dense.weight.index_select(1, _index(~kept, dense.weight.device)).double()
    lost = removed @ torch.as_tensor(mean[~kept], dtype=torch.float64, device=removed.device)
    return (lost if dense.bias is None else lost + dense.bias.double()).to(dense.weight.dtype)


def _linear(weight: torch.Tensor, bias: torch.Tensor | None) -> nn.Linear:
    outputs, inputs = weight.shape
    module = nn.Linear(inputs, outputs, bias=bias is not None, device="meta")
    module.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        module.bias = nn.Parameter(bias, requires_grad=False)
    return module.eval()


def _copy_around(decoder: Decoder, replaced: dict[int, Any]) -> nn.Module:
    """Copies the model's structure; narrowed projections stand in, and all other weights are shared."""
    inside = {
        id(parameter)
        for module in decoder.model.modules()
        if id(module) in replaced
        for parameter in module.parameters()
    }
    known = dict(replaced)
    known |= {id(p): p for p in decoder.model.parameters() if id(p) not in inside}
    return copy.deepcopy(decoder.model, known).eval()


def _channel_masks(shape: ModelShape, masks: PruningMasks) -> Array:
    """(layers, heads * head_width) bool: the group masks at every channel of the o_proj input."""
    channels: Array = np.repeat(masks.heads, shape.group_channels, axis=1)
    return channels


def _means(shape: ModelShape, statistics: ActivationStatistics) -> tuple[Array, Array]:
    """Mean inputs of down_proj (layers, neurons) and o_proj (layers, heads * head_width) over all shards."""
    merged = statistics.merge()
    means = merged.ffn_mean[0], merged.attention_mean[0]
    expected = (shape.layers, shape.neurons), (shape.layers, shape.heads * shape.head_width)
    if (means[0].shape, means[1].shape) != expected:
        raise ModelError(
            f"the statistics of {statistics.text!r} have the shapes {means[0].shape} and {means[1].shape}, "
            f"the model needs {expected[0]} and {expected[1]}: collect them with this model"
        )
    return means


def _require_fit(shape: ModelShape, masks: PruningMasks) -> None:
    actual = masks.ffn.shape, masks.heads.shape
    expected = (shape.layers, shape.neurons), (shape.layers, shape.kv_heads)
    if actual != expected:
        raise ModelError(
            f"the {masks.method} masks have the shapes {actual[0]} for neurons and {actual[1]} for groups, "
            f"the model has {expected[0]} and {expected[1]}: choose the model they were made for"
        )


def _require_something_left(masks: PruningMasks) -> None:
    for what, mask in (("neurons", masks.ffn), ("key/value groups", masks.heads)):
        empty = np.flatnonzero(~mask.any(axis=1))
        if empty.size:
            raise ModelError(
                f"layer {int(empty[0])} would lose all {mask.shape[1]} {what}: keep at least one in every "
                "layer, for example by a higher retention"
            )


def _index(kept: Array, device: torch.device) -> torch.Tensor:
    return torch.as_tensor(np.flatnonzero(kept), device=device)
