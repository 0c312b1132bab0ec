"""OSSCAR: remove the units with the lowest Hessian cost in rounds and refit the remaining weights.

The rule follows the code of OSSCAR and Tyr-the-Pruner (docs/method.md). H is the sum of x x^T over the inputs x of a
map, with 0.01 times the mean of its diagonal added to the diagonal. W are the weights. If a set S of inputs is removed
and the other weights are refitted, half the squared error of the outputs increases by W_S (H^-1_SS)^-1 W_S / 2.
"""

from dataclasses import dataclass

import torch

from gprune.pruning.allocation import uniform
from gprune.pruning.removal.walk import Decide, MapInputs
from gprune.pruning.repair import OutputMap
from gprune.records import Array, ModelShape

DAMPING = 0.01
"""added to the diagonal of H, as a fraction of its mean (OSSCAR, Tyr: 0.01)"""
ROUNDS = {"down_proj": 16, "o_proj": 1}
"""number of removal rounds of each map (Tyr: 16 for the FFN, one for heads)"""


def osscar_decision(shape: ModelShape, target: float, equal: uniform.Counts | None = None) -> Decide:
    """Return a function that removes the units of a map with the lowest cost, at one pruning ratio in every layer."""

    def decide(output: OutputMap, inputs: MapInputs) -> tuple[Array, Array]:
        neurons, groups = uniform.layer_counts(shape, target, output.layer, equal)
        keep, width = (groups, shape.group_channels) if output.name == "o_proj" else (neurons, 1)
        removal = remove(inputs.moments.square, output.dense.weight, keep, width, ROUNDS[output.name])
        return removal.remaining.cpu().numpy(), removal.order.cpu().numpy()

    return decide


@dataclass(slots=True, eq=False)
class Removal:
    """Result of the removal of units from a map."""

    remaining: torch.Tensor
    """(units,) bool, True for kept units"""
    order: torch.Tensor
    """(units,) float64 position in the order of removal; the remaining units follow by rising final cost"""
    weight: torch.Tensor
    """(inputs, outputs) float64 weights after the last round, zero for removed inputs"""


def remove(square: torch.Tensor, weight: torch.Tensor, keep: int, width: int, rounds: int) -> Removal:
    """Remove the units with the lowest cost until `keep` units remain; costs are recomputed in every round.

    `square` (inputs, inputs) float64 is the sum of x x^T, `weight` (outputs, inputs) is the dense map's; a unit is
    `width` consecutive inputs. Units whose inputs are always 0 are removed first. Rounds have equal sizes; a remainder
    is distributed over the first rounds. At equal cost the first unit is removed.
    """
    units, weights = len(square) // width, weight.double().T.clone()
    remaining = torch.ones(units, dtype=torch.bool, device=square.device)
    removed = (square.diagonal().reshape(-1, width) == 0).all(dim=1).nonzero().flatten()[: units - keep]
    remaining[removed] = False
    weights[_input_indices(removed, width)] = 0
    order = [removed]
    # without any activation all remaining units have the same cost
    if not bool(square.diagonal().any()):
        return Removal(remaining, _removal_order(remaining, order, remaining.double()), weights)
    inverse = _damped_inverse(square)
    for count in _units_per_round(units - keep - len(removed), rounds):
        removed = costs(inverse, weights, remaining, width).argsort(stable=True)[:count]
        _eliminate(inverse, weights, _input_indices(removed, width))
        remaining[removed] = False
        order.append(removed)
    return Removal(remaining, _removal_order(remaining, order, costs(inverse, weights, remaining, width)), weights)


def _damped_inverse(square: torch.Tensor) -> torch.Tensor:
    """Return the inverse of the damped (inputs, inputs) matrix."""
    damped = square.clone()
    damped.diagonal().add_(DAMPING * square.diagonal().mean())
    # raises an error if the moments contain NaN, because no later step checks them
    torch.linalg.cholesky_ex(damped, check_errors=True, out=(damped, damped.new_empty((), dtype=torch.int32)))
    return torch.cholesky_inverse(damped)


def _units_per_round(count: int, rounds: int) -> list[int]:
    """Return the number of units to remove in each round."""
    rounds = min(rounds, count)
    return [count // rounds + (number < count % rounds) for number in range(rounds)]


def _input_indices(units: torch.Tensor, width: int) -> torch.Tensor:
    """Return the input indices of some units."""
    return (units[:, None] * width + torch.arange(width, device=units.device)).flatten()


def costs(inverse: torch.Tensor, weights: torch.Tensor, remaining: torch.Tensor, width: int) -> torch.Tensor:
    """Return (units,) half the squared error that the removal of each unit adds; infinity for removed units.

    `weights` is (inputs, outputs).
    """
    units = len(remaining)
    index = torch.arange(units, device=remaining.device)
    blocks = inverse.view(units, width, units, width)[index, :, index].clone()
    # the inverse is 0 for removed units; an identity keeps the factorization defined, and the cost is not used
    blocks[~remaining] = torch.eye(width, dtype=blocks.dtype, device=blocks.device)
    unit_weights = weights.view(units, width, -1)
    # with the Cholesky factor L of a block, W_S (H^-1_SS)^-1 W_S = |L^-1 W_S|^2
    whitened = torch.linalg.solve_triangular(torch.linalg.cholesky(blocks), unit_weights, upper=False)
    return (whitened.square().sum(dim=(1, 2)) / 2).masked_fill(~remaining, torch.inf)


def _eliminate(inverse: torch.Tensor, weights: torch.Tensor, removed: torch.Tensor) -> None:
    """Remove inputs from H^-1 and refit the weights of the other inputs, both in place."""
    factor = torch.linalg.cholesky(inverse.index_select(0, removed).index_select(1, removed))
    rows = torch.linalg.solve_triangular(factor, inverse.index_select(0, removed), upper=False)
    part = torch.linalg.solve_triangular(factor, weights.index_select(0, removed), upper=False)
    weights.addmm_(rows.T, part, alpha=-1)
    inverse.addmm_(rows.T, rows, alpha=-1)
    weights[removed] = 0
    inverse[removed], inverse[:, removed] = 0, 0


def _removal_order(remaining: torch.Tensor, order: list[torch.Tensor], cost: torch.Tensor) -> torch.Tensor:
    """Return the (units,) position of each unit: the removed units in order, then the others by rising cost."""
    last = cost.masked_fill(~remaining, torch.inf).argsort(stable=True)[: int(remaining.sum())]
    positions = torch.empty(len(remaining), dtype=torch.float64, device=remaining.device)
    positions[torch.cat([*order, last])] = torch.arange(len(remaining), dtype=torch.float64, device=remaining.device)
    return positions
