"""Measure the agreement of two partitions of the same neurons (appendix, module agreement).

The measures are the Adjusted Rand Index, which is corrected for chance, and the matched overlap: the share of neurons
that keep their module under the best one-to-one matching of modules.
"""

import numpy as np

from gprune.records import Array, Partition


def contingency(first: Array, second: Array) -> Array:
    """Count the units that each pair of modules shares.

    Args:
        first: (units,) module labels, any integers.
        second: (units,) module labels of the same units.

    Returns:
        (modules of first, modules of second) int64, in ascending order of the labels present.
    """
    rows, row = np.unique(first, return_inverse=True)
    columns, column = np.unique(second, return_inverse=True)
    table: Array = np.bincount(row * len(columns) + column, minlength=len(rows) * len(columns))
    return table.reshape(len(rows), len(columns))


def matched_overlap(first: Array, second: Array) -> float:
    """Return the share of units in common under the best one-to-one matching of modules (Eq. 12; Hungarian method).

    Args:
        first: (units,) module labels.
        second: (units,) module labels of the same units.

    Returns:
        A number in (0, 1], not corrected for chance; 1 for the same partition up to labels.
    """
    # imported here, because the import takes 0.25 s and would delay the app's first page
    from scipy.optimize import linear_sum_assignment

    table = contingency(first, second)
    matched = linear_sum_assignment(table, maximize=True)
    return float(table[matched].sum() / table.sum())


def compare(first: Partition, second: Partition) -> tuple[Array, Array]:
    """Return the agreement of two partitions in every layer.

    Args:
        first: a partition.
        second: another partition of the same model.

    Returns:
        (layers,) Adjusted Rand Index and (layers,) matched overlap.
    """
    # imported here, because the import takes a second and the app never needs it
    from sklearn.metrics import adjusted_rand_score

    pairs = list(zip(first.labels, second.labels, strict=True))
    indices = np.array([adjusted_rand_score(a, b) for a, b in pairs])
    overlaps = np.array([matched_overlap(a, b) for a, b in pairs])
    return indices, overlaps
