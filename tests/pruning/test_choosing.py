"""The number by which is chosen, against arithmetic that is written out."""

import math

import numpy as np
import pytest

from gprune.pruning.choosing import DIVERGENCE, WEIGHTS, choose
from gprune.records import CandidateFigures
from gprune.system.errors import MethodError

MEASURES = ("A", "B", DIVERGENCE)
NAMES = [("gprune", "none"), ("gprune", "least_squares:both"), ("flap", "least_squares:both")]


def figures(first: float, second: float, far: float) -> CandidateFigures:
    """Figures of two sequences each: mean losses, and the mean divergence."""
    nats = np.array([[first - 0.1, first + 0.1], [second, second], [far / 2, far * 3 / 2]])
    return CandidateFigures(MEASURES, nats)


def by_hand(one: CandidateFigures, other: CandidateFigures) -> float:
    """The weighted geometric mean of ratios, one perplexity after the other."""
    product, total = 1.0, sum(WEIGHTS.values())
    for name, row, base in zip(MEASURES, one.nats, other.nats, strict=True):
        ratio = row.mean() / base.mean() if name == DIVERGENCE else math.exp(row.mean()) / math.exp(base.mean())
        product *= ratio ** (WEIGHTS[name] / total)
    return product


def test_the_lowest_weighted_geometric_mean_of_ratios_is_chosen():
    found = {0: figures(3.0, 4.0, 1.0), 1: figures(2.9, 4.1, 0.5), 2: figures(2.8, 3.9, 0.9)}
    made = choose(NAMES, found)
    np.testing.assert_allclose(made.numbers, [by_hand(one, found[0]) for one in found.values()], rtol=1e-12)
    assert made.numbers[0] == 1 and made.reference == 0
    assert made.chosen == int(np.argmin(made.numbers)) and made.order[0] == made.chosen
    np.testing.assert_allclose(made.figures[0], [math.exp(3.0), math.exp(4.0), 1.0])
    assert made.weights.sum() == pytest.approx(1) and made.sequences == 2


def test_which_reference_it_is_moves_no_candidate_past_another():
    found = {0: figures(3.0, 4.0, 1.0), 1: figures(2.9, 4.1, 0.8), 2: figures(2.8, 3.9, 0.9)}
    orders = {tuple(choose(NAMES, found, reference).order) for reference in range(3)}
    assert len(orders) == 1


def test_what_is_not_repaired_stays_where_everything_else_is_worse():
    found = {0: figures(3.0, 4.0, 1.0), 1: figures(3.0, 4.0, 1.1), 2: figures(3.1, 4.0, 1.0)}
    made = choose(NAMES, found)
    assert made.chosen == 0 and made.repair == "none"
    # of equal ones the first: nothing is fitted for nothing
    assert choose(NAMES, {0: found[0], 1: found[0], 2: found[0]}).chosen == 0


def test_what_could_not_be_made_is_left_out_and_told():
    made = choose(NAMES, {1: figures(2.9, 4.1, 0.5), 2: figures(3.8, 4.9, 0.9)})
    assert made.reference == 1 and made.chosen == 1 and np.isnan(made.numbers[0])
    assert made.order == [1, 2, 0] and np.isnan(made.figures[0]).all()
    with pytest.raises(MethodError, match="no candidate of a choice could be made"):
        choose(NAMES, {})


def test_a_check_text_alone_decides_and_a_model_that_lost_nothing_diverges_by_nothing():
    losses = [CandidateFigures(("check",), np.array([[one, one]])) for one in (3.0, 2.5, 2.7)]
    made = choose(NAMES, dict(enumerate(losses)))
    assert made.chosen == 1 and made.weights.tolist() == [1.0]
    assert made.numbers[1] == pytest.approx(math.exp(-0.5))
    whole = choose(NAMES[:2], {0: figures(3.0, 4.0, 0.0), 1: figures(3.0, 4.0, 0.0)})
    assert whole.numbers.tolist() == [1.0, 1.0]
