"""What is said of a difference, and when nothing can be said."""

import numpy as np
import pytest
from scipy import stats

from gprune.analysis.paired_test import Difference
from gprune.app.preview import NO_DIFFERENCE, Answer, verdict


def answer(losses, base, progress="open"):
    return Answer("id", "gprune", "text", progress, np.array(losses, float), np.array(base, float))


def test_only_windows_that_both_have_are_compared():
    rng = np.random.default_rng(0)
    first, second = rng.normal(3, 1, 30), rng.normal(3, 1, 30)
    partial = first.copy()
    partial[20:] = np.nan
    base = second.copy()
    base[:4] = np.nan
    found = answer(partial, base)
    assert (found.done, found.windows) == (16, 30)
    each = (first - second)[4:20]
    assert found.difference.nats == pytest.approx(each.mean())
    assert found.difference.nats_error == pytest.approx(stats.sem(each))
    assert found.perplexity == pytest.approx(np.exp(first[4:20].mean()))
    assert found.difference.change == pytest.approx(found.perplexity / found.base_perplexity - 1)


def test_what_is_claimed_of_few_windows_and_of_differences_within_and_beyond_two_errors():
    found = answer([], [])
    assert found.difference is None and np.isnan(found.perplexity) and found.windows == 0
    assert found.verdict == "too early to tell"
    assert answer([np.nan] * 20, [1.0] * 20).verdict == "too early to tell: 0 of 20 windows"
    for nats in (0.199, -0.199):
        assert verdict(Difference(nats, 0.1, True), 20, 40) == NO_DIFFERENCE
    assert verdict(Difference(np.log(1.25), 0.01, True), 20, 40) == "perplexity 25.00 % higher (± 1.25 %)"
    assert verdict(Difference(np.log(0.9), 0.01, True), 20, 40) == "perplexity 10.00 % lower (± 0.90 %)"
    found = Difference(1.0, 0.01, True)
    assert verdict(found, 7, 40) == "too early to tell: 7 of 40 windows"
    assert verdict(found, 7, 7).startswith("perplexity 171.83 % higher")
    assert verdict(Difference(1.0, float("inf"), True), 1, 1) == NO_DIFFERENCE
