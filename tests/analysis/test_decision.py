"""Which models are worth taking: the Pareto front beside a naive one, and the cheapest within a limit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from gprune.analysis import comparison, decision
from gprune.analysis.paired_test import Difference, Measurement
from gprune.analysis.verdict import pareto_front

POINT = some.tuples(some.integers(0, 6), some.integers(0, 6))


@given(some.lists(POINT, max_size=12))
def test_the_front_is_what_no_other_point_dominates(points):
    costs, losses = ({index: float(point[axis]) for index, point in enumerate(points)} for axis in (0, 1))

    def compare(first, second):
        return Difference(losses[first] - losses[second], 0.0, True)

    beaten = [any(a <= cost and b <= loss and (a, b) != (cost, loss) for a, b in points) for cost, loss in points]
    assert pareto_front(costs, losses, compare) == {index for index, is_beaten in enumerate(beaten) if not is_beaten}


def cell(method, text, losses, run="run", **more):
    losses = np.asarray(losses, dtype=float)
    values = {"perplexity": float(np.exp(losses.mean())), "standard_error": 1.0, "windows": len(losses)}
    about = {"length": 128, "retention": 0.5, "parameters": 1, "model": "model", "content": "same"}
    return Measurement(run=run, method=method, text=text, losses=losses, **(values | about | more))


def options():
    losses = {"flap": [1.1, 2.1, 4.1], "fang": [1.5, 2.5, 4.5], "gprune": [1.2, 2.2, 4.2]}
    cells = [cell("dense", "novel", [1.0, 2.0, 4.0])]
    cells += [cell(method, "novel", values) for method, values in losses.items()]
    lines = comparison.lines(comparison.rows([*cells, cell("wanda_sp", "other", [1.0, 1.0, 1.0])]))
    costs = {("run", "flap"): 0.9, ("run", "fang"): 0.8, ("run", "gprune"): 0.7, ("run", "wanda_sp"): 0.1}
    return decision.options(lines, ["novel"], costs)


def test_models_measured_on_all_texts_are_options_with_their_loss_to_the_dense_one():
    models = options()
    expected = [("gprune", 0.7, True), ("fang", 0.8, False), ("flap", 0.9, True)]
    assert [(option.line.method, option.cost, option.front) for option in models] == expected
    assert models[0].ratio == pytest.approx(np.exp(0.2))
    names = {option.line.name: option.line.method for option in models}
    table = decision.option_table(models, names, decision.PARAMETERS)
    assert list(table["perplexity, times dense"]) == pytest.approx(np.exp([0.2, 0.5, 0.1]))
    assert list(table["parameters, times dense"]) == [0.7, 0.8, 0.9]


@pytest.mark.parametrize(("limit", "method"), [(1.12, "flap"), (2.0, "gprune"), (1.0, None)])
def test_the_cheapest_within_a_limit(limit, method):
    cheapest = decision.cheapest(options(), limit)
    assert (cheapest and cheapest.line.method) == method


def test_the_loss_is_the_mean_over_texts_of_the_change_by_window_against_the_dense_windows():
    texts = ["split", "other"]
    cells = [cell("dense", text, [1.0, 2.0, 4.0]) for text in texts]
    cells += [cell("flap", "split", [1.1, 2.3, 4.2]), cell("flap", "other", [1.4, 2.4, 4.4])]
    # another content of a text is no comparison, and a missing text none either
    cells += [cell("wanda_sp", text, [2.0, 3.0, 5.0], content="another") for text in texts]
    cells.append(cell("fang", "split", [2.0, 3.0, 5.0]))
    lines = comparison.lines(comparison.rows(cells))
    (option,) = decision.options(lines, texts, {line.name: 0.5 for line in lines})
    assert option.line.method == "flap" and option.loss.nats == pytest.approx((0.2 + 0.4) / 2)
    error = np.std([0.1, 0.3, 0.2], ddof=1) / np.sqrt(3)
    assert option.loss.nats_error == pytest.approx(error / 2)


def test_seeds_are_averaged_and_their_spread_counts():
    cells = [cell("dense", "novel", [1.0, 2.0, 4.0], run) for run in ("a", "b")]
    cells += [cell("flap", "novel", np.array([1.0, 2.0, 4.0]) + more, run) for run, more in (("a", 0.1), ("b", 0.3))]
    lines = comparison.lines(comparison.rows(cells), {"a": ("study", 0), "b": ("study", 1)})
    (option,) = decision.options(lines, ["novel"], {line.name: 0.5 for line in lines})
    assert option.loss.nats == pytest.approx(0.2)
    assert option.loss.nats_error == pytest.approx(np.std([0.1, 0.3], ddof=1) / np.sqrt(2))
