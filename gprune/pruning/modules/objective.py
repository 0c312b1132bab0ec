"""Compute the objective of the refinement (BCM, section 3.1, Eqs. 2 to 5; appendix, Eq. 14).

All terms are linear in the number of neurons. `w` are the neuron parameters (unit rows), `c` the module
centroids, `p` the soft memberships.
"""

import torch
from torch.nn.functional import normalize

from gprune.study import ModularizationSettings

TERMS = ("inner", "pair", "repulsion", "consistency", "total")
"""order of the losses in `Partition.history`"""


def soft_assignment(similarity: torch.Tensor, temperature: float) -> torch.Tensor:
    """Return the soft memberships p (Eq. 2); the paper's equation has temperature 1.

    Args:
        similarity: (neurons, modules) cosine of each neuron with each centroid.
        temperature: divides the cosines; a smaller value gives harder assignments.

    Returns:
        (neurons, modules) in [0, 1], each row sums to 1.
    """
    return torch.softmax(similarity / temperature, dim=1)


def compactness(membership: torch.Tensor, similarity: torch.Tensor) -> torch.Tensor:
    """Return L_inner (Eq. 3): the mean cosine distance of neurons to their centroids, weighted by membership."""
    return (membership * (1 - similarity)).sum(1).mean()


def repulsion(directions: torch.Tensor) -> torch.Tensor:
    """Return L_rep (Eq. 4): the mean squared cosine over pairs of different centroids; 0 for one centroid.

    Args:
        directions: (modules, width) unit centroids.

    Returns:
        A scalar in [0, 1].
    """
    count = len(directions)
    squared = (directions @ directions.T).square()
    return (squared.sum() - squared.diagonal().sum()) / max(count * (count - 1), 1)


def consistency(membership: torch.Tensor, profile: torch.Tensor) -> torch.Tensor:
    """Return L_consis (Eq. 5): the soft variance of the drift within modules, averaged over modules and coordinates.

    Args:
        membership: (neurons, modules) soft memberships.
        profile: (neurons, coordinates) drift profile. Each coordinate has variance 1 over the layer, so the term is a
            share of the layer's variance. Without coordinates the term is 0.

    Returns:
        A scalar >= 0.
    """
    if not profile.shape[1]:
        return membership.new_zeros(())
    weight = membership / membership.sum(0).clamp_min(torch.finfo(membership.dtype).tiny)
    mean = weight.T @ profile
    terms = [
        (weight * (profile[:, index, None] - mean[None, :, index]).square()).sum(0).mean()
        for index in range(profile.shape[1])
    ]
    return torch.stack(terms).mean()


def pair_dispersion(rows: torch.Tensor, squares: torch.Tensor, membership: torch.Tensor) -> torch.Tensor:
    """Return L_pair (Eq. 14): the mean pairwise cosine distance within the most dispersed quarter of the modules.

    No pairs are formed: with u_k = sum_i p_ik w_i, the sum over i != j of p_ik p_jk cos(w_i, w_j) is
    |u_k|^2 - sum_i p_ik^2 |w_i|^2.

    Args:
        rows: (neurons, width) unit rows.
        squares: (neurons,) their squared lengths.
        membership: (neurons, modules) soft memberships; the gradient flows through them.

    Returns:
        A scalar, the mean over a quarter of the modules (rounded up).
    """
    fixed = membership.detach()
    sums = fixed.T @ rows
    squared_sums = sums.square().sum(1)
    # a quarter, rounded up
    quartile = -(-membership.shape[1] // 4)
    widest = _dispersion(fixed, squares, squared_sums).topk(quartile).indices
    part = membership.index_select(1, widest)
    # |u|^2 is replaced by 2 sum_i p_i w_i.u - |u|^2 with a fixed u, which has the same value and the same gradient
    # 2 w_i.u, but needs no product over all modules in the backward pass
    products = rows @ sums[widest].T
    return _dispersion(part, squares, 2 * (part * products).sum(0) - squared_sums[widest]).mean()


def _dispersion(membership: torch.Tensor, squares: torch.Tensor, squared_sums: torch.Tensor) -> torch.Tensor:
    """Return (modules,) l_k (Eq. 14); 0 for a module that holds a single neuron. `squared_sums` are |u_k|^2."""
    squared = membership.square()
    squared_mass = membership.sum(0).square()
    # sum over i != j of p_ik p_jk
    pairs = squared_mass - squared.sum(0)
    # a difference below 16 rounding errors counts as 0
    limits = torch.finfo(membership.dtype)
    defined = pairs > (16 * limits.eps * squared_mass).clamp_min(limits.tiny)
    cosine = squared_sums - (squared * squares[:, None]).sum(0)
    return torch.where(defined, 1 - cosine / pairs.where(defined, torch.ones_like(pairs)), 0.0)


def objective(
    rows: torch.Tensor,
    squares: torch.Tensor,
    centroids: torch.Tensor,
    profile: torch.Tensor,
    settings: ModularizationSettings,
) -> torch.Tensor:
    """Return L_BCM and its terms for one layer.

    Args:
        rows: (neurons, width) unit rows.
        squares: (neurons,) their squared lengths.
        centroids: (modules, width) of any length; only their directions matter.
        profile: (neurons, coordinates) drift profile of variance 1.
        settings: weights and temperature.

    Returns:
        (5,) losses in the order of TERMS; the last is the weighted sum that is minimised.
    """
    directions = normalize(centroids, dim=1)
    similarity = rows @ directions.T
    membership = soft_assignment(similarity, settings.temperature)
    inner = compactness(membership, similarity)
    pair = pair_dispersion(rows, squares, membership)
    repelling = repulsion(directions)
    consistent = consistency(membership, profile)
    total = (
        inner
        + settings.pair_weight * pair
        + settings.repulsion_weight * repelling
        + settings.consistency_weight * consistent
    )
    return torch.stack([inner, pair, repelling, consistent, total])
