"""Solves for the weights of an output map from moments of its inputs and of what is missing behind it.

x are the inputs on the kept columns, W the dense weights there, r what is missing. The repaired weights W + D
minimise |r - D x|^2 + damping * mean(diag H) * |D|^2 with H the sum of x x^T, so that damping holds to the
old weights (OSSCAR's last line, with a ridge; docs/method.md). Only the kept block of H is ever made.
"""

from __future__ import annotations

import copy
from typing import Any

import torch

from gprune.system.errors import SettingsError

PIECE = 4096
"""tokens whose products are summed in float32; sums of pieces are float64"""


class Moments:
    """What a fit needs of a map's inputs x (columns) and of what is missing r (outputs) over all tokens."""

    def __init__(self, columns: int, outputs: int, device: torch.device) -> None:
        """Nothing seen yet."""
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
        """mean over all inputs of the map of their sum of squares, where damping counts in it; else 0"""

    def add(self, x: torch.Tensor, r: torch.Tensor) -> None:
        """Adds (tokens, columns) inputs and (tokens, outputs) of what is missing there."""
        for one, rest in zip(x.split(PIECE), r.split(PIECE), strict=True):
            one, rest = one.float(), rest.float()
            self.tokens += len(one)
            self.square += one.T @ one
            self.cross += one.T @ rest
            self.input += one.sum(dim=0, dtype=torch.float64)
            self.missing += rest.sum(dim=0, dtype=torch.float64)
            self.energy += rest.double().square().sum(dim=0)

    def own_inputs(self, kept: torch.Tensor, weight: torch.Tensor, whole: bool) -> Moments:
        """What a fit to what leaves needs, of the moments of all inputs of a map.

        `kept` (columns,) is bool, `weight` (outputs, columns) that of the dense map, `whole` as in OwnRepair.
        """
        stays, gone = kept.nonzero().flatten(), (~kept).nonzero().flatten()
        left, found = weight.index_select(1, gone).double(), copy.copy(self)
        rows = self.square.index_select(0, stays)
        found.square, found.input = rows.index_select(1, stays), self.input[stays]
        found.cross = rows.index_select(1, gone) @ left.T
        found.missing = left @ self.input[gone]
        inner = self.square.index_select(0, gone).index_select(1, gone)
        found.energy = ((left @ inner) * left).sum(dim=1)
        found.level = self.square.diagonal().mean(dim=0, keepdim=True) if whole else self.level
        return found

    def about_means(self) -> Moments:
        """The same about the means of x and r."""
        found, count = copy.copy(self), max(self.tokens, 1)
        found.square = self.square - torch.outer(self.input, self.input) / count
        found.cross = self.cross - torch.outer(self.input, self.missing) / count
        found.energy = self.energy - self.missing.square() / count
        return found


def solve(
    weight: torch.Tensor, bias: torch.Tensor | None, seen: Moments, kind: str, damping: float
) -> tuple[torch.Tensor, torch.Tensor | None, float]:
    """The repaired weights of a map and its bias, in float64, and the mean square that is missing afterwards.

    `weight` is (outputs, columns) of the dense map on the kept columns, `bias` (outputs,) or None; `kind` is
    affine, least_squares or least_squares_bias. Raises SettingsError where the texts do not determine the
    weights and damping is 0.
    """
    about = seen if kind == "least_squares" else seen.about_means()
    wide = weight.double()
    if kind == "affine":
        # of y = W x + b, whose scale a becomes: (a - 1) y is what D x is
        spread = ((wide @ about.square) * wide).sum(dim=1)
        scale = (wide.T * about.cross).sum(dim=0) / (spread + damping * spread.mean()).clamp(min=1e-300)
        change = wide * torch.where(spread > 0, scale, 0)[:, None]
    else:
        change = _least_squares(about, damping).T
    left = about.energy.sum() - 2 * (change.T * about.cross).sum()
    left += ((change @ about.square) * change).sum()
    if kind != "least_squares":
        moved = (seen.missing - change @ seen.input) / max(seen.tokens, 1)
        bias = moved if bias is None else bias.double() + moved
    return wide + change, bias, float(left.clamp(min=0)) / max(seen.tokens, 1)


def _least_squares(seen: Moments, damping: float) -> torch.Tensor:
    """(columns, outputs) the change of the weights."""
    added = damping * (seen.level if seen.level > 0 else seen.square.diagonal().mean())
    if not seen.square.diagonal().any():
        return torch.zeros_like(seen.cross)
    matrix = seen.square.clone()
    matrix.diagonal().add_(added)
    factor, failed = torch.linalg.cholesky_ex(matrix)
    found = torch.cholesky_solve(seen.cross, factor)
    if int(failed) or not bool(torch.isfinite(found).all()):
        raise SettingsError(
            f"repair.damping {damping:g} leaves the {len(matrix):,} kept columns of a map undetermined by "
            f"{seen.tokens:,} tokens: set it to 0.001 or more, or draw more sequences (calibration.samples)"
        )
    return found
