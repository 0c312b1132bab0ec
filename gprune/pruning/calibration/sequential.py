"""Layer-by-layer pruning as in Wanda-sp (section 4).

The hidden states of all sequences are propagated layer by layer. Each layer is measured on the output of the pruned
layers below, then pruned, then run again with its units masked.
"""

from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from gprune.models import devices
from gprune.models.decoder import Decoder
from gprune.pruning.calibration.accumulators import ChannelMoments, require_finite
from gprune.pruning.calibration.collection import batch_runner, observe_inputs
from gprune.pruning.masking import mask_units
from gprune.records import Array, Tokens
from gprune.system.progress import Progress, silent

Decide = Callable[[int, Array, Array, int], tuple[Array, Array]]
"""(layer, (neurons,) energy, (heads * head_width,) energy, sequences) -> (neurons,) and (groups,) bool masks"""

Call = tuple[tuple[Any, ...], dict[str, Any]]
"""positional and keyword arguments of a layer, without the hidden states"""


@torch.no_grad()
def prune_layerwise(
    decoder: Decoder, tokens: Tokens, batch: int, decide: Decide, on_progress: Progress = silent
) -> tuple[Array, Array]:
    """Prune layer by layer, measuring each layer on the output of the pruned layers below it.

    Returns (layers, neurons) and (layers, key/value groups) bool masks, True = kept. If memory runs out, pruning
    restarts with half the batch and calls `decide` again. The model is not changed. It counts as one forward pass
    over the calibration set.

    Raises SettingsError if not even one sequence fits in memory, NumericsError if an activation is NaN or infinite.
    """
    samples, length = tokens.ids.shape
    # every layer depends on the layers below, so pruning restarts if memory runs out
    decisions = batch_runner(batch, length, decoder, on_progress).attempt(
        lambda size: _prune_layers(decoder, tokens, size, decide, on_progress), samples
    )
    on_progress(decoder.shape.layers, decoder.shape.layers, "layer-by-layer pruning")
    decoder.count_forward(tokens.ids.size)
    return np.stack([ffn for ffn, _ in decisions]), np.stack([heads for _, heads in decisions])


def _prune_layers(
    decoder: Decoder, tokens: Tokens, batch: int, decide: Decide, on_progress: Progress
) -> list[tuple[Array, Array]]:
    """Return the masks of neurons and groups of every layer."""
    blocks = embed_sequences(decoder, tokens, batch)
    decisions: list[tuple[Array, Array]] = []
    for layer in range(decoder.shape.layers):
        on_progress(layer, decoder.shape.layers, "layer-by-layer pruning")
        ffn_energy, attention_energy = _measure_energy(decoder, layer, blocks)
        ffn, heads = decide(layer, ffn_energy, attention_energy, len(tokens.ids))
        decisions.append((np.asarray(ffn, dtype=bool), np.asarray(heads, dtype=bool)))
        with mask_units(decoder, {layer: decisions[-1]}):
            for block in blocks:
                block.states = block.run(decoder, layer).to(block.states.device)
    return decisions


@dataclass
class Block:
    """The hidden states of a batch between two layers."""

    states: torch.Tensor
    """(sequences, length, hidden) input of the next layer"""
    counted: Array | None
    """(sequences, length) bool, True for the positions that count; None if all count"""
    calls: list[Call]
    """arguments of each layer besides the hidden states: positions, attention mask, and so on"""

    def counted_tokens(self, values: torch.Tensor) -> torch.Tensor:
        """Return the (tokens, ...) values at the positions that count, from (sequences, length, ...) values."""
        return values.flatten(0, 1) if self.counted is None else values[torch.tensor(self.counted)]

    def run(self, decoder: Decoder, layer: int) -> torch.Tensor:
        """Return (sequences, length, hidden) output of a layer on the layer's device."""
        arguments, keywords = self.calls[layer]
        output = decoder.layers[layer](self.states.to(decoder.layer_device(layer)), *arguments, **keywords)
        return output[0] if isinstance(output, tuple) else output


def embed_sequences(decoder: Decoder, tokens: Tokens, batch: int, copies: float = 1) -> list[Block]:
    """Embed all sequences and record the arguments with which the model calls its layers.

    The arguments differ between families, library versions and layers, but not between sequences, so one forward
    pass per batch size records them. The hidden states are on the model's device if half of its free memory holds
    `copies` copies of them, else on the CPU.
    """
    samples, length = tokens.ids.shape
    state_bytes, device = samples * length * decoder.shape.hidden * decoder.dtype.itemsize, decoder.device
    if devices.is_gpu(device) and copies * state_bytes >= devices.memory(device)[0] / 2:
        device = torch.device("cpu")
    calls: dict[int, list[Call]] = {}
    blocks = []
    for start in range(0, samples, batch):
        ids = torch.from_numpy(tokens.ids[start : start + batch].astype(np.int64))
        if len(ids) not in calls:
            calls[len(ids)] = _record_calls(decoder, ids)
        counted = tokens.counted_in(slice(start, start + batch))
        blocks.append(Block(_embed_batch(decoder, ids).to(device), counted, calls[len(ids)]))
    return blocks


class StopForward(Exception):  # noqa: N818
    """Raised by a hook to end a forward pass after the module of interest."""


def _record_calls(decoder: Decoder, ids: torch.Tensor) -> list[Call]:
    """Return the arguments of every layer besides the hidden states, for the batch size of `ids`."""
    calls: list[Call] = []

    def record(_: torch.nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        arguments, keywords, _states = _split_states(arguments, keywords)
        calls.append((arguments, keywords))

    with ExitStack() as stack:
        for layer in decoder.layers:
            stack.callback(layer.register_forward_pre_hook(record, with_kwargs=True).remove)
        decoder.hidden_states(ids)
    # only passes that measure the model count
    decoder.count_forward(-ids.numel())
    return calls


def _embed_batch(decoder: Decoder, ids: torch.Tensor) -> torch.Tensor:
    """Return (sequences, length, hidden) input of the first layer."""
    inputs: list[torch.Tensor] = []

    def stop(_: torch.nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        inputs.append(_split_states(arguments, keywords)[2])
        raise StopForward

    # leaving the handle's context removes the hook
    with decoder.layers[0].register_forward_pre_hook(stop, with_kwargs=True), suppress(StopForward):
        decoder.hidden_states(ids)
    return inputs[0]


def _split_states(
    arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any], torch.Tensor]:
    """Return the arguments of a layer without the hidden states, and the hidden states."""
    if arguments:
        return arguments[1:], keywords, arguments[0]
    other_keywords = {name: value for name, value in keywords.items() if name != "hidden_states"}
    return (), other_keywords, keywords["hidden_states"]


def _measure_energy(decoder: Decoder, layer: int, blocks: list[Block]) -> tuple[Array, Array]:
    """Return the energy of every neuron and every o_proj channel of one layer, float64."""
    shape, layers = decoder.shape, range(layer, layer + 1)
    widths = (("down_proj", shape.neurons), ("o_proj", shape.heads * shape.head_width))
    ffn, attention = (ChannelMoments(name, 1, layers, width, decoder.device) for name, width in widths)
    with observe_inputs(decoder, layers, ffn.add, attention.add):
        for block in blocks:
            ffn.counted = attention.counted = block.counted
            block.run(decoder, layer)
            for part in (ffn, attention):
                part.finish_batch(np.zeros(len(block.states), dtype=np.int64))
    require_finite(attention, ffn, 0)
    return ffn.result().energy[0, 0], attention.result().energy[0, 0]
