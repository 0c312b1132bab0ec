"""Which masks can be learned, and how a mask's gradient becomes a threshold's (section 3.3, Eq. 10).

A unit is kept when its rank quantile reaches the threshold of its module (FFN) or of its layer (attention).
Units and thresholds lie in the order of gprune.sparsity.units.

The masks act on a frozen decoder through hooks on the inputs of down_proj and o_proj, so that the dense model
(the teacher) and the masked one (the student) share one copy of the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gprune.models.decoder import Decoder
from gprune.records import Array, ModelShape, Partition
from gprune.sparsity.units import RankedUnits

# A', A'', B', B'' each see a copy of the masks of their own, so that one backward pass tells them apart.
SUBSETS = 4

# Gives the sigmoid surrogate the long-tailed one's peak of 2 at the threshold.
_SIGMOID_STEEPNESS = 8.0

# Numbers of a product that are widened to float32 at a time: 16 MiB, a small part of what a step keeps.
_PIECE = 1 << 22


def surrogate(distance: Tensor, kind: str) -> Tensor:
    """Derivative that stands in for that of the step function S (straight-through estimator).

    Args:
        distance: quantile minus threshold, any shape.
        kind: long_tailed (Liu et al. 2020), identity or sigmoid.

    Returns:
        The surrogate derivative, of the same shape, >= 0.
    """
    if kind == "identity":
        return torch.ones_like(distance)
    if kind == "sigmoid":
        probability = torch.sigmoid(_SIGMOID_STEEPNESS * distance)
        return _SIGMOID_STEEPNESS * probability * (1 - probability)
    size = distance.abs()
    tail = torch.full_like(size, 0.4).masked_fill_(size > 1, 0)
    return torch.where(size <= 0.4, 2 - 4 * size, tail)


@dataclass(frozen=True, slots=True)
class MaskFamily:
    """Every mask that thresholds can express: each unit's quantile, threshold and share of the weights."""

    units: RankedUnits
    """the units in this process, for what needs no device"""
    quantiles: Tensor
    """(units,) float32 rank quantile in (0, 1) within the module; of a key/value group, within the layer"""
    owner: Tensor
    """(units,) int64 index of the unit's threshold"""
    share: Tensor
    """(units,) float32 share of the decoder's weights; sums to 1"""
    by_owner: Tensor
    """(units,) int64 units in the order of their thresholds"""
    owned: Tensor
    """(thresholds,) int64 number of units of each threshold"""

    @classmethod
    def build(
        cls, shape: ModelShape, scores: Array, head_scores: Array, partition: Partition, device: torch.device
    ) -> MaskFamily:
        """Lays out all units of a decoder.

        Args:
            shape: sizes of the decoder.
            scores: (layers, neurons) importance scores, higher = more important.
            head_scores: (layers, key/value groups) importance scores.
            partition: modules of the neurons.
            device: where the tensors live.
        """
        return cls.of(RankedUnits.build(shape, scores, head_scores, partition), device)

    @classmethod
    def of(cls, units: RankedUnits, device: torch.device) -> MaskFamily:
        """Lays out units that are ranked already, on a device."""
        shape = units.shape
        price = [shape.neuron_weights] * (shape.layers * shape.neurons)
        price += [shape.group_weights] * (shape.layers * shape.kv_heads)
        order = np.argsort(units.owner, kind="stable")
        counts = np.bincount(units.owner, minlength=units.thresholds)
        return cls(
            units=units,
            quantiles=torch.tensor(units.quantiles, dtype=torch.float32, device=device),
            owner=torch.tensor(units.owner, dtype=torch.int64, device=device),
            share=torch.tensor(np.array(price) / shape.decoder_weights, dtype=torch.float32, device=device),
            by_owner=torch.tensor(order, dtype=torch.int64, device=device),
            owned=torch.tensor(counts, dtype=torch.int64, device=device),
        )

    @property
    def shape(self) -> ModelShape:
        """Sizes of the decoder."""
        return self.units.shape

    @property
    def modules(self) -> int:
        """Number of FFN thresholds; they come before the attention thresholds."""
        return self.units.modules

    @property
    def thresholds(self) -> int:
        """Number of thresholds: one for each module, and one for each layer's attention."""
        return self.units.thresholds

    def margins(self, thresholds: Tensor) -> Tensor:
        """(units,) quantile minus threshold; a unit is kept where this is 0 or more."""
        return self.quantiles - thresholds[self.owner]

    def split(self, units: Tensor) -> tuple[Tensor, Tensor]:
        """Flat (units,) values as (layers, neurons) and (layers, key/value groups)."""
        neurons = self.shape.layers * self.shape.neurons
        return (
            units[:neurons].view(self.shape.layers, self.shape.neurons),
            units[neurons:].view(self.shape.layers, self.shape.kv_heads),
        )

    def retention(self, thresholds: Tensor) -> Tensor:
        """Retained share of the decoder's weights under the hard masks, R-hat, as a scalar tensor."""
        return ((self.margins(thresholds) >= 0) * self.share).sum()

    def threshold_gradient(self, unit_gradient: Tensor, thresholds: Tensor, kind: str) -> Tensor:
        """Chain rule through the step function: dm/dtau = -surrogate(quantile - tau), summed over a module.

        Args:
            unit_gradient: (..., units) gradient with respect to every unit's mask, float32.
            thresholds: (thresholds,) where the surrogate is taken.
            kind: the surrogate.

        Returns:
            (..., thresholds) gradient with respect to the thresholds, float32.
        """
        slope = -surrogate(self.margins(thresholds), kind)
        if not self.units.free_groups:
            # groups that no threshold moves tell their thresholds nothing
            self.split(slope)[1].zero_()
        ordered = (unit_gradient * slope)[..., self.by_owner]
        # sums of segments and no scattered additions, whose order a GPU does not keep from run to run
        rows = ordered.reshape(-1, ordered.shape[-1]).T.contiguous()
        sums = torch.segment_reduce(rows, "sum", lengths=self.owned, axis=0, unsafe=True, initial=0)
        return sums.T.reshape(*unit_gradient.shape[:-1], self.thresholds)


@dataclass(slots=True)
class MaskGate:
    """The switch between teacher (closed: no masks) and student (open: one mask copy for each subset).

    `channels` holds, while open, a (subsets, channels) leaf for the input of every layer's down_proj, and
    then for every layer's o_proj.
    """

    shape: ModelShape
    channels: list[Tensor] = field(default_factory=list)

    def open(self, family: MaskFamily, thresholds: Tensor, copies: int = SUBSETS) -> None:
        """Puts the masks of these thresholds before down_proj and o_proj, ready for a backward pass.

        Args:
            family: the masks that thresholds can express.
            thresholds: (thresholds,) of which ones.
            copies: subsets that the sequences of the next forward pass are from, equally many from each.
        """
        neurons, groups = family.split((family.margins(thresholds) >= 0).float())
        attention = groups.repeat_interleave(self.shape.group_channels, dim=1)
        rows = [*neurons, *attention]
        self.channels = [row.expand(copies, -1).clone().requires_grad_() for row in rows]

    def close(self) -> None:
        """Takes the masks away: the decoder is dense again."""
        self.channels = []

    def hook(self, place: int) -> Callable[[nn.Module, tuple[Tensor, ...]], tuple[Tensor, ...] | None]:
        """A forward pre-hook that multiplies a linear map's input by the mask at `place`, while open."""

        def multiply(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
            if not self.channels:
                return None
            return (_Multiply.apply(inputs[0], self.channels[place]), *inputs[1:])

        return multiply

    def unit_gradient(self, gradients: tuple[Tensor, ...]) -> Tensor:
        """(subsets, units) mask gradients from those of `channels`: a group's channels share one mask."""
        layers, channels = self.shape.layers, self.shape.group_channels
        neurons = torch.cat(gradients[:layers], dim=1)
        groups = torch.cat([g.unflatten(1, (-1, channels)).sum(-1) for g in gradients[layers:]], dim=1)
        return torch.cat([neurons, groups], dim=1)


@contextmanager
def gated(decoder: Decoder) -> Iterator[MaskGate]:
    """Hooks a closed gate onto a decoder, and leaves the decoder as it was, whatever happens inside."""
    gate = MaskGate(decoder.shape)
    layers = range(decoder.shape.layers)
    maps = [decoder.down_proj(i) for i in layers] + [decoder.o_proj(i) for i in layers]
    handles = [linear.register_forward_pre_hook(gate.hook(place)) for place, linear in enumerate(maps)]
    try:
        yield gate
    finally:
        gate.close()
        for handle in handles:
            handle.remove()


class _Multiply(torch.autograd.Function):
    """Activations times the mask copy of their subset; the mask's gradient is summed in float32."""

    @staticmethod
    def forward(ctx: Any, activations: Tensor, mask: Tensor) -> Tensor:
        """Scales (subsets * sequences, tokens, channels) by (subsets, channels)."""
        ctx.save_for_backward(activations, mask)
        return _scale(activations, mask)

    @staticmethod
    def backward(ctx: Any, *output_gradients: Tensor) -> tuple[Tensor | None, Tensor]:
        """Gradients of the activations (where one is asked for) and of the mask copies."""
        activations, mask = ctx.saved_tensors
        gradient = output_gradients[0]
        mask_gradient = summed_products(gradient, activations, len(mask))
        return _scale(gradient, mask) if ctx.needs_input_grad[0] else None, mask_gradient


def _scale(values: Tensor, mask: Tensor) -> Tensor:
    spread = mask.to(values.dtype).repeat_interleave(len(values) // len(mask), dim=0)
    return values * spread[:, None, :]


def summed_products(gradient: Tensor, activations: Tensor, subsets: int = SUBSETS) -> Tensor:
    """Gradient times activations, summed over the sequences and tokens of each subset in float32.

    Args:
        gradient: (subsets * sequences, tokens, channels) of any floating type.
        activations: of the same shape and type.
        subsets: how many there are.

    Returns:
        (subsets, channels) float32.
    """
    left, right = (values.unflatten(0, (subsets, -1)) for values in (gradient, activations))
    if gradient.dtype not in (torch.float16, torch.bfloat16):
        return (left * right).sum(dim=(1, 2), dtype=torch.float32)
    # half-precision products underflow where gradients are small, so each piece is widened first; what is
    # written out is a piece and not the whole product
    total = torch.zeros(subsets, left.shape[-1], device=gradient.device)
    step = max(_PIECE // (subsets * left.shape[2] * left.shape[3]), 1)
    for start in range(0, left.shape[1], step):
        rows = slice(start, start + step)
        total += left[:, rows].float().mul_(right[:, rows]).sum(dim=(1, 2))
    return total
