"""Scores of neurons alone, of some shards: what RASA and the re-sampling control ask for hundreds of times.

Attention, whose merging takes time, is left out, and nothing is merged but what the metric reads. A layer at
a time, so that all it takes stays in a core's own cache. The numbers are those of
`gprune.pruning.scoring.score` bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gprune.pruning.scoring import flap, wanda_sp
from gprune.records import ActivationStatistics, Array, WeightNorms

Parts = Callable[[Sequence[int]], Array]
"""(layers, neurons) scores of the shards of given indices."""

_LAYERS = {"flap": flap.layer_neurons, "wanda_sp": wanda_sp.layer_neurons}


def neuron_scorer(metric: str, statistics: ActivationStatistics, norms: WeightNorms) -> Parts:
    """What scores the neurons of chosen shards.

    The released form of FLAP has no value on a part of a text: parts are scored by the plain token variance.

    Args:
        metric: name in `gprune.pruning.scoring.METRICS`.
        statistics: of the whole calibration set, per shard.
        norms: column norms of down_proj of the same model.
    """
    score = _LAYERS[metric]

    def scored(shards: Sequence[int]) -> Array:
        index, found = np.asarray(shards), np.empty(statistics.ffn_mean.shape[1:])
        for layer in range(len(found)):
            found[layer] = score(statistics, norms, index, layer)
        return found

    return scored


def layer_scorer(metric: str, statistics: ActivationStatistics, norms: WeightNorms, layer: int) -> Parts:
    """The same of one layer: (neurons,) scores of the shards of given indices; see `neuron_scorer`."""
    score = _LAYERS[metric]
    return lambda shards: score(statistics, norms, np.asarray(shards), layer)
