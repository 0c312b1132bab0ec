"""How centroids move until modules are compact, apart and consistent in drift (BCM, section 3.1).

The centroids are the parameters; neurons follow them through their soft memberships and are assigned to the
closest centroid at the end.
"""

from __future__ import annotations

import numpy as np
import torch
from torch.nn.functional import normalize

from gprune.errors import NumericsError
from gprune.modularization.k_means import module_directions
from gprune.modularization.objective import TERMS, objective
from gprune.records import Array
from gprune.study import ModularizationSettings


def standardized(profile: Array) -> Array:
    """Divides each coordinate of a drift profile by its standard deviation over the layer.

    Args:
        profile: (coordinates, neurons) drift of one layer.

    Returns:
        (neurons, varying coordinates) float64 of mean 0 and variance 1; a constant coordinate is left out.
    """
    varying = profile[np.ptp(profile, axis=1) > 0].astype(np.float64)
    centred = varying - varying.mean(axis=1, keepdims=True)
    scaled: Array = (centred / centred.std(axis=1, keepdims=True)).T
    return scaled


def without_gaps(labels: Array) -> Array:
    """(neurons,) int32 labels renumbered 0, 1, ... in their order; numbers that nobody carries vanish."""
    renumbered: Array = np.unique(labels, return_inverse=True)[1].astype(np.int32)
    return renumbered


def refine(
    rows: torch.Tensor, labels: Array, profile: Array, settings: ModularizationSettings
) -> tuple[Array, Array]:
    """Refines the modules of one layer.

    Args:
        rows: (neurons, width) unit rows; everything runs on their device and in their type.
        labels: (neurons,) initial modules, 0 ... K - 1 without gaps.
        profile: (coordinates, neurons) drift profile: d, or d and d±.
        settings: weights, temperature, step size and steps. Without steps the modules are those of the
            initial mean directions.

    Returns:
        (neurons,) int32 labels without gaps, and (steps, 5) float64 losses before each step, in the order of
        `objective.TERMS`.

    Raises:
        NumericsError: a loss is not finite.
    """
    count = int(labels.max()) + 1
    members = torch.tensor(labels, dtype=torch.long, device=rows.device)
    start = module_directions(rows, members, count)
    drift = torch.tensor(standardized(profile), dtype=rows.dtype, device=rows.device)
    squares = rows.square().sum(1)
    # cosines ignore length: with unit coordinates Adam's step is a relative change whatever the width
    centroids = (start * rows.shape[1] ** 0.5).requires_grad_()
    optimizer = torch.optim.Adam([centroids], lr=settings.learning_rate)
    history = []
    for _ in range(settings.steps):
        optimizer.zero_grad()
        with torch.enable_grad():
            losses = objective(rows, squares, centroids, drift, settings)
            losses[-1].backward()
        optimizer.step()
        history.append(losses.detach())
    closest = (rows @ normalize(centroids.detach(), dim=1).T).argmax(dim=1)
    return without_gaps(closest.cpu().numpy()), _checked(history)


def _checked(history: list[torch.Tensor]) -> Array:
    """Brings the losses to the host once, and refuses what is not finite."""
    if not history:
        return np.zeros((0, len(TERMS)))
    losses: Array = torch.stack(history).double().cpu().numpy()
    if not np.isfinite(losses).all():
        step, term = (int(i) for i in np.argwhere(~np.isfinite(losses))[0])
        raise NumericsError(
            f"the {TERMS[term]} loss of the module refinement is {losses[step, term]} at step {step}: lower "
            "modularization.learning_rate or raise modularization.temperature"
        )
    return losses
