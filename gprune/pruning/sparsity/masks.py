"""Which masks can be learned, and how a mask's gradient becomes a threshold's (section 3.3, Eq. 10).

A unit is kept when its rank quantile reaches the threshold of its module (FFN) or of its layer (attention).
Units and thresholds lie in the order of gprune.pruning.sparsity.units.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gprune.pruning.sparsity.units import RankedUnits
from gprune.records import Array, ModelShape, Partition

# Gives the sigmoid surrogate the long-tailed one's peak of 2 at the threshold.
_SIGMOID_STEEPNESS = 8.0


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
