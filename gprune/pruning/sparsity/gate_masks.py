"""Build masks from gates, one gate per unit: the units with the highest gates that fit the budget are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gprune.pruning.sparsity.masks import UnitMasks, weight_counts, weight_shares
from gprune.pruning.sparsity.rounding import possible_groups
from gprune.records import Array, ModelShape, PruningMasks, UnitScores, budget


def rank_positions(scores: Array) -> Array:
    """Return (layers, units) float64 rank positions (rank + 1/2) / size in the layer, in (0, 1).

    Ranks count from the least important unit; at a tie the lower index ranks higher.
    """
    order = np.argsort(-np.asarray(scores), axis=1, kind="stable")
    size = order.shape[1]
    positions = np.empty(order.shape)
    np.put_along_axis(positions, order, (np.arange(size, 0, -1) - 0.5)[None, :] / size, axis=1)
    return positions


def starting_gates(scores: Sequence[UnitScores]) -> Array:
    """Return (units,) float32 initial gates: rank positions of all neurons, then of all key/value groups.

    Args:
        scores: scores on each text; with several texts, units are ranked by the mean of their rank positions.
    """
    start_values = []
    for part in ("ffn", "heads"):
        positions = [rank_positions(getattr(unit_scores, part)) for unit_scores in scores]
        start_values.append(positions[0] if len(positions) == 1 else rank_positions(np.mean(positions, axis=0)))
    return np.concatenate([part.ravel() for part in start_values]).astype(np.float32)


@dataclass(frozen=True, slots=True)
class GateMasks(UnitMasks):
    """Masks that keep the units with the highest gates of the whole model and meet the budget for any gates."""

    target: float
    """R*, the fraction of the decoder's linear weights to keep"""
    alignment: int
    """block size of the final FFN widths, and the minimum number of neurons per layer"""
    temperature: float
    """temperature of the sigmoid"""
    weight_counts: Tensor
    """(units,) int64 number of weights of every unit"""
    groups: tuple[int, int]
    """smallest and largest number of key/value groups for which neurons can fill the rest of the budget"""

    @classmethod
    def of(
        cls, shape: ModelShape, target: float, alignment: int, temperature: float, device: torch.device
    ) -> GateMasks:
        """Build the masks of a decoder on a device; see the fields for the arguments."""
        return cls(
            shape=shape,
            share=weight_shares(shape, device),
            target=target,
            alignment=alignment,
            temperature=temperature,
            weight_counts=torch.tensor(weight_counts(shape), device=device),
            groups=possible_groups(shape, target, budget.least_neurons(shape, alignment)),
        )

    @property
    def count(self) -> int:
        """Return the number of gates, one for each unit."""
        return len(self.weight_counts)

    def hard_masks(self, learned: Tensor) -> Tensor:
        """Return (units,) bool: the longest affordable prefix of the units in descending order of gates, ties by index.

        The best group and the best neuron (the best block of neurons) of every layer come before all others. The number
        of groups is that of the prefix; neurons fill the rest of the budget to within half a neuron. The device is not
        synchronized.
        """
        shape, weights = self.shape, self.target * self.shape.decoder_weights
        least, neurons = budget.least_neurons(shape, self.alignment), shape.layers * shape.neurons
        order = self._force_minimum(learned, least).sort(descending=True, stable=True).indices
        is_group = order >= neurons
        # half a weight of tolerance, because the target is rounded
        fits = self.weight_counts[order].cumsum(0) <= weights + 0.5
        groups = (fits & is_group).sum().clamp(*self.groups)
        # rounded to the nearest whole number
        neuron_count = ((weights - groups.double() * shape.group_weights) / shape.neuron_weights + 0.5).floor()
        mask_in_order = torch.where(
            is_group,
            is_group.cumsum(0) <= groups,
            (~is_group).cumsum(0) <= neuron_count.clamp(shape.layers * least, neurons),
        )
        return torch.empty_like(mask_in_order).index_copy_(0, order, mask_in_order)

    def _force_minimum(self, gates: Tensor, least: int) -> Tensor:
        """Return the (units,) gates, with infinity for the best group and the `least` best neurons of each layer."""
        raised = gates.detach().clone()
        for values, count in zip(self.split(raised), (least, 1), strict=True):
            best = values.sort(dim=1, descending=True, stable=True).indices[:, :count]
            values.scatter_(1, best, torch.inf)
        return raised

    def gradient(self, unit_gradient: Tensor, gates: Tensor) -> Tensor:
        """Return the (units,) gradient of the gates, as if each mask were sigmoid(gate / temperature)."""
        probability = torch.sigmoid(gates / self.temperature)
        return unit_gradient * probability * (1 - probability) / self.temperature

    def exact(self, gates: Tensor) -> PruningMasks:
        """Return the final masks, with widths rounded to the alignment."""
        shape = self.shape
        ffn, heads = (part.cpu().numpy() for part in self.split(self.hard_masks(gates)))
        margin = self.split(gates)[0].cpu().double().numpy()
        ffn = budget.meet_target(shape, ffn, heads, margin, self.target, self.alignment)
        return PruningMasks("gates", ffn, heads, budget.retention(shape, ffn, heads), self.target)
