"""The neurons of a layer whose rank moves most between the texts (Eq. 1): the slope chart of the overview."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from gprune.pruning.ranking import ranks
from gprune.records import Array, RankDrift, UnitScores


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
    """Return at most `count` neurons of a layer whose rank moves most.

    The neuron `among` takes the last position if it is not one of them.
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
