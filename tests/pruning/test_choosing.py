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


def by_hand(candidate: CandidateFigures, other: CandidateFigures) -> float:
    """The weighted geometric mean of ratios, one perplexity after the other."""
    product, total = 1.0, sum(WEIGHTS.values())
    for name, row, base in zip(MEASURES, candidate.nats, other.nats, strict=True):
        ratio = row.mean() / base.mean() if name == DIVERGENCE else math.exp(row.mean()) / math.exp(base.mean())
        product *= ratio ** (WEIGHTS[name] / total)
    return product


def test_the_lowest_weighted_geometric_mean_of_ratios_is_chosen():
    candidates = {0: figures(3.0, 4.0, 1.0), 1: figures(2.9, 4.1, 0.5), 2: figures(2.8, 3.9, 0.9)}
    choice = choose(NAMES, candidates)
    expected = [by_hand(candidate, candidates[0]) for candidate in candidates.values()]
    np.testing.assert_allclose(choice.numbers, expected, rtol=1e-12)
    assert choice.numbers[0] == 1 and choice.reference == 0
    assert choice.chosen == int(np.argmin(choice.numbers)) and choice.order[0] == choice.chosen
    np.testing.assert_allclose(choice.figures[0], [math.exp(3.0), math.exp(4.0), 1.0])
    assert choice.weights.sum() == pytest.approx(1) and choice.sequences == 2
    # which reference it is moves no candidate past another
    assert all(choose(NAMES, candidates, reference).order == choice.order for reference in range(3))


def test_what_is_not_repaired_stays_where_everything_else_is_worse():
    candidates = {0: figures(3.0, 4.0, 1.0), 1: figures(3.0, 4.0, 1.1), 2: figures(3.1, 4.0, 1.0)}
    choice = choose(NAMES, candidates)
    assert choice.chosen == 0 and choice.repair == "none"
    # of equal ones the first: nothing is fitted for nothing
    assert choose(NAMES, {0: candidates[0], 1: candidates[0], 2: candidates[0]}).chosen == 0


def test_what_could_not_be_made_is_left_out_and_told():
    choice = choose(NAMES, {1: figures(2.9, 4.1, 0.5), 2: figures(3.8, 4.9, 0.9)})
    assert choice.reference == 1 and choice.chosen == 1 and np.isnan(choice.numbers[0])
    assert choice.order == [1, 2, 0] and np.isnan(choice.figures[0]).all()
    with pytest.raises(MethodError, match="all candidates of the choice failed"):
        choose(NAMES, {})


def test_a_check_text_alone_decides_and_a_model_that_lost_nothing_diverges_by_nothing():
    losses = [CandidateFigures(("check",), np.array([[loss, loss]])) for loss in (3.0, 2.5, 2.7)]
    choice = choose(NAMES, dict(enumerate(losses)))
    assert choice.chosen == 1 and choice.weights.tolist() == [1.0]
    assert choice.numbers[1] == pytest.approx(math.exp(-0.5))
    unchanged = choose(NAMES[:2], {0: figures(3.0, 4.0, 0.0), 1: figures(3.0, 4.0, 0.0)})
    assert unchanged.numbers.tolist() == [1.0, 1.0]
