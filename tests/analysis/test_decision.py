"""Which models are worth taking: the Pareto front beside a naive one, and the cheapest within a limit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from test_generalization import cell

from gprune.analysis import comparison, decision
from gprune.analysis.paired_test import Difference
from gprune.analysis.verdict import pareto_front

POINT = some.tuples(some.integers(0, 6), some.integers(0, 6))


@given(some.lists(POINT, max_size=12))
def test_the_front_is_what_no_other_point_dominates(points):
    costs, losses = ({index: float(point[axis]) for index, point in enumerate(points)} for axis in (0, 1))

    def compare(first, second):
        return Difference(losses[first] - losses[second], 0.0, True)

    naive = {
        index
        for index, point in enumerate(points)
        if not any(other[0] <= point[0] and other[1] <= point[1] and other != point for other in points)
    }
    assert pareto_front(costs, losses, compare) == naive


def options():
    losses = {"flap": [1.1, 2.1, 4.1], "fang": [1.5, 2.5, 4.5], "gprune": [1.2, 2.2, 4.2]}
    cells = [cell("dense", "novel", [1.0, 2.0, 4.0])]
    cells += [cell(method, "novel", values) for method, values in losses.items()]
    lines = comparison.lines(comparison.rows([*cells, cell("wanda_sp", "other", [1.0, 1.0, 1.0])]))
    costs = {("run", "flap"): 0.9, ("run", "fang"): 0.8, ("run", "gprune"): 0.7, ("run", "wanda_sp"): 0.1}
    return decision.options(lines, ["novel"], costs)


def test_models_measured_on_all_texts_are_options_with_their_loss_to_the_dense_one():
    found = options()
    assert [(one.line.method, one.cost, one.front) for one in found] == [
        ("gprune", 0.7, True),
        ("fang", 0.8, False),
        ("flap", 0.9, True),
    ]
    assert found[0].ratio == pytest.approx(np.exp(0.2))
    names = {one.line.name: one.line.method for one in found}
    table = decision.option_table(found, names, decision.PARAMETERS)
    assert list(table["perplexity, times dense"]) == pytest.approx(np.exp([0.2, 0.5, 0.1]))
    assert list(table["parameters, times dense"]) == [0.7, 0.8, 0.9]


@pytest.mark.parametrize(("most", "method"), [(1.12, "flap"), (2.0, "gprune"), (1.0, None)])
def test_the_cheapest_within_a_limit(most, method):
    found = decision.cheapest(options(), most)
    assert (found and found.line.method) == method


def test_budgets_that_are_printed_alike_are_equal_and_the_better_model_alone_is_on_the_front():
    cells = [cell("dense", "novel", [1.0, 2.0, 4.0])]
    cells += [cell("wanda_sp", "novel", [1.6, 2.6, 4.6]), cell("gprune", "novel", [1.2, 2.2, 4.2])]
    lines = comparison.lines(comparison.rows(cells))
    costs = {("run", "wanda_sp"): 0.58501, ("run", "gprune"): 0.58543}
    front = {one.line.method: one.front for one in decision.options(lines, ["novel"], costs)}
    assert front == {"wanda_sp": False, "gprune": True}
    costs["run", "gprune"] = 0.586
    front = {one.line.method: one.front for one in decision.options(lines, ["novel"], costs)}
    assert front == {"wanda_sp": True, "gprune": True}
