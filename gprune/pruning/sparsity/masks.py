"""Compute masks from thresholds, and the gradients of thresholds from those of masks (section 3.3, Eq. 10).

A unit is kept if its rank quantile reaches the threshold of its module (FFN) or of its layer (attention). Units and
thresholds have the order of gprune.pruning.sparsity.rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gprune.pruning.sparsity.rounding import RankedUnits
from gprune.records import Array, ModelShape

# with this steepness the sigmoid surrogate has the same peak as the long-tailed surrogate: 2 at the threshold
_SIGMOID_STEEPNESS = 8.0


def surrogate(distance: Tensor, kind: str) -> Tensor:
    """Return the surrogate for the derivative of the step function S (straight-through estimator).

    Args:
        distance: quantile minus threshold, any shape.
        kind: long_tailed (dynamic sparse training, Liu et al. 2020), identity or sigmoid.

    Returns:
        The surrogate derivative, of the same shape, >= 0.
    """
    if kind == "identity":
        return torch.ones_like(distance)
    if kind == "sigmoid":
        probability = torch.sigmoid(_SIGMOID_STEEPNESS * distance)
        return _SIGMOID_STEEPNESS * probability * (1 - probability)
    # long_tailed: 2 - 4 |x| up to |x| = 0.4, then 0.4 up to 1, then 0
    magnitude = distance.abs()
    tail = torch.full_like(magnitude, 0.4).masked_fill_(magnitude > 1, 0)
    return torch.where(magnitude <= 0.4, 2 - 4 * magnitude, tail)


@dataclass(frozen=True, slots=True)
class UnitMasks:
    """Masks of all units of a decoder as a function of learned values (thresholds or gates)."""

    shape: ModelShape
    share: Tensor
    """(units,) float32 share of the decoder's weights; sums to 1"""

    @property
    def count(self) -> int:
        """Return the number of learned values."""
        raise NotImplementedError

    def hard_masks(self, learned: Tensor) -> Tensor:
        """Return (units,) bool, True for units that the (count,) learned values keep."""
        raise NotImplementedError

    def split(self, units: Tensor) -> tuple[Tensor, Tensor]:
        """Split flat (units,) values into (layers, neurons) and (layers, key/value groups)."""
        return split_units(self.shape, units)

    def retention(self, learned: Tensor) -> Tensor:
        """Return R-hat, the share of the decoder's weights that the hard masks keep, as a scalar tensor."""
        return (self.hard_masks(learned) * self.share).sum()


def split_units(shape: ModelShape, units: Tensor) -> tuple[Tensor, Tensor]:
    """Return flat (units,) values as (layers, neurons) and (layers, key/value groups)."""
    neurons = shape.layers * shape.neurons
    return units[:neurons].view(shape.layers, shape.neurons), units[neurons:].view(shape.layers, shape.kv_heads)


def weight_counts(shape: ModelShape) -> Array:
    """Return the (units,) int64 number of weights of every unit."""
    units = shape.layers * shape.neurons, shape.layers * shape.kv_heads
    return np.repeat([shape.neuron_weights, shape.group_weights], units)


def weight_shares(shape: ModelShape, device: torch.device) -> Tensor:
    """Return (units,) float32 share of every unit in the decoder's weights."""
    return torch.tensor(weight_counts(shape) / shape.decoder_weights, dtype=torch.float32, device=device)


@dataclass(frozen=True, slots=True)
class MaskFamily(UnitMasks):
    """Masks of all units of a decoder as a function of thresholds."""

    units: RankedUnits
    """the same units as numpy arrays"""
    quantiles: Tensor
    """(units,) float32 rank quantile in (0, 1): neurons within the module, key/value groups within the layer"""
    threshold_index: Tensor
    """(units,) int64 index of the unit's threshold"""
    by_threshold: Tensor
    """(units,) int64 unit indices sorted by threshold"""
    units_per_threshold: Tensor
    """(thresholds,) int64 number of units of each threshold"""

    @classmethod
    def of(cls, units: RankedUnits, device: torch.device) -> MaskFamily:
        """Build the masks of ranked units on a device."""
        order = np.argsort(units.threshold_index, kind="stable")
        counts = np.bincount(units.threshold_index, minlength=units.thresholds)
        return cls(
            shape=units.shape,
            share=weight_shares(units.shape, device),
            units=units,
            quantiles=torch.tensor(units.quantiles, dtype=torch.float32, device=device),
            threshold_index=torch.tensor(units.threshold_index, dtype=torch.int64, device=device),
            by_threshold=torch.tensor(order, dtype=torch.int64, device=device),
            units_per_threshold=torch.tensor(counts, dtype=torch.int64, device=device),
        )

    @property
    def modules(self) -> int:
        """Return the number of FFN thresholds; they come before the attention thresholds."""
        return self.units.modules

    def margins(self, thresholds: Tensor) -> Tensor:
        """Return (units,) quantile minus threshold; a unit is kept if this is 0 or more."""
        return self.quantiles - thresholds[self.threshold_index]

    @property
    def count(self) -> int:
        """Return the number of thresholds: one for each module, and one for each layer's attention."""
        return self.units.thresholds

    def hard_masks(self, learned: Tensor) -> Tensor:
        """Return (units,) bool, True if the unit's quantile reaches its threshold."""
        return self.margins(learned) >= 0

    def threshold_gradient(self, unit_gradient: Tensor, thresholds: Tensor, kind: str) -> Tensor:
        """Return the gradient of the thresholds: mask gradient * -surrogate(quantile - tau), summed over a module.

        Args:
            unit_gradient: (..., units) gradient with respect to every unit's mask, float32.
            thresholds: (thresholds,) current thresholds tau.
            kind: name of the surrogate.

        Returns:
            (..., thresholds) gradient with respect to the thresholds, float32.
        """
        slope = -surrogate(self.margins(thresholds), kind)
        if not self.units.free_groups:
            # fixed groups have no gradient
            self.split(slope)[1].zero_()
        ordered = (unit_gradient * slope)[..., self.by_threshold]
        # segment sums instead of scattered additions, which are not deterministic on a GPU
        rows = ordered.reshape(-1, ordered.shape[-1]).T.contiguous()
        sums = torch.segment_reduce(rows, "sum", lengths=self.units_per_threshold, axis=0, unsafe=True, initial=0)
        return sums.T.reshape(*unit_gradient.shape[:-1], self.count)
