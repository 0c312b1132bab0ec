"""Rank quantiles of all units of a decoder, which are compared with thresholds (section 3.3, Eq. 10).

Units are in one flat order: the neurons of all layers, then the key/value groups of all layers. Thresholds are
ordered likewise: one per module, then one per layer's attention. The module does not import torch, so that the app
can evaluate other thresholds quickly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gprune.pruning.ranking import GroupedRanks
from gprune.records import Array, ModelShape, Partition

# quantiles of fixed groups: their margins are outside [-1, 1], because thresholds are in [0, 1]
_ALWAYS, _NEVER = 3.0, -2.0


@dataclass(frozen=True, slots=True, eq=False)
class RankedUnits:
    """Quantiles of all units and the indices of their thresholds."""

    shape: ModelShape
    quantiles: Array
    """(units,) float32 rank quantile in (0, 1): neurons within the module, key/value groups within the layer"""
    owner: Array
    """(units,) int64 index of the unit's threshold"""
    modules: int
    """number of FFN thresholds; they come before the attention thresholds"""
    free_groups: bool = True
    """whether thresholds decide on key/value groups; otherwise the groups are fixed by quantiles outside [0, 1]"""

    @classmethod
    def build(cls, shape: ModelShape, scores: Array, head_scores: Array, partition: Partition) -> RankedUnits:
        """Rank all units of a decoder.

        Args:
            shape: sizes of the decoder.
            scores: (layers, neurons) importance scores, higher is more important.
            head_scores: (layers, key/value groups) importance scores.
            partition: modules of the neurons.
        """
        layer = np.repeat(np.arange(shape.layers), shape.kv_heads)
        owner = np.concatenate([partition.global_labels.ravel(), partition.modules + layer])
        neurons = quantiles(GroupedRanks(partition.global_labels.ravel()), scores)
        groups = quantiles(GroupedRanks(layer), head_scores)
        ranked = np.concatenate([neurons, groups])
        return cls(shape, ranked, owner.astype(np.int64, copy=False), partition.modules)

    def with_groups(self, mask: Array) -> RankedUnits:
        """Return the same units with a fixed (layers, key/value groups) bool mask of the groups."""
        fixed_quantiles = self.quantiles.copy()
        self.split(fixed_quantiles)[1][:] = np.where(mask, _ALWAYS, _NEVER)
        return replace(self, quantiles=fixed_quantiles, free_groups=False)

    @property
    def thresholds(self) -> int:
        """Return the number of thresholds: one for each module, and one for each layer's attention."""
        return self.modules + self.shape.layers

    def margins(self, thresholds: Array) -> Array:
        """Return (units,) float64 quantile minus threshold; a unit is kept if this is 0 or more."""
        # float64, because a shift between two close margins may not exist in float32
        difference: Array = self.quantiles - np.asarray(thresholds, dtype=np.float64)[self.owner]
        return difference

    def split(self, units: Array) -> tuple[Array, Array]:
        """Split flat (units,) values into (layers, neurons) and (layers, key/value groups)."""
        neurons = self.shape.layers * self.shape.neurons
        return units[:neurons].reshape(self.shape.layers, -1), units[neurons:].reshape(self.shape.layers, -1)


def quantiles(groups: GroupedRanks, scores: Array) -> Array:
    """Return (units,) float32 rank quantile (rank + 1/2) / size of each unit in its group, in (0, 1)."""
    size = np.empty(len(groups.by_group))
    size[groups.by_group] = np.repeat(groups.size, groups.size)
    exact = (groups.by_unit(np.asarray(scores).ravel()) + 0.5) / size
    rounded: Array = exact.astype(np.float32)
    return rounded
