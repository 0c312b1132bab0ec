"""The ranks of one neuron on both texts, and the neurons of a layer that move most.

The slope chart of the overview, and the neuron on which the help explains its words (Eq. 1).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gprune.analysis import thresholds
from gprune.pruning.ranking import ranks
from gprune.records import AdaptedScores, Array, Partition, PruningMasks, RankDrift, UnitScores

AMONG = 20
"""how many of the most telling neurons an example is chosen from"""


@dataclass(frozen=True, slots=True)
class Movers:
    """The neurons of one layer whose rank moves most from A to B."""

    layer: int
    neurons: Array
    """(count,) int64, the largest move first; equal ones in order"""
    first: Array
    """(count,) rank on A, from 0 (least important of the layer) to 1 (most)"""
    second: Array
    """(count,) rank on B"""
    median: float
    """median drift of all neurons of the layer"""
    width: int
    """neurons of the layer"""

    def table(self) -> pd.DataFrame:
        """One row a neuron."""
        return pd.DataFrame(
            {
                "layer": self.layer,
                "neuron": self.neurons,
                "rank on A": self.first,
                "rank on B": self.second,
                "move": self.second - self.first,
            }
        )


@dataclass(frozen=True, slots=True)
class Example:
    """One neuron with everything that a run has decided about it."""

    layer: int
    neuron: int
    first: float
    """rank on A, from 0 to 1 (most important)"""
    second: float
    """rank on B"""
    floor: float
    """how far its rank moves between halves of one text, the larger of both texts"""
    module: int | None
    """its module within the layer; None where there are no modules"""
    size: int
    """neurons of the module; 0 without one"""
    adapted: bool | None
    """whether RASA adapts the module; None where it has not decided"""
    from_auxiliary: bool
    """whether its score comes from B"""
    kept: dict[str, bool]
    """whether each method keeps it, by name of the masks"""


def unstable_layer(drift: RankDrift) -> int:
    """The layer with the largest median drift; the first of equal ones."""
    return int(np.median(drift.magnitude, axis=1).argmax())


def movers(
    drift: RankDrift,
    primary: UnitScores,
    auxiliary: UnitScores,
    layer: int,
    count: int = 20,
    among: int | None = None,
) -> Movers:
    """At most `count` neurons of a layer whose rank moves most.

    The neuron `among` takes the last place where it does not move enough for one.
    """
    moved = drift.magnitude[layer]
    order = np.argsort(-moved, kind="stable")[:count]
    if among is not None and among not in order:
        order[-1] = among
    first, second = _positions(primary.ffn[layer]), _positions(auxiliary.ffn[layer])
    return Movers(layer, order, first[order], second[order], float(np.median(moved)), len(moved))


def _positions(scores: Array) -> Array:
    """(neurons,) ranks of a layer scaled to [0, 1]."""
    return ranks(scores) / max(len(scores) - 1, 1)


def telling(drift: RankDrift, layer: int | None = None, divided: Array | None = None) -> tuple[int, int]:
    """Layer and neuron whose move from A to B exceeds its own move within one text by most.

    Of one layer, or of all. `divided` (layers, neurons) bool are neurons that say more: the first of them is
    taken if it is among the `AMONG` that move furthest beyond their noise.
    """
    excess = drift.magnitude - np.maximum(drift.resample_primary, drift.resample_auxiliary)
    if layer is not None:
        excess = np.where(np.arange(len(excess))[:, None] == layer, excess, -np.inf)
    order = np.argsort(-excess, axis=None, kind="stable")[:AMONG]
    if layer is not None:
        order = order[np.isfinite(excess.ravel()[order])]
    saying = order[divided.ravel()[order]] if divided is not None else order
    place = int(saying[0] if len(saying) else order[0])
    return place // excess.shape[1], place % excess.shape[1]


def example(
    drift: RankDrift,
    scores: tuple[UnitScores, UnitScores],
    place: tuple[int, int],
    partition: Partition | None,
    adaptation: AdaptedScores | None,
    masks: Mapping[str, PruningMasks],
) -> Example:
    """Everything that a run knows of one neuron at a layer and place; `scores` are on A and on B.

    Modules, adaptation and masks (by name) take part once they are there.
    """
    layer, neuron = place
    first, second = (float(_positions(each.ffn[layer])[neuron]) for each in scores)
    floor = float(max(drift.resample_primary[place], drift.resample_auxiliary[place]))
    module = size = None
    adapted, auxiliary = None, False
    if partition is not None:
        module = int(partition.labels[place])
        size = int((partition.labels[layer] == module).sum())
        if adaptation is not None:
            group = thresholds.groups(adaptation)[partition.offsets[layer] + module]
            adapted, auxiliary = bool(group != thresholds.KEPT), bool(group == thresholds.FROM_AUXILIARY)
    kept = {name: bool(mask.ffn[place]) for name, mask in masks.items()}
    return Example(layer, neuron, first, second, floor, module, size or 0, adapted, auxiliary, kept)


def standing(position: float) -> str:
    """Return the position of a rank from 0 to 1 among the neurons of its layer, in words."""
    if position >= 0.75:
        return f"in the top {_whole_percent(1 - position)} %"
    if position <= 0.25:
        return f"in the bottom {_whole_percent(position)} %"
    return f"in the {'upper' if position >= 0.5 else 'lower'} half"


def _whole_percent(share: float) -> int:
    """A share rounded up to whole percents, at least 1; rounding errors do not count."""
    return max(1, int(np.ceil(round(100 * share, 6))))
