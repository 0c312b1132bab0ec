"""Every loss of the refinement against naive loops over the paper's equations."""

import math

import pytest
import torch
from torch.nn.functional import normalize

from gprune.pruning.modules.objective import TERMS, objective
from gprune.study import ModularizationSettings

TOLERANCE = {torch.float64: {"rtol": 1e-10, "atol": 1e-12}, torch.float32: {"rtol": 1e-5, "atol": 1e-6}}
SHAPES = [(13, 6, 3), (24, 10, 8), (9, 4, 1), (20, 5, 2)]


def case(neurons, width, modules, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    rows = normalize(torch.randn(neurons, width, generator=generator, dtype=torch.float64), dim=1)
    centroids = 3 * torch.randn(modules, width, generator=generator, dtype=torch.float64)
    profile = torch.randn(neurons, 2, generator=generator, dtype=torch.float64)
    profile = (profile - profile.mean(0)) / profile.std(0, correction=0)
    return rows.to(dtype), centroids.to(dtype), profile.to(dtype)


def cosine(a, b):
    return float(a @ b) / math.sqrt(float(a @ a) * float(b @ b))


def naive_membership(rows, centroids, temperature):
    """Eq. 2, one exponential at a time."""
    table = []
    for w in rows:
        exponentials = [math.exp(cosine(w, c) / temperature) for c in centroids]
        table.append([value / sum(exponentials) for value in exponentials])
    return table


def naive_inner(rows, centroids, p):
    """Eq. 3."""
    n = len(rows)
    return sum(p[i][k] * (1 - cosine(rows[i], c)) for i in range(n) for k, c in enumerate(centroids)) / n


def naive_repulsion(centroids):
    """Eq. 4; nothing to separate for a single centroid."""
    count = len(centroids)
    if count == 1:
        return 0.0
    pairs = [(k, j) for k in range(count) for j in range(count) if k != j]
    return sum(cosine(centroids[k], centroids[j]) ** 2 for k, j in pairs) / (count * (count - 1))


def naive_consistency(profile, p):
    """Eq. 5 divided by the layer's variance, averaged over the coordinates."""
    n, modules = len(p), len(p[0])
    values = []
    for coordinate in range(profile.shape[1]):
        d = [float(x) for x in profile[:, coordinate]]
        mean = sum(d) / n
        variance = sum((x - mean) ** 2 for x in d) / n
        total = 0.0
        for k in range(modules):
            mass = sum(p[i][k] for i in range(n))
            centre = sum(p[i][k] * d[i] for i in range(n)) / mass
            total += sum(p[i][k] * (d[i] - centre) ** 2 for i in range(n)) / mass
        values.append(total / modules / variance)
    return sum(values) / len(values)


def naive_dispersion(rows, p, k):
    """l_k (Eq. 14) over all ordered pairs."""
    pairs = [(i, j) for i in range(len(rows)) for j in range(len(rows)) if i != j]
    weight = sum(p[i][k] * p[j][k] for i, j in pairs)
    return sum(p[i][k] * p[j][k] * (1 - cosine(rows[i], rows[j])) for i, j in pairs) / weight


def naive_pair(rows, p):
    """L_pair (Eq. 14): mean of l_k over the highest-dispersion quartile, rounded up."""
    dispersion = sorted((naive_dispersion(rows, p, k) for k in range(len(p[0]))), reverse=True)
    quartile = dispersion[: math.ceil(len(dispersion) / 4)]
    return sum(quartile) / len(quartile)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("temperature", [1.0, 0.1])
def test_losses_equal_the_naive_loops(shape, dtype, temperature):
    rows, centroids, profile = case(*shape, dtype=dtype)
    wide_rows, wide_centroids, wide_profile = (tensor.double() for tensor in (rows, centroids, profile))
    p = naive_membership(wide_rows, wide_centroids, temperature)
    expected = [naive_inner(wide_rows, wide_centroids, p), naive_pair(wide_rows, p)]
    expected += [naive_repulsion(wide_centroids), naive_consistency(wide_profile, p)]
    weights = {"pair_weight": 0.3, "repulsion_weight": 0.7, "consistency_weight": 1.9}
    settings = ModularizationSettings(temperature=temperature, **weights)
    expected.append(expected[0] + 0.3 * expected[1] + 0.7 * expected[2] + 1.9 * expected[3])
    actual = objective(rows, rows.square().sum(1), centroids, profile, settings)
    assert len(actual) == len(TERMS)
    torch.testing.assert_close(actual.double(), torch.tensor(expected, dtype=torch.float64), **TOLERANCE[dtype])


def test_losses_stay_finite_when_assignments_are_hard():
    rows, centroids, profile = case(40, 8, 12, dtype=torch.float32)
    settings = ModularizationSettings(temperature=1e-3)
    variable = centroids.clone().requires_grad_()
    losses = objective(rows, rows.square().sum(1), variable, profile, settings)
    losses[-1].backward()
    assert torch.isfinite(losses).all() and torch.isfinite(variable.grad).all()
