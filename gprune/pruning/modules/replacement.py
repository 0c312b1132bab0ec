"""Build the control partitions that replace the behavior-consistent modules of BCM."""

from dataclasses import replace

import numpy as np

from gprune.records import Array, Partition

# random stream of the study's seed; k-means uses 0 and random modules 1
_SHUFFLING = 2


def one_module_per_layer(layers: int, neurons: int) -> Partition:
    """Return a partition with one module per layer, so that each neuron competes with all neurons of its layer.

    Args:
        layers: number of decoder layers.
        neurons: FFN width.
    """
    return Partition.unrefined("layers", np.zeros((layers, neurons)), np.ones(layers))


def shuffle_members(modules: Partition, seed: int) -> Partition:
    """Return modules of the same sizes with members drawn at random from the layer.

    Args:
        modules: the modules whose sizes are preserved in each layer.
        seed: seed of the permutation; each layer has its own random stream.
    """
    return replace(modules, kind="shuffled", labels=permute_labels(modules.labels, seed))


def permute_labels(labels: Array, seed: int) -> Array:
    """Return (layers, neurons) labels permuted within each layer."""
    rows = (np.random.default_rng([seed, _SHUFFLING, layer]).permutation(row) for layer, row in enumerate(labels))
    return np.stack(list(rows))
