"""Solve for the weights of an output map from moments of its inputs and of the missing output.

x are the inputs on the kept columns, W the dense weights there, r the missing output. The repaired weights W + D
minimize |r - D x|^2 + damping * mean(diag H) * |D|^2, where H is the sum of x x^T. Damping is a ridge that pulls
towards the old weights (the refit of OSSCAR; docs/method.md). Only the kept block of H is computed.
"""

from __future__ import annotations

import copy
from typing import Any

import torch

from gprune.system.errors import SettingsError

PIECE = 4096
"""number of tokens whose products are summed in float32; these sums are added in float64"""


class FitMoments:
    """Second moments, over all tokens, of a map's inputs x (columns) and of the missing output r (outputs)."""

    def __init__(self, columns: int, outputs: int, device: torch.device) -> None:
        """Start with zero moments."""
        wide: dict[str, Any] = {"dtype": torch.float64, "device": device}
        self.tokens = 0
        self.square = torch.zeros(columns, columns, **wide)
        """(columns, columns) sum of x x^T"""
        self.cross = torch.zeros(columns, outputs, **wide)
        """(columns, outputs) sum of x r^T"""
        self.input = torch.zeros(columns, **wide)
        self.missing = torch.zeros(outputs, **wide)
        self.energy = torch.zeros(outputs, **wide)
        """(outputs,) sum of r^2"""
        self.level = torch.zeros(1, **wide)
        """mean sum of squares over all inputs of the map, if damping is relative to it; else 0"""

    def add(self, x: torch.Tensor, r: torch.Tensor) -> None:
        """Add (tokens, columns) inputs and (tokens, outputs) missing outputs."""
        for inputs, residuals in zip(x.split(PIECE), r.split(PIECE), strict=True):
            inputs, residuals = inputs.float(), residuals.float()
            self.tokens += len(inputs)
            self.square += inputs.T @ inputs
            self.cross += inputs.T @ residuals
            self.input += inputs.sum(dim=0, dtype=torch.float64)
            self.missing += residuals.sum(dim=0, dtype=torch.float64)
            self.energy += residuals.double().square().sum(dim=0)

    def own_inputs(self, mask: torch.Tensor, weight: torch.Tensor, damp_by_all_inputs: bool) -> FitMoments:
        """Return the moments for fitting the removed columns, from the moments of all inputs of a map.

        `mask` is (columns,) bool, `weight` (outputs, columns) the dense weights; see OwnRepair.whole.
        """
        kept_inputs, removed = mask.nonzero().flatten(), (~mask).nonzero().flatten()
        left, moments = weight.index_select(1, removed).double(), copy.copy(self)
        rows = self.square.index_select(0, kept_inputs)
        moments.square, moments.input = rows.index_select(1, kept_inputs), self.input[kept_inputs]
        moments.cross = rows.index_select(1, removed) @ left.T
        moments.missing = left @ self.input[removed]
        inner = self.square.index_select(0, removed).index_select(1, removed)
        moments.energy = ((left @ inner) * left).sum(dim=1)
        moments.level = self.square.diagonal().mean(dim=0, keepdim=True) if damp_by_all_inputs else self.level
        return moments

    def about_means(self) -> FitMoments:
        """Return the moments about the means of x and r."""
        moments, count = copy.copy(self), max(self.tokens, 1)
        moments.square = self.square - torch.outer(self.input, self.input) / count
        moments.cross = self.cross - torch.outer(self.input, self.missing) / count
        moments.energy = self.energy - self.missing.square() / count
        return moments


def solve(
    weight: torch.Tensor, bias: torch.Tensor | None, moments: FitMoments, kind: str, damping: float
) -> tuple[torch.Tensor, torch.Tensor | None, float]:
    """Return the repaired weights and bias of a map in float64, and the remaining mean square error.

    `weight` (outputs, columns) are the dense weights on the kept columns, `bias` is (outputs,) or None, and `kind` is
    affine, least_squares or least_squares_bias. Raises SettingsError if the linear system is singular.
    """
    if kind not in ("affine", "least_squares", "least_squares_bias"):
        raise SettingsError(f"repair.kind {kind!r} has no solution here: add one to {__name__}")
    centred = moments if kind == "least_squares" else moments.about_means()
    wide = weight.double()
    if kind == "affine":
        # y = W x + b is scaled to a y, so the change of the output, D x, is (a - 1) y
        spread = ((wide @ centred.square) * wide).sum(dim=1)
        scale = (wide.T * centred.cross).sum(dim=0) / (spread + damping * spread.mean()).clamp(min=1e-300)
        change = wide * torch.where(spread > 0, scale, 0)[:, None]
    else:
        change = _least_squares(centred, damping).T
    left = centred.energy.sum() - 2 * (change.T * centred.cross).sum()
    left += ((change @ centred.square) * change).sum()
    if kind != "least_squares":
        bias_change = (moments.missing - change @ moments.input) / max(moments.tokens, 1)
        bias = bias_change if bias is None else bias.double() + bias_change
    return wide + change, bias, float(left.clamp(min=0)) / max(moments.tokens, 1)


def _least_squares(moments: FitMoments, damping: float) -> torch.Tensor:
    """Return the (columns, outputs) change of the weights, D^T."""
    ridge = damping * (moments.level if moments.level > 0 else moments.square.diagonal().mean())
    if not moments.square.diagonal().any():
        return torch.zeros_like(moments.cross)
    matrix = moments.square.clone()
    matrix.diagonal().add_(ridge)
    factor, failed = torch.linalg.cholesky_ex(matrix)
    change = torch.cholesky_solve(moments.cross, factor)
    if int(failed) or not bool(torch.isfinite(change).all()):
        raise SettingsError(
            f"repair.damping {damping:g} leaves the {len(matrix):,} kept columns of a map undetermined by "
            f"{moments.tokens:,} tokens: set it to 0.001 or more, or draw more sequences (calibration.samples)"
        )
    return change
