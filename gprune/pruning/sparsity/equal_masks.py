"""Build masks with the same number of units in every layer (``sparsity.widths`` equal).

Modules or gates then compete within a layer, and the pruned model has its family's standard architecture.
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


def highest_per_layer(values: Tensor, count: int) -> Tensor:
    """Return (layers, units) bool, True for the `count` highest values of each layer; the first ones at a tie."""
    order = values.detach().sort(dim=1, descending=True, stable=True).indices[:, :count]
    return torch.zeros_like(values, dtype=torch.bool).scatter_(1, order, True)


@dataclass(frozen=True, slots=True)
class EqualMasks(MaskFamily):
    """Threshold masks that keep the neurons with the highest margins, the same number in every layer.

    The key/value groups are fixed, because the only threshold of a layer's attention always keeps the best groups.
    """

    neurons: int
    """number of neurons that every layer keeps"""
    members: Tensor
    """(layers, thresholds) float32, 1 if an FFN threshold belongs to a module of the layer"""

    @classmethod
    def from_family(cls, family: MaskFamily, neurons: int) -> Self:
        """Return the masks of a family with fixed key/value groups and `neurons` neurons in every layer."""
        units, shape = family.units, family.shape
        members = np.zeros((shape.layers, units.thresholds), dtype=np.float32)
        layer = np.repeat(np.arange(shape.layers), shape.neurons)
        members[layer, units.threshold_index[: len(layer)]] = 1
        values = {field.name: getattr(family, field.name) for field in fields(family)}
        return cls(**values, neurons=neurons, members=torch.tensor(members, device=family.share.device))

    def margins(self, thresholds: Tensor) -> Tensor:
        """Return (units,) quantile minus threshold minus the layer's cut; groups have no cut."""
        neurons, groups = self.split(MaskFamily.margins(self, thresholds))
        ordered = neurons.sort(dim=1, descending=True).values
        # the cut is the midpoint between the last kept and the first removed margin
        cut_margin = ordered[:, self.neurons - 1 : self.neurons + 1].mean(dim=1, keepdim=True)
        return torch.cat([(neurons - cut_margin).flatten(), groups.flatten()])

    def hard_masks(self, learned: Tensor) -> Tensor:
        """Return (units,) bool: the neurons with the highest margins in each layer, and the fixed groups."""
        neurons, groups = self.split(MaskFamily.margins(self, learned))
        return torch.cat([highest_per_layer(neurons, self.neurons).flatten(), groups.flatten() >= 0])

    def without_common_shift(self, gradient: Tensor, slope: Tensor) -> Tensor:
        """Return the (thresholds,) gradient without its component along the gradient of each layer's retained share.

        A common shift of all thresholds of a layer changes no mask, so the projected gradient only moves budget
        between modules. It corresponds to a Lagrange multiplier per layer, estimated by least squares.

        Args:
            gradient: (thresholds,) gradient of the performance term.
            slope: (thresholds,) gradient of the retained share.
        """
        squared_norm = (self.members @ slope.square()).clamp(min=torch.finfo(slope.dtype).tiny)
        multiplier = (self.members @ (gradient * slope)) / squared_norm
        return gradient - (multiplier @ self.members) * slope


@dataclass(frozen=True, slots=True)
class EqualGates(GateMasks):
    """Masks that keep the units with the highest gates, the same number in every layer."""

    def hard_masks(self, learned: Tensor) -> Tensor:
        """Return (units,) bool: the highest gates of each layer, the first ones at a tie; no device synchronization."""
        counts = budget.equal_counts(self.shape, self.target, self.alignment)
        values_and_counts = zip(self.split(learned), counts, strict=True)
        return torch.cat([highest_per_layer(values, count).flatten() for values, count in values_and_counts])

    def exact(self, gates: Tensor) -> PruningMasks:
        """Return the final masks, which equal the masks used in training."""
        ffn, heads = (part.cpu().numpy() for part in self.split(self.hard_masks(gates)))
        return PruningMasks("gates", ffn, heads, budget.retention(self.shape, ffn, heads), self.target)
