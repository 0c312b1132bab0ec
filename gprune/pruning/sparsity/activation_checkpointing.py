"""Save memory by activation checkpointing: store inputs and recompute activations in the backward pass (section 3.3).

Tensors stored for the backward pass take most of the memory of a step. The FFN's activations and their product are
recomputed from the outputs of gate_proj and up_proj, and a norm's float32 copy from its half-precision input. This
saves two fifths of the memory at the cost of a few element-wise operations.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

# A', A'', B' and B'' each use their own copy of the masks, so that one backward pass gives separate gradients
SUBSETS = 4

# number of elements of a product that are converted to float32 at a time (16 MiB)
_CONVERTED_SIZE = 1 << 22

Function = Callable[[Tensor], Tensor]


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of learned values and their gradients for a model of this dtype."""
    return torch.promote_types(dtype, torch.float32)


def apply_mask(activations: Tensor, mask: Tensor) -> Tensor:
    """Return activations multiplied by the mask copy of their subset.

    Args:
        activations: (subsets * sequences, tokens, channels) of any floating type.
        mask: (subsets, channels) float32; its gradient is summed in float32.
    """
    product: Tensor = _Masked.apply(activations, mask)
    return product


def masked_product(gate: Tensor, up: Tensor, mask: Tensor, activation: Function) -> Tensor:
    """Return the FFN's hidden layer, activation(gate) * up, times the mask copy of its subset.

    Args:
        gate: (subsets * sequences, tokens, channels) outputs of gate_proj.
        up: outputs of up_proj, of the same shape.
        mask: (subsets, channels) float32; its gradient is summed in float32.
        activation: element-wise activation function without parameters.
    """
    product: Tensor = _MaskedProduct.apply(gate, up, mask, activation)
    return product


def add_bias(outputs: Tensor, bias: Tensor) -> Tensor:
    """Return outputs plus a bias.

    Args:
        outputs: (sequences, tokens, channels) of any floating type.
        bias: (channels,) float32; its gradient is summed in float32.
    """
    result: Tensor = _AddBias.apply(outputs, bias)
    return result


def recompute(function: Function, inputs: Tensor) -> Tensor:
    """Return a function's output and store only its input for the backward pass.

    Args:
        function: a function without trainable parameters.
        inputs: a tensor that requires a gradient.
    """
    outputs: Tensor = _Recomputed.apply(inputs, function)
    return outputs


class _Masked(torch.autograd.Function):
    """Activations times the mask copy of their subset; the mask's gradient is summed in float32."""

    @staticmethod
    def forward(ctx: Any, activations: Tensor, mask: Tensor) -> Tensor:
        """Return (subsets * sequences, tokens, channels) activations scaled by (subsets, channels)."""
        ctx.save_for_backward(activations, mask)
        return _scale_subsets(activations, mask)

    @staticmethod
    def backward(ctx: Any, *output_gradients: Tensor) -> tuple[Tensor | None, Tensor]:
        """Return the gradients of the activations (if needed) and of the mask copies."""
        activations, mask = ctx.saved_tensors
        gradient = output_gradients[0]
        mask_gradient = summed_products(gradient, activations, len(mask))
        return _scale_subsets(gradient, mask) if ctx.needs_input_grad[0] else None, mask_gradient


class _MaskedProduct(torch.autograd.Function):
    """activation(gate) * up * mask; both factors are recomputed in the backward pass."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor, mask: Tensor, activation: Function) -> Tensor:
        """See `masked_product`."""
        ctx.save_for_backward(gate, up, mask)
        ctx.activation = activation
        return _scale_subsets(activation(gate) * up, mask)

    @staticmethod
    def backward(ctx: Any, *output_gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor, None]:
        """Return the gradients of both projections (if needed) and of the mask copies."""
        gate, up, mask = ctx.saved_tensors
        gradient = output_gradients[0]
        leaf = gate.detach().requires_grad_()
        with torch.enable_grad():
            activated = ctx.activation(leaf)
        factor = activated.detach()
        mask_gradient = summed_products(gradient, factor * up, len(mask))
        if not ctx.needs_input_grad[0]:
            return None, None, mask_gradient, None
        masked = _scale_subsets(gradient, mask)
        (gate_gradient,) = torch.autograd.grad(activated, leaf, masked * up)
        return gate_gradient, masked * factor, mask_gradient, None


class _AddBias(torch.autograd.Function):
    """Outputs plus a bias; the bias's gradient is summed in float32."""

    @staticmethod
    def forward(_: Any, outputs: Tensor, bias: Tensor) -> Tensor:
        """See `add_bias`."""
        return outputs + bias.to(outputs.dtype)

    @staticmethod
    def backward(_: Any, *output_gradients: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of the outputs and of the bias."""
        gradient = output_gradients[0]
        return gradient, gradient.flatten(0, -2).sum(dim=0, dtype=at_least_float32(gradient.dtype))


class _Recomputed(torch.autograd.Function):
    """A function that is recomputed in the backward pass."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, function: Function) -> Tensor:
        """See `recompute`."""
        ctx.save_for_backward(inputs)
        ctx.function = function
        return function(inputs)

    @staticmethod
    def backward(ctx: Any, *output_gradients: Tensor) -> tuple[Tensor, None]:
        """Return the gradient of the input."""
        (inputs,) = ctx.saved_tensors
        leaf = inputs.detach().requires_grad_()
        with torch.enable_grad():
            outputs = ctx.function(leaf)
        (gradient,) = torch.autograd.grad(outputs, leaf, output_gradients[0])
        return gradient, None


def _scale_subsets(values: Tensor, mask: Tensor) -> Tensor:
    """Return (subsets * sequences, tokens, channels) values times the (subsets, channels) mask of their subset."""
    by_sequence = mask.to(values.dtype).repeat_interleave(len(values) // len(mask), dim=0)
    return values * by_sequence[:, None, :]


def summed_products(gradient: Tensor, activations: Tensor, subsets: int = SUBSETS) -> Tensor:
    """Return the sums of gradient times activations over the sequences and tokens of each subset, in float32.

    Args:
        gradient: (subsets * sequences, tokens, channels) of any floating type.
        activations: of the same shape and type.
        subsets: number of subsets.

    Returns:
        (subsets, channels) float32.
    """
    left, right = (values.unflatten(0, (subsets, -1)) for values in (gradient, activations))
    if gradient.dtype not in (torch.float16, torch.bfloat16):
        return (left * right).sum(dim=(1, 2), dtype=at_least_float32(gradient.dtype))
    # half-precision products underflow for small gradients, so slices are converted to float32 one at a time
    total = torch.zeros(subsets, left.shape[-1], device=gradient.device)
    step = max(_CONVERTED_SIZE // (subsets * left.shape[2] * left.shape[3]), 1)
    for start in range(0, left.shape[1], step):
        rows = slice(start, start + step)
        total += left[:, rows].float().mul_(right[:, rows]).sum(dim=(1, 2))
    return total
