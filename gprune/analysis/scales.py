"""Histograms of the learned scales of each layer's kept units."""

import numpy as np

from gprune.records import Array, LearnedScales


def scale_histogram(scales: LearnedScales, bins: int = 40) -> tuple[Array, Array, Array]:
    """Count the learned scales of the kept units of every layer in equal bins.

    Returns:
        (bins + 1,) edges, the same for all layers, and (layers, bins) counts of neurons and of key/value groups.
    """
    # the scale of a removed unit is 0
    kept_scales = np.concatenate([part[part != 0] for part in (scales.ffn, scales.heads)])
    edges = np.histogram_bin_edges(kept_scales, bins)
    histograms = [[np.histogram(row[row != 0], edges)[0] for row in part] for part in (scales.ffn, scales.heads)]
    return edges, np.stack(histograms[0]), np.stack(histograms[1])
