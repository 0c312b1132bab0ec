"""Refine module centroids so that modules become compact, distinct and consistent in drift (BCM, section 3.1).

The centroids are the parameters; neurons follow them through their soft memberships and are assigned to the
closest centroid at the end.
"""

import numpy as np
import torch
from torch.nn.functional import normalize

from gprune.models import devices
from gprune.pruning.modules.k_means import module_sums
from gprune.pruning.modules.objective import TERMS, objective
from gprune.records import Array
from gprune.study import ModularizationSettings
from gprune.system.errors import NumericsError


def standardize_profile(profile: Array) -> Array:
    """Standardize each coordinate of a drift profile over the layer.

    Args:
        profile: (coordinates, neurons) drift of one layer.

    Returns:
        (neurons, varying coordinates) float64 of mean 0 and variance 1; a constant coordinate is left out.
    """
    varying = profile[np.ptp(profile, axis=1) > 0].astype(np.float64)
    centred = varying - varying.mean(axis=1, keepdims=True)
    scaled: Array = (centred / centred.std(axis=1, keepdims=True)).T
    return scaled


def renumber_labels(labels: Array) -> Array:
    """Return (neurons,) int32 labels renumbered 0, 1, ... in order, without unused numbers."""
    renumbered: Array = np.unique(labels, return_inverse=True)[1].astype(np.int32)
    return renumbered


def refine(rows: torch.Tensor, labels: Array, profile: Array, settings: ModularizationSettings) -> tuple[Array, Array]:
    """Refine the modules of one layer.

    Args:
        rows: (neurons, width) unit rows; everything runs on their device and in their type.
        labels: (neurons,) initial modules, 0 ... K - 1 without gaps.
        profile: (coordinates, neurons) drift profile: d, or d and d±.
        settings: weights, temperature, step size and steps. With 0 steps each neuron is assigned to the closest
            initial mean direction.

    Returns:
        (neurons,) int32 labels without gaps, and (steps, 5) float64 losses before each step, in the order of
        `objective.TERMS`.

    Raises:
        NumericsError: a loss is not finite.
    """
    count = int(labels.max()) + 1
    members = torch.tensor(labels, dtype=torch.long, device=rows.device)
    # (modules, width) unit mean directions
    start = normalize(module_sums(rows, members, count), dim=1)
    drift = torch.tensor(standardize_profile(profile), dtype=rows.dtype, device=rows.device)
    # cosines ignore length: with coordinates of order 1, Adam's step is a relative change for any width
    centroids = (start * rows.shape[1] ** 0.5).requires_grad_()
    descent = _Descent(rows, centroids, drift, settings)
    descent.run()
    closest = (rows @ normalize(centroids.detach(), dim=1).T).argmax(dim=1)
    return renumber_labels(closest.cpu().numpy()), _require_finite_losses(descent.losses)


class _Descent:
    """Adam on the centroids of one layer; on a GPU, one step is captured as a CUDA graph and replayed.

    A step has about a hundred small operations. If they were launched one by one, a GPU would be idle for 90% of the
    time.
    """

    def __init__(
        self,
        rows: torch.Tensor,
        centroids: torch.Tensor,
        drift: torch.Tensor,
        settings: ModularizationSettings,
    ) -> None:
        """Prepare the steps; see `refine`.

        Args:
            rows: (neurons, width) unit rows.
            centroids: (modules, width) leaf tensor that is optimized in place.
            drift: (neurons, coordinates) drift profile of variance 1.
            settings: weights, temperature, step size and steps.
        """
        self._rows, self._centroids, self._drift, self._settings = rows, centroids, drift, settings
        self._squares = rows.square().sum(1)
        self._captures = devices.is_gpu(rows.device)
        rate = settings.learning_rate
        self._optimizer = torch.optim.Adam([centroids], lr=rate, capturable=self._captures)
        # a tensor, because a captured graph cannot read a changing Python number
        self._step_index = torch.zeros(1, dtype=torch.long, device=rows.device)
        self.losses = rows.new_zeros(settings.steps, len(TERMS))
        """(steps, 5) losses before each step"""

    def run(self) -> None:
        """Take all steps."""
        if not self._captures or not self._settings.steps:
            for _ in range(self._settings.steps):
                self._step()
            return
        start = self._centroids.detach().clone()
        # one step is run and reverted, so that one-time initialization is not captured in the graph
        devices.run_on_side_stream(self._step)
        graph = devices.capture_graph(self._step)
        self._centroids.detach().copy_(start)
        for value in (self._step_index, *self._optimizer.state[self._centroids].values()):
            value.zero_()
        for _ in range(self._settings.steps):
            graph.replay()

    def _step(self) -> None:
        """Record the losses and update the centroids, all in place, so that the step can be captured as a graph."""
        self._optimizer.zero_grad()
        with torch.enable_grad():
            losses = objective(self._rows, self._squares, self._centroids, self._drift, self._settings)
            losses[-1].backward()
        self._optimizer.step()
        self.losses.index_copy_(0, self._step_index, losses.detach()[None])
        self._step_index.add_(1)


def _require_finite_losses(history: torch.Tensor) -> Array:
    """Return the (steps, 5) losses as an array. Raise NumericsError if they are not finite."""
    losses: Array = history.double().cpu().numpy()
    if not np.isfinite(losses).all():
        step, term = (int(i) for i in np.argwhere(~np.isfinite(losses))[0])
        raise NumericsError(
            f"the {TERMS[term]} loss of the module refinement is {losses[step, term]} at step {step}: lower "
            "modularization.learning_rate or raise modularization.temperature"
        )
    return losses
