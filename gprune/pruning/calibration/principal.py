"""The principal components of many points of high dimension, without a matrix of dimension by dimension.

FFN inputs are clustered in a few principal components (section 4, base metrics). Where the points are wide,
these are found in the space that a random block spans together with what repeated products with the points
make of it (block Krylov iteration): directions of large variance grow with every product, so that a few are
enough. The random block is the same for all: components depend on the points alone.
"""

import numpy as np
import torch

from gprune.records import Array

_BLOCKS = 12
"""blocks of the space, each of half as many directions as are asked for: narrow blocks, multiplied often,
come nearer to the exact directions than wide ones that cost as much"""


def principal_coordinates(rows: Array, limit: int) -> tuple[Array, Array]:
    """Return (points, directions) float32 points in at most `limit` directions of largest variance, and the shares.

    `rows` is (points, width) float32, at least two of them different; the shares of the whole variance are
    (directions,) float64.
    """
    centred = rows - rows.mean(axis=0)
    _, coordinates = principal_components(torch.from_numpy(centred), min(limit, len(rows) - 1, rows.shape[1]))
    variances: Array = np.square(coordinates.numpy(), dtype=np.float64).sum(axis=0)
    # summed row by row: a copy of all of them in float64 would be twice their size
    variance = sum(float(np.square(row, dtype=np.float64).sum()) for row in centred)
    return coordinates.numpy(), variances / variance


def principal_components(centred: torch.Tensor, dimensions: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the directions of largest variance, and the points in them.

    `centred` is (points, width) float32 of mean zero; dimensions are at most the width and fewer than points.
    Gives (dimensions, width) float32 orthonormal rows, largest variance first, the largest entry of each
    positive; and the (points, dimensions) float32 products of the points with them.
    """
    block = (dimensions + 1) // 2
    # iteration saves nothing if the space is nearly as wide as the points
    narrow = min(centred.shape) <= 2 * _BLOCKS * block
    rows = _exact(centred, dimensions) if narrow else _iterated(centred, dimensions, block)
    # a direction's sign is arbitrary: its largest entry is made positive
    largest = rows.gather(1, rows.abs().argmax(dim=1, keepdim=True))
    rows = (rows * torch.where(largest < 0, -1.0, 1.0)).float()
    return rows, centred @ rows.T


def _exact(centred: torch.Tensor, dimensions: int) -> torch.Tensor:
    """Return (dimensions, width) float64 eigenvectors of the covariance."""
    if len(centred) < centred.shape[1]:
        return torch.linalg.svd(centred.double(), full_matrices=False).Vh[:dimensions]
    _, vectors = torch.linalg.eigh((centred.T @ centred).double())
    return vectors[:, -dimensions:].T.flip(0)


def _iterated(centred: torch.Tensor, dimensions: int, width: int) -> torch.Tensor:
    """Return (dimensions, width) directions of largest variance by block Krylov iteration."""
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(centred.shape[1], width, generator=generator)
    block = torch.linalg.qr(start.to(centred.device)).Q
    basis, images = block, centred @ block
    for _ in range(_BLOCKS - 1):
        block = _beyond(centred.T @ images[:, -width:], basis)
        basis, images = torch.cat([basis, block], dim=1), torch.cat([images, centred @ block], dim=1)
    # float64 costs little compared with the products with the points
    _, mixed = torch.linalg.eigh((images.T @ images).double())
    return (basis @ mixed[:, -dimensions:].float()).T.flip(0)


def _beyond(block: torch.Tensor, basis: torch.Tensor) -> torch.Tensor:
    """Return an orthonormal basis of a block's part outside another; done twice against rounding."""
    for _ in range(2):
        block = torch.linalg.qr(block - basis @ (basis.T @ block)).Q
    return block
