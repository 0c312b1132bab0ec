"""OSSCAR's rounds against references that invert and solve anew, in float64, whatever was done before."""

import numpy as np
import pytest
import torch

from gprune.pruning.removal import osscar
from gprune.pruning.repair.least_squares import FitMoments, solve


def problem(units, width=1, outputs=5, tokens=60, silent=(), seed=0):
    """Inputs that go together, and weights; the inputs of silent units are 0."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(tokens, units * width)) @ rng.normal(size=(units * width, units * width)) + 0.3
    for unit in silent:
        x[:, unit * width : (unit + 1) * width] = 0
    weight = rng.normal(size=(outputs, units * width))
    return torch.tensor(x.T @ x), torch.tensor(weight)


def refitted(hessian, weight, inputs):
    """(inputs, outputs) the best weights that use the kept inputs alone."""
    weights = np.zeros_like(weight.T)
    weights[inputs] = np.linalg.solve(hessian[np.ix_(inputs, inputs)], hessian[inputs] @ weight.T)
    return weights


def reference(square, weight, keep, width, rounds):
    """Kept units, those that went in their order, and weights: every round from nothing."""
    square, weight = square.numpy(), weight.numpy()
    hessian = square + 0.01 * np.diag(square).mean() * np.eye(len(square))
    units = len(hessian) // width
    left = list(range(units))
    gone = [u for u in left if not np.diag(square)[u * width : (u + 1) * width].any()][: units - keep]
    left = [unit for unit in left if unit not in gone]
    rounds = min(rounds, len(left) - keep)
    for number in range(rounds):
        inputs = np.array([unit * width + at for unit in left for at in range(width)])
        inverse = np.linalg.inv(hessian[np.ix_(inputs, inputs)])
        current = refitted(hessian, weight, inputs)[inputs]
        costs = []
        for at in range(len(left)):
            rows = slice(at * width, (at + 1) * width)
            costs.append(np.trace(current[rows].T @ np.linalg.inv(inverse[rows, rows]) @ current[rows]) / 2)
        count = len(np.array_split(np.arange(units - keep - len(gone)), rounds - number)[0])
        first = [left[at] for at in np.argsort(costs, kind="stable")[:count]]
        gone, left = gone + first, [unit for unit in left if unit not in first]
    inputs = np.array([unit * width + at for unit in left for at in range(width)])
    return left, gone, refitted(hessian, weight, inputs)


CASES = [
    (13, 1, 6, 16, 60, ()),
    (40, 1, 7, 16, 60, ()),
    (40, 1, 20, 3, 60, (4, 39)),
    # fewer tokens than inputs
    (40, 1, 21, 16, 9, ()),
    (6, 4, 2, 1, 60, ()),
    (5, 3, 3, 2, 7, (1,)),
    (3, 6, 1, 1, 60, ()),
]


@pytest.mark.parametrize(("units", "width", "keep", "rounds", "tokens", "silent"), CASES)
def test_rounds_equal_those_that_invert_anew(units, width, keep, rounds, tokens, silent):
    square, weight = problem(units, width, tokens=tokens, silent=silent)
    actual = osscar.remove(square, weight, keep, width, rounds)
    left, gone, expected = reference(square, weight, keep, width, rounds)
    assert actual.remaining.nonzero().flatten().tolist() == left
    order = actual.order.argsort().tolist()
    assert order[: len(gone)] == gone and sorted(order) == list(range(units))
    np.testing.assert_allclose(actual.weight, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())


def test_the_last_round_leaves_the_weights_of_the_least_squares_repair():
    square, weight = problem(30, outputs=4, seed=3)
    removal = osscar.remove(square, weight.float(), 17, 1, 16)
    moments = FitMoments(30, 0, torch.device("cpu"))
    moments.square, moments.tokens = square, 60
    repaired, part = (
        solve(
            weight.float()[:, removal.remaining],
            None,
            moments.own_inputs(removal.remaining, weight.float(), damp_by_all_inputs=damp_by_all_inputs),
            "least_squares",
            osscar.DAMPING,
        )[0]
        for damp_by_all_inputs in (True, False)
    )
    torch.testing.assert_close(repaired.T, removal.weight[removal.remaining], rtol=1e-6, atol=1e-9)
    # counted in the mean over the kept inputs alone the damping is another
    assert not torch.allclose(part, repaired, rtol=1e-6)


def test_silent_units_go_first_and_a_map_that_hears_nothing_keeps_some():
    square, weight = problem(8, silent=(1, 5, 6))
    removal = osscar.remove(square, weight, 6, 1, 16)
    assert (~removal.remaining).nonzero().flatten().tolist() == [1, 5]
    mask = removal.remaining.clone()
    mask[6] = False
    np.testing.assert_allclose(removal.weight[mask], weight.T[mask], rtol=1e-9)
    silent = osscar.remove(torch.zeros_like(square), weight, 3, 2, 1)
    assert silent.remaining.tolist() == [False, True, True, True]
    assert sorted(silent.order.tolist()) == [0, 1, 2, 3]
