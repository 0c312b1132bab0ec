"""Apply masks to a frozen decoder by hooks that can be switched off (section 3.3).

The masks multiply the inputs of down_proj and o_proj. The dense model (the teacher) and the masked model (the
student) share one copy of the weights.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from gprune.models.decoder import Decoder
from gprune.models.parts import Rows
from gprune.pruning.masking import replace_forward
from gprune.pruning.sparsity.activation_checkpointing import SUBSETS, add_bias, apply_mask, masked_product, recompute
from gprune.pruning.sparsity.masks import UnitMasks
from gprune.records import ModelShape

# dtypes for which a norm converts its input to float32
_HALF_PRECISION = (torch.float16, torch.bfloat16)
# only modules of this library are replaced; custom code may use the same names for other functions
_LIBRARY_PREFIX = "transformers."


@dataclass(slots=True)
class MaskHooks:
    """Switch a decoder between teacher (closed: no masks) and student (open: one copy of the masks per subset)."""

    shape: ModelShape
    devices: list[torch.device]
    """device of each layer"""
    channels: list[Tensor] = field(default_factory=list)
    """(subsets, channels) leaf tensors: masks for the inputs of all down_proj, then of all o_proj; empty if closed"""
    biases: list[Tensor] = field(default_factory=list)
    """(hidden,) biases of the outputs of all down_proj, then of all o_proj; may be empty"""

    def open(self, family: UnitMasks, learned: Tensor, copies: int = SUBSETS) -> None:
        """Apply the masks of the learned values to the inputs of down_proj and o_proj, with gradients.

        Args:
            family: computes masks from the learned values.
            learned: (count,) learned values.
            copies: number of subsets in the next forward pass, each with the same number of sequences.
        """
        neurons, groups = family.split(family.hard_masks(learned).float())
        attention = groups.repeat_interleave(self.shape.group_channels, dim=1)
        rows = self.place_on_layers([*neurons, *attention])
        self.channels = [row.expand(copies, -1).clone().requires_grad_() for row in rows]

    def place_on_layers(self, rows: Sequence[Tensor]) -> list[Tensor]:
        """Move tensors for all down_proj and then all o_proj to the devices of their layers."""
        return [row.to(device) for row, device in zip(rows, self.devices * 2, strict=True)]

    def close(self) -> None:
        """Switch the masks and biases off."""
        self.channels, self.biases = [], []

    def mask_hook(self, index: int) -> Callable[[nn.Module, tuple[Tensor, ...]], tuple[Tensor, ...] | None]:
        """Return a forward pre-hook that multiplies a linear map's input by the mask at `index`, while open."""

        def multiply(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
            if not self.channels:
                return None
            return (apply_mask(inputs[0], self.channels[index]), *inputs[1:])

        return multiply

    def bias_hook(self, index: int) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], Tensor | None]:
        """Return a forward hook that adds the bias at `index` to a linear map's output, if biases are set."""

        def add(_: nn.Module, __: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
            return add_bias(output, self.biases[index]) if self.biases else None

        return add

    def feed_forward(self, layer: int, part: nn.Module, decoder: Decoder) -> Callable[[Tensor], Tensor]:
        """Return a forward function of a layer's FFN that stores less for the backward pass."""
        gate, up, down = decoder.gate_proj(layer), decoder.up_proj(layer), decoder.down_proj(layer)
        activation: Any = _find_activation(part)
        dense: Callable[[Tensor], Tensor] = part.forward

        def forward(inputs: Tensor) -> Tensor:
            if not self.channels:
                return dense(inputs)
            outputs: Tensor = down(masked_product(gate(inputs), up(inputs), self.channels[layer], activation))
            return outputs

        return forward

    def unit_gradient(self, gradients: tuple[Tensor, ...]) -> Tensor:
        """Return (subsets, units) mask gradients from those of `channels`, on the device of the first layer.

        The gradient of a key/value group is the sum over its channels.
        """
        gradients = tuple(gradient.to(self.devices[0]) for gradient in gradients)
        layers, channels = self.shape.layers, self.shape.group_channels
        neurons = torch.cat(gradients[:layers], dim=1)
        groups = torch.cat([g.unflatten(1, (-1, channels)).sum(-1) for g in gradients[layers:]], dim=1)
        return torch.cat([neurons, groups], dim=1)


@contextmanager
def hook_decoder(decoder: Decoder, biased: bool = False) -> Iterator[MaskHooks]:
    """Attach closed hooks to a decoder and remove them on exit; if `biased`, they also add biases to the outputs."""
    hooks = MaskHooks(decoder.shape, [decoder.layer_device(layer) for layer in range(decoder.shape.layers)])
    with ExitStack() as stack:
        stack.callback(hooks.close)
        for index, layer in enumerate(decoder.layers):
            part = layer.get_submodule(decoder.layout.feed_forward)
            # in a pruned layer, the row offsets of fused maps differ from those of the dense shape
            is_unpruned = not isinstance(decoder.gate_proj(index), Rows) or (
                decoder.down_proj(index).in_features == decoder.shape.neurons
            )
            if is_unpruned and _is_library_module(part) and _find_activation(part) is not None:
                stack.enter_context(replace_forward(part, hooks.feed_forward(index, part, decoder)))
            else:
                _register_hook(decoder.down_proj(index), hooks.mask_hook(index), stack)
            # the masks and biases of o_proj follow those of all down_proj
            attention_index = decoder.shape.layers + index
            _register_hook(decoder.o_proj(index), hooks.mask_hook(attention_index), stack)
            if biased:
                for linear, position in ((decoder.down_proj(index), index), (decoder.o_proj(index), attention_index)):
                    stack.callback(linear.register_forward_hook(hooks.bias_hook(position)).remove)
        if decoder.dtype in _HALF_PRECISION:
            for norm in _find_norms(decoder):
                stack.enter_context(replace_forward(norm, _wrap_recompute(norm.forward)))
        yield hooks


def _register_hook(linear: nn.Linear, hook: Callable[..., Any], stack: ExitStack) -> None:
    """Register a forward pre-hook, which `stack` removes."""
    stack.callback(linear.register_forward_pre_hook(hook).remove)


def _find_activation(part: nn.Module) -> Any:
    """Return the activation function of an FFN module, or None if it has none under a usual name."""
    return getattr(part, "act_fn", None) or getattr(part, "activation_fn", None)


def _is_library_module(module: nn.Module) -> bool:
    return type(module).__module__.startswith(_LIBRARY_PREFIX)


def _find_norms(decoder: Decoder) -> list[nn.Module]:
    """Return the RMS norms of the model; every family has its own class."""
    backbone: Any = decoder.model.base_model
    return [part for part in backbone.modules() if _is_library_module(part) and type(part).__name__.endswith("RMSNorm")]


def _wrap_recompute(forward: Callable[..., Tensor]) -> Callable[[Tensor], Tensor]:
    """Return a function like `forward` that stores only its input for the backward pass."""

    def recomputed(inputs: Tensor) -> Tensor:
        if torch.is_grad_enabled() and inputs.requires_grad:
            return recompute(forward, inputs)
        return forward(inputs)

    return recomputed
