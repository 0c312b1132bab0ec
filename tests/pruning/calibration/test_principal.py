"""Principal components of wide points against the exact ones, and what is clustered in them."""

import numpy as np
import pytest
import torch

from gprune.pruning.calibration.principal import _exact, principal


def points(count, width, power, seed=0, kinds=7, apart=3.0):
    """(count, width) of mean zero in a few kinds; variances fall by a power of their index."""
    generator = torch.Generator().manual_seed(seed)
    spread = torch.arange(1, width + 1).float() ** -power
    turned = torch.linalg.qr(torch.randn(width, width, generator=generator)).Q
    centres = apart * torch.randn(kinds, width, generator=generator) * spread
    own = torch.randint(kinds, (count,), generator=generator)
    drawn = (torch.randn(count, width, generator=generator) * spread + centres[own]) @ turned
    return drawn - drawn.mean(0)


def captured(x, rows):
    return float((x.double() @ rows.double().T).square().sum())


@pytest.mark.parametrize("power", [0.25, 1.0])
@pytest.mark.parametrize(
    ("count", "width", "dimensions"),
    [pytest.param(900, 1000, 64, marks=pytest.mark.long), (400, 800, 25), (60, 900, 40)],
)
def test_nearly_all_of_the_variance_is_captured(count, width, dimensions, power):
    x = points(count, width, power)
    found, projected = principal(x, dimensions)
    assert found.shape == (dimensions, width) and found.dtype == torch.float32
    np.testing.assert_allclose((found @ found.T).numpy(), np.eye(dimensions), atol=2e-5)
    torch.testing.assert_close(projected, x @ found.T)
    exact = captured(x, _exact(x, dimensions))
    assert (1 - 1e-5) * exact <= captured(x, found) <= (1 + 1e-5) * exact
    variances = projected.square().sum(0)
    assert (variances[1:] <= variances[:-1] * (1 + 1e-4)).all()


def test_narrow_points_are_taken_apart_exactly_and_signs_are_fixed():
    x = points(200, 96, 0.5)
    found, _ = principal(x, 8)
    exact = _exact(x, 8)
    np.testing.assert_allclose((found * exact.float()).sum(1).abs().numpy(), 1, atol=1e-6)
    assert (found.gather(1, found.abs().argmax(1, keepdim=True)) > 0).all()
