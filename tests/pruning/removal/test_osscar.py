"""OSSCAR's rounds against references that invert and solve anew, in float64, whatever was done before."""

import numpy as np
import pytest
import torch

from gprune.pruning.removal import osscar
from gprune.pruning.repair.least_squares import Moments, solve


def problem(units, width=1, outputs=5, tokens=60, silent=(), seed=0):
    """Inputs that go together, and weights; the inputs of silent units are 0."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(tokens, units * width)) @ rng.normal(size=(units * width, units * width)) + 0.3
    for unit in silent:
        x[:, unit * width : (unit + 1) * width] = 0
    weight = rng.normal(size=(outputs, units * width))
    return torch.tensor(x.T @ x), torch.tensor(weight)


def damped(square):
    return square.numpy() + 0.01 * np.diag(square.numpy()).mean() * np.eye(len(square))


def refitted(hessian, weight, kept):
    """(inputs, outputs) the best weights that use the kept inputs alone."""
    found = np.zeros_like(weight.T)
    found[kept] = np.linalg.solve(hessian[np.ix_(kept, kept)], hessian[kept] @ weight.T)
    return found


def error(hessian, weight, found):
    change = found - weight.T
    return np.trace(change.T @ hessian @ change) / 2


def reference(square, weight, keep, width, rounds):
    """Kept units, those that went in their order, and weights: every round from nothing."""
    hessian, weight = damped(square), weight.numpy()
    units = len(hessian) // width
    left = list(range(units))
    gone = [u for u in left if not np.diag(square.numpy())[u * width : (u + 1) * width].any()][: units - keep]
    left = [unit for unit in left if unit not in gone]
    rounds = min(rounds, len(left) - keep)
    for number in range(rounds):
        inputs = np.array([unit * width + at for unit in left for at in range(width)])
        inverse = np.linalg.inv(hessian[np.ix_(inputs, inputs)])
        now = refitted(hessian, weight, inputs)[inputs]
        costs = []
        for at in range(len(left)):
            own = slice(at * width, (at + 1) * width)
            costs.append(np.trace(now[own].T @ np.linalg.inv(inverse[own, own]) @ now[own]) / 2)
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
    found = osscar.remove(square, weight, keep, width, rounds)
    left, gone, expected = reference(square, weight, keep, width, rounds)
    assert found.kept.nonzero().flatten().tolist() == left
    order = found.order.argsort().tolist()
    assert order[: len(gone)] == gone and sorted(order) == list(range(units))
    np.testing.assert_allclose(found.weight, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("width", [1, 3])
def test_costs_are_what_the_squared_error_rises_by(width):
    square, weight = problem(7, width, seed=2)
    hessian, kept = damped(square), torch.ones(7, dtype=torch.bool)
    kept[2] = False
    inputs = np.repeat(kept.numpy(), width)
    now = refitted(hessian, weight.numpy(), np.flatnonzero(inputs))
    inverse = np.zeros_like(hessian)
    inverse[np.ix_(inputs, inputs)] = np.linalg.inv(hessian[np.ix_(inputs, inputs)])
    found = osscar.costs(torch.tensor(inverse), torch.tensor(now), kept, width)
    before = error(hessian, weight.numpy(), now)
    for unit in range(7):
        if unit == 2:
            assert found[unit] == torch.inf
            continue
        without = inputs.copy()
        without[unit * width : (unit + 1) * width] = False
        after = error(hessian, weight.numpy(), refitted(hessian, weight.numpy(), np.flatnonzero(without)))
        assert float(found[unit]) == pytest.approx(after - before, rel=1e-6)


def test_the_last_round_leaves_the_weights_of_the_least_squares_repair():
    square, weight = problem(30, outputs=4, seed=3)
    found = osscar.remove(square, weight.float(), 17, 1, 16)
    seen = Moments(30, 0, torch.device("cpu"))
    seen.square, seen.tokens = square, 60
    missing = seen.own_inputs(found.kept, weight.float(), whole=True)
    repaired, _, _ = solve(weight.float()[:, found.kept], None, missing, "least_squares", osscar.DAMPING)
    torch.testing.assert_close(repaired.T, found.weight[found.kept], rtol=1e-6, atol=1e-9)
    # counted in the mean over the kept inputs alone the damping is another
    part, _, _ = solve(
        weight.float()[:, found.kept],
        None,
        seen.own_inputs(found.kept, weight.float(), whole=False),
        "least_squares",
        osscar.DAMPING,
    )
    assert not torch.allclose(part, repaired, rtol=1e-6)


def test_moments_of_what_leaves_are_those_of_its_outputs():
    generator = torch.Generator().manual_seed(1)
    x, weight = torch.randn(50, 9, generator=generator) + 0.4, torch.randn(4, 9, generator=generator)
    kept = torch.tensor([1, 1, 0, 1, 0, 0, 1, 1, 1], dtype=torch.bool)
    seen, expected = Moments(9, 0, torch.device("cpu")), Moments(6, 4, torch.device("cpu"))
    seen.add(x, x[:, :0])
    expected.add(x[:, kept], x[:, ~kept] @ weight[:, ~kept].T)
    found = seen.own_inputs(kept, weight, whole=True)
    for name in ("square", "cross", "input", "missing", "energy"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name), rtol=1e-4, atol=1e-4)
    assert float(found.level) == pytest.approx(float(x.double().square().sum() / 9), rel=1e-6)
    assert found.tokens == 50


def test_silent_units_go_first_and_a_map_that_hears_nothing_keeps_some():
    square, weight = problem(8, silent=(1, 5, 6))
    found = osscar.remove(square, weight, 6, 1, 16)
    assert (~found.kept).nonzero().flatten().tolist() == [1, 5]
    kept = found.kept.clone()
    kept[6] = False
    np.testing.assert_allclose(found.weight[kept], weight.T[kept], rtol=1e-9)
    nothing = osscar.remove(torch.zeros_like(square), weight, 3, 2, 1)
    assert nothing.kept.tolist() == [False, True, True, True]
    assert sorted(nothing.order.tolist()) == [0, 1, 2, 3]


def test_where_all_stay_nothing_changes():
    square, weight = problem(8)
    found = osscar.remove(square, weight.float(), 8, 1, 16)
    assert found.kept.all() and torch.equal(found.weight, weight.float().double().T)
