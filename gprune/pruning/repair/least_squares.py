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

CHUNK_TOKENS = 4096
"""number of tokens whose products are summed in float32; these sums are added in float64"""


class FitMoments:
    """Sums over tokens of products of a map's inputs x (columns) and of the missing output r (outputs)."""

    def __init__(self, columns: int, outputs: int, device: torch.device) -> None:
        """Start with zero moments."""
        options: dict[str, Any] = {"dtype": torch.float64, "device": device}
        self.tokens = 0
        self.square = torch.zeros(columns, columns, **options)
        """(columns, columns) sum of x x^T"""
        self.cross = torch.zeros(columns, outputs, **options)
        """(columns, outputs) sum of x r^T"""
        self.input = torch.zeros(columns, **options)
        """(columns,) sum of x"""
        self.missing = torch.zeros(outputs, **options)
        """(outputs,) sum of r"""
        self.energy = torch.zeros(outputs, **options)
        """(outputs,) sum of r^2"""
        self.mean_energy = torch.zeros(1, **options)
        """(1,) mean over all inputs of the map, kept or not, of the sum of x^2, if damping is relative to it; else 0"""

    def add(self, x: torch.Tensor, r: torch.Tensor) -> None:
        """Add (tokens, columns) inputs and (tokens, outputs) missing outputs."""
        for inputs, residuals in zip(x.split(CHUNK_TOKENS), r.split(CHUNK_TOKENS), strict=True):
            inputs, residuals = inputs.float(), residuals.float()
            self.tokens += len(inputs)
            self.square += inputs.T @ inputs
            self.cross += inputs.T @ residuals
            self.input += inputs.sum(dim=0, dtype=torch.float64)
            self.missing += residuals.sum(dim=0, dtype=torch.float64)
            self.energy += residuals.double().square().sum(dim=0)

    def own_inputs(self, mask: torch.Tensor, weight: torch.Tensor, damp_by_all_inputs: bool) -> FitMoments:
        """Return the moments for a fit in which r is the output of the removed columns, from those of all inputs.

        `mask` is (columns,) bool, True = kept, and `weight` (outputs, columns) has the dense weights. For
        `damp_by_all_inputs` see OwnRepair.whole.
        """
        kept_inputs, removed = mask.nonzero().flatten(), (~mask).nonzero().flatten()
        removed_weight, moments = weight.index_select(1, removed).double(), copy.copy(self)
        rows = self.square.index_select(0, kept_inputs)
        moments.square, moments.input = rows.index_select(1, kept_inputs), self.input[kept_inputs]
        moments.cross = rows.index_select(1, removed) @ removed_weight.T
        moments.missing = removed_weight @ self.input[removed]
        removed_square = self.square.index_select(0, removed).index_select(1, removed)
        moments.energy = ((removed_weight @ removed_square) * removed_weight).sum(dim=1)
        if damp_by_all_inputs:
            moments.mean_energy = self.square.diagonal().mean(dim=0, keepdim=True)
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
    """Return the repaired weights and bias of a map in float64, and the remaining error per token.

    The error is the squared missing output, summed over outputs. `weight` (outputs, columns) are the dense weights on
    the kept columns, `bias` is (outputs,) or None, and `kind` is affine, least_squares or least_squares_bias. Raises
    SettingsError if the linear system is singular.
    """
    if kind not in ("affine", "least_squares", "least_squares_bias"):
        raise SettingsError(f"{__name__} has no solution for repair.kind {kind!r}: add it there")
    centred = moments if kind == "least_squares" else moments.about_means()
    dense = weight.double()
    if kind == "affine":
        # y = W x + b is scaled to a y, so the change of the output, D x, is (a - 1) y
        energy = ((dense @ centred.square) * dense).sum(dim=1)
        # 1e-300 prevents a division by 0; such outputs are not scaled
        scale = (dense.T * centred.cross).sum(dim=0) / (energy + damping * energy.mean()).clamp(min=1e-300)
        change = dense * torch.where(energy > 0, scale, 0)[:, None]
    else:
        change = _least_squares(centred, damping).T
    # sum of |r - D x|^2
    squared_change = ((change @ centred.square) * change).sum()
    error = centred.energy.sum() - 2 * (change.T * centred.cross).sum() + squared_change
    if kind != "least_squares":
        bias_change = (moments.missing - change @ moments.input) / max(moments.tokens, 1)
        bias = bias_change if bias is None else bias.double() + bias_change
    return dense + change, bias, float(error.clamp(min=0)) / max(moments.tokens, 1)


def _least_squares(moments: FitMoments, damping: float) -> torch.Tensor:
    """Return the (columns, outputs) change of the weights, D^T."""
    ridge = damping * (moments.mean_energy if moments.mean_energy > 0 else moments.square.diagonal().mean())
    if not moments.square.diagonal().any():
        return torch.zeros_like(moments.cross)
    matrix = moments.square.clone()
    matrix.diagonal().add_(ridge)
    factor, failed = torch.linalg.cholesky_ex(matrix)
    change = torch.cholesky_solve(moments.cross, factor)
    if int(failed) or not bool(torch.isfinite(change).all()):
        raise SettingsError(
            f"{moments.tokens:,} tokens do not determine the weights of a map with {len(matrix):,} kept columns: set "
            f"repair.damping (now {damping:g}) to 0.001 or more, or draw more sequences (calibration.samples)"
        )
    return change
