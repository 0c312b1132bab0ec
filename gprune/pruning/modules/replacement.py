"""Controls of BCM: modules that replace behavior-consistent ones."""

from dataclasses import replace

import numpy as np

from gprune.records import Array, Partition

# a stream of the study's seed that neither k-means (0) nor random modules (1) draw from
_SHUFFLING = 2


def whole_layers(layers: int, neurons: int) -> Partition:
    """Return one module a layer, so that every neuron competes with all others of its layer.

    Args:
        layers: number of decoder layers.
        neurons: FFN width.
    """
    return Partition.unrefined("layers", np.zeros((layers, neurons)), np.ones(layers))


def shuffle_members(modules: Partition, seed: int) -> Partition:
    """Return modules of the same sizes with members drawn at random from the layer.

    Args:
        modules: the modules whose sizes are kept, layer by layer and label by label.
        seed: of the drawing; each layer has a stream of its own.
    """
    return replace(modules, kind="shuffled", labels=permute_labels(modules.labels, seed))


def permute_labels(labels: Array, seed: int) -> Array:
    """Return (layers, neurons) labels permuted within each layer."""
    rows = (np.random.default_rng([seed, _SHUFFLING, layer]).permutation(row) for layer, row in enumerate(labels))
    return np.stack(list(rows))
