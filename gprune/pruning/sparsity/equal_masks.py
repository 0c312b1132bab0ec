"""Masks that keep as many units in every layer, whatever is learned: modules or gates compete within a layer.

The pruned model is then one of its family's own architecture (``sparsity.widths`` equal).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self

import numpy as np
import torch
from torch import Tensor

from gprune.pruning.sparsity.gate_masks import GateMasks
from gprune.pruning.sparsity.masks import MaskFamily
from gprune.records import PruningMasks, budget


def best(values: Tensor, count: int) -> Tensor:
    """Return (layers, units) bool, True for the `count` highest values of each layer; of equal ones the first."""
    order = values.detach().sort(dim=1, descending=True, stable=True).indices[:, :count]
    return torch.zeros_like(values, dtype=torch.bool).scatter_(1, order, True)


@dataclass(frozen=True, slots=True)
class EqualMasks(MaskFamily):
    """Threshold masks that keep equally many neurons in every layer: those of the highest margins.

    The key/value groups are fixed: a layer's one threshold could only keep those of the highest scores.
    """

    neurons: int
    """neurons that every layer keeps"""
    members: Tensor
    """(layers, thresholds) float32, 1 if an FFN threshold is of a module of the layer"""

    @classmethod
    def from_family(cls, family: MaskFamily, neurons: int) -> Self:
        """Return the masks of a family with fixed key/value groups and `neurons` neurons in every layer."""
        units, shape = family.units, family.shape
        members = np.zeros((shape.layers, units.thresholds), dtype=np.float32)
        layer = np.repeat(np.arange(shape.layers), shape.neurons)
        members[layer, units.owner[: len(layer)]] = 1
        values = {field.name: getattr(family, field.name) for field in fields(family)}
        return cls(**values, neurons=neurons, members=torch.tensor(members, device=family.share.device))

    def margins(self, thresholds: Tensor) -> Tensor:
        """Return (units,) quantile minus threshold minus the layer's cut; groups have no cut."""
        neurons, groups = self.split(MaskFamily.margins(self, thresholds))
        ordered = neurons.sort(dim=1, descending=True).values
        cut_margin = ordered[:, self.neurons - 1 : self.neurons + 1].mean(dim=1, keepdim=True)
        return torch.cat([(neurons - cut_margin).flatten(), groups.flatten()])

    def hard_masks(self, learned: Tensor) -> Tensor:
        """Return (units,) bool, the neurons of the highest margins in each layer, and the fixed groups."""
        neurons, groups = self.split(MaskFamily.margins(self, learned))
        return torch.cat([best(neurons, self.neurons).flatten(), groups.flatten() >= 0])

    def competing(self, gradient: Tensor, slope: Tensor) -> Tensor:
        """Return the (thresholds,) gradient without its component along the layer's kept share.

        All thresholds of a layer moving together change no mask; what is left is what modules win from each
        other. It is Lagrange's condition under the budget of each layer, its multiplier by least squares.

        Args:
            gradient: (thresholds,) of the performance term.
            slope: (thresholds,) of the retained share.
        """
        size = (self.members @ slope.square()).clamp(min=torch.finfo(slope.dtype).tiny)
        multiplier = (self.members @ (gradient * slope)) / size
        return gradient - (multiplier @ self.members) * slope


@dataclass(frozen=True, slots=True)
class EqualGates(GateMasks):
    """Masks that keep the units of the highest gates of each layer, as many in every one."""

    def hard_masks(self, learned: Tensor) -> Tensor:
        """Return (units,) bool, the highest gates of each layer; of equal ones the first. Waits for no device."""
        counts = budget.equal_counts(self.shape, self.target, self.alignment)
        values_and_counts = zip(self.split(learned), counts, strict=True)
        return torch.cat([best(values, count).flatten() for values, count in values_and_counts])

    def exact(self, gates: Tensor) -> PruningMasks:
        """Return the final masks of some gates, which equal those used while learning."""
        ffn, heads = (part.cpu().numpy() for part in self.split(self.hard_masks(gates)))
        return PruningMasks("gates", ffn, heads, budget.retention(self.shape, ffn, heads), self.target)
