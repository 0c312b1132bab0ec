"""Whose cross-entropy moves the FFN thresholds (appendix, adaptive cross-distribution supervision).

Each step brings two disjoint subsets of each text: A', A'' of the primary and B', B'' of the auxiliary one.
The auxiliary cross-entropy is admitted when the change that it brings on one pair of subsets agrees with the
primary gradient on the other, both ways round: one decision a step, over all FFN thresholds together.
"""

import torch
from torch import Tensor


def admits(gradients: Tensor) -> Tensor:
    """Whether the auxiliary cross-entropy agrees with the primary one across subsets (Eqs. 19 and 20).

    Args:
        gradients: (4, modules) FFN threshold gradients of the cross-entropy on A', A'', B', B''.

    Returns:
        Scalar bool tensor: <g_A'+B' - g_A', g_A''> > 0 and <g_A''+B'' - g_A'', g_A'> > 0, where the gradient
        on a union is the mean of the two, each subset carrying half of the cross-entropy's weight.
    """
    first, second, first_auxiliary, second_auxiliary = gradients
    first_change = (first + first_auxiliary) / 2 - first
    second_change = (second + second_auxiliary) / 2 - second
    return (torch.dot(first_change, second) > 0) & (torch.dot(second_change, first) > 0)


def combine(gradients: Tensor, modules: int, supervision: str) -> tuple[Tensor, Tensor]:
    """The cross-entropy gradient of all thresholds: of one text or of both (Eq. 18).

    Args:
        gradients: (4, thresholds) gradients on A', A'', B', B''; FFN thresholds before attention thresholds.
        modules: number of FFN thresholds.
        supervision: adaptive, primary (A only) or dual (both always), for the FFN thresholds; attention
            thresholds always follow both texts.

    Returns:
        (thresholds,) gradient, and a scalar bool tensor: whether the auxiliary text was admitted.
    """
    both, primary = gradients.mean(dim=0), gradients[:2].mean(dim=0)
    fixed = {"primary": False, "dual": True}
    if supervision in fixed:
        admitted = torch.full((), fixed[supervision], device=gradients.device)
    else:
        admitted = admits(gradients[:, :modules])
    ffn = torch.where(admitted, both[:modules], primary[:modules])
    return torch.cat([ffn, both[modules:]]), admitted
