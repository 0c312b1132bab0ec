"""Compute principal components of many high-dimensional points without forming their covariance matrix.

FFN inputs are clustered in a few principal components (section 4, base metrics). For wide points the components are
computed by block Krylov iteration: a random block is multiplied by the points repeatedly, which amplifies the
directions of large variance. The random block is fixed, so that the components depend on the points only.
"""

import numpy as np
import torch

from gprune.records import Array

_BLOCKS = 12
"""number of blocks of the Krylov space; each has half the requested number of directions, because many narrow blocks
are more accurate than few wide ones at the same cost"""


def principal_coordinates(rows: Array, limit: int) -> tuple[Array, Array]:
    """Return the coordinates of points in at most `limit` principal components, and the shares of variance.

    `rows` is (points, width) float32, with at least two different rows. Returns (points, directions) float32
    coordinates and the (directions,) float64 share of the total variance.
    """
    centred = rows - rows.mean(axis=0)
    _, coordinates = principal_components(torch.from_numpy(centred), min(limit, len(rows) - 1, rows.shape[1]))
    variances: Array = np.square(coordinates.numpy(), dtype=np.float64).sum(axis=0)
    # summed row by row, because a float64 copy of all points would take twice their memory
    total = sum(float(np.square(row, dtype=np.float64).sum()) for row in centred)
    return coordinates.numpy(), variances / total


def principal_components(centred: torch.Tensor, dimensions: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the directions of largest variance and the coordinates of the points along them.

    `centred` is (points, width) float32 with mean zero. Returns (dimensions, width) float32 orthonormal rows in
    descending order of variance, with the largest entry of each positive, and (points, dimensions) float32 coordinates.
    `dimensions` is at most the width and less than the number of points.
    """
    block_width = (dimensions + 1) // 2
    # block iteration saves nothing if the Krylov space is nearly as wide as the points
    is_narrow = min(centred.shape) <= 2 * _BLOCKS * block_width
    rows = _exact_directions(centred, dimensions) if is_narrow else _krylov_directions(centred, dimensions, block_width)
    # a direction's sign is arbitrary: its largest entry is made positive
    largest = rows.gather(1, rows.abs().argmax(dim=1, keepdim=True))
    rows = (rows * torch.where(largest < 0, -1.0, 1.0)).float()
    return rows, centred @ rows.T


def _exact_directions(centred: torch.Tensor, dimensions: int) -> torch.Tensor:
    """Return (dimensions, width) float64 eigenvectors of the covariance."""
    if len(centred) < centred.shape[1]:
        return torch.linalg.svd(centred.double(), full_matrices=False).Vh[:dimensions]
    _, vectors = torch.linalg.eigh((centred.T @ centred).double())
    return vectors[:, -dimensions:].T.flip(0)


def _krylov_directions(centred: torch.Tensor, dimensions: int, block_width: int) -> torch.Tensor:
    """Return (dimensions, width) directions of largest variance by block Krylov iteration."""
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(centred.shape[1], block_width, generator=generator)
    block = torch.linalg.qr(start.to(centred.device)).Q
    # orthonormal columns that span the Krylov space, and their products with the points
    basis, images = block, centred @ block
    for _ in range(_BLOCKS - 1):
        block = centred.T @ images[:, -block_width:]
        # orthonormalized against the basis, twice to remove rounding errors
        for _ in range(2):
            block = torch.linalg.qr(block - basis @ (basis.T @ block)).Q
        basis, images = torch.cat([basis, block], dim=1), torch.cat([images, centred @ block], dim=1)
    # float64 costs little compared with the products with the points
    _, vectors = torch.linalg.eigh((images.T @ images).double())
    return (basis @ vectors[:, -dimensions:].float()).T.flip(0)
