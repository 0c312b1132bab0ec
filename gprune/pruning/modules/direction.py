"""Decide whether the drift profile includes the drift direction (BCM; appendix, direction-aware refinement).

Direction is admitted if it reduces the mixing of modules across the pruning boundary by a larger fraction than it
increases the drift variation within modules.
"""

import numpy as np

from gprune.pruning.ranking import ranks
from gprune.records import Array, RankDrift
from gprune.study import ModularizationSettings

MAGNITUDE, DIRECTION = "magnitude", "direction"
DIRECTION_PRESET = ("twflap",)
"""metrics for which the paper's admission rule chose direction"""


def profiles_to_refine(settings: ModularizationSettings, metric: str) -> tuple[str, ...]:
    """Return the profiles that must be refined: one, or both if the admission rule decides.

    Args:
        settings: its `direction` is auto, preset, magnitude or direction.
        metric: base importance metric.

    Returns:
        Names of the profiles, magnitude first.
    """
    if settings.direction == "auto":
        return (MAGNITUDE, DIRECTION)
    if settings.direction == "preset":
        return (DIRECTION if metric in DIRECTION_PRESET else MAGNITUDE,)
    return (settings.direction,)


def drift_profile(drift: RankDrift, layer: int, name: str) -> Array:
    """Return (1 or 2, neurons) profile of one layer: d, or d and the scale-matched signed drift d±."""
    coordinates = [drift.magnitude[layer]]
    if name == DIRECTION:
        coordinates.append(drift.scaled[layer])
    return np.stack(coordinates)


def below_boundary(primary: Array, auxiliary: Array) -> Array:
    """Return bool for neurons whose mean normalized rank over both texts is below 1/2 (Eq. 16).

    Args:
        primary: (layers, neurons) scores on A.
        auxiliary: (layers, neurons) scores on B.

    Returns:
        (layers, neurons) bool.
    """
    # (rA + rB) / (N - 1) / 2 < 1/2 without division, which is exact because ranks are multiples of 1/2
    below: Array = ranks(primary) + ranks(auxiliary) < np.shape(primary)[-1] - 1
    return below


def boundary_mixing(labels: Array, below: Array) -> float:
    """Return I (Eq. 17): twice the share of neurons that are on the minority side of the boundary in their module.

    Args:
        labels: (layers, neurons) modules, without gaps.
        below: (layers, neurons) bool from `below_boundary`.

    Returns:
        A number in [0, 1]; 0 if every module lies on one side of the boundary.
    """
    mixed = 0.0
    for row, below_row in zip(labels, below, strict=True):
        size = np.bincount(row)
        below_count = np.bincount(row, weights=below_row)
        mixed += float(2 * np.minimum(below_count, size - below_count).sum())
    return mixed / labels.size


def drift_variation(labels: Array, magnitude: Array) -> float:
    """Return S (Eq. 17): the standard deviation of d within modules, averaged over neurons.

    Args:
        labels: (layers, neurons) modules, without gaps.
        magnitude: (layers, neurons) rank drift d.

    Returns:
        A number >= 0, in units of d.
    """
    total = 0.0
    for row, drift in zip(labels, magnitude, strict=True):
        size = np.bincount(row)
        mean = np.bincount(row, weights=drift) / size
        squares = np.bincount(row, weights=(drift - mean[row]) ** 2)
        # sqrt(size * squares) is the module's size times its standard deviation
        total += float(np.sqrt(size * squares).sum())
    return total / labels.size


def admits_direction(mixing: Array, variation: Array) -> bool:
    """Return True if mixing falls by a larger fraction than the drift variation grows (admission rule).

    Args:
        mixing: (2,) I of the magnitude-only and the direction-aware partition.
        variation: (2,) S of the same two partitions.

    Returns:
        True if the direction-aware partition is to be used.
    """
    gain = max(0.0, mixing[0] - mixing[1])
    growth = max(0.0, variation[1] - variation[0])
    # gain / mixing[0] > growth / variation[0], multiplied by both denominators, which may be zero
    return bool(gain * variation[0] > growth * mixing[0] or (gain > 0 and growth == 0))
