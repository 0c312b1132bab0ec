"""The sentences of the tour: their numbers against plain recomputation, their words against the signs."""

import re
from dataclasses import replace

import numpy as np
import pytest

from gprune.analysis import comparison, drift, verdict
from gprune.analysis.decisions import Bins, chance_jaccard
from gprune.analysis.paired_test import Measurement
from gprune.analysis.thresholds import Counts
from gprune.data.texts.corpus_relation import OTHER
from gprune.data.texts.holdout import HoldoutStatus
from gprune.pruning.drift import rank_drift
from gprune.records import Agreement, TextOverlap, UnitScores


def numbers(sentence):
    return [float(digits) for digits in re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?", sentence)]


def scores(random, level, noise):
    ffn = np.exp(level + noise * random.normal(size=level.shape))
    heads = random.gamma(2.0, size=(len(level), 2))
    return UnitScores("flap", "t", ffn, heads, random.gamma(2.0, size=(len(level), 8)))


def a_drift(seed, shift, noise):
    """Two texts whose levels differ by `shift`, each seen with `noise`."""
    random = np.random.default_rng(seed)
    first = random.normal(size=(3, 50))
    second = first + shift * random.normal(size=first.shape)
    a, b = scores(random, first, noise), scores(random, second, noise)
    halves = [tuple(scores(random, level, noise) for _ in range(2)) for level in (first, second)]
    return rank_drift(a, b, *halves), a, b


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("shift", "noise", "moves"), [(1.0, 0.02, True), (0.0, 0.3, False)])
def test_drift_is_told_against_the_noisier_floor(seed, shift, noise, moves):
    record, _, _ = a_drift(seed, shift, noise)
    curves = drift.distributions(record, 50)
    title, _, rest = verdict.drift_finding(curves).partition(". ")
    assert title == verdict.drift_title(curves)
    cross, floor, rho, floor_rho = numbers(rest)
    medians = [np.median(each) for each in (record.resample_primary, record.resample_auxiliary)]
    noisier = int(np.argmax(medians))
    assert cross == pytest.approx(100 * np.median(record.magnitude), abs=0.051)
    assert floor == pytest.approx(100 * medians[noisier], abs=0.051)
    assert rho == pytest.approx(np.median(record.correlation), abs=0.0051)
    floors = (record.correlation_primary, record.correlation_auxiliary)
    assert floor_rho == pytest.approx(np.median(floors[noisier]), abs=0.0051)
    if medians[noisier] > 0:
        ratio = np.median(record.magnitude) / medians[noisier]
        assert (f"{ratio:.1f}× more than resampling it" in title) == moves
    assert ("slightly" in title) != moves


def an_agreement(**ari):
    rows = np.array([[value - 0.1, value + 0.1] for value in ari.values()])
    return Agreement(tuple(ari), rows, np.abs(rows))


@pytest.mark.parametrize(("seed", "word"), [(0.2, "less than"), (0.8, "more than"), (0.5, "about as much as")])
def test_agreement_is_told_against_another_seed_and_fang(seed, word):
    record = an_agreement(ab_ac=0.4, ab_bc=0.6, other_seed=seed, initialization=0.9, fang_ab=0.12)
    finding = verdict.agreement_finding(record)
    # modules that agree less when the text changes than when the seed does are changed more by it
    assert finding.startswith(f"Changing the calibration text changes the modules {word} changing the seed. ")
    assert numbers(finding) == [0.5, seed, 0.12]
    title = "Mean ARI of the modules: 0.10 when one calibration text is replaced and 0.30 for FANG’s groups of A and B"
    assert verdict.agreement_finding(an_agreement(ab_ac=0.1, fang_ab=0.3)) == f"{title}."


@pytest.mark.parametrize("adapted", [0, 1, 7])
def test_adapted_modules_and_their_sources_are_counted(adapted):
    from_b = adapted // 2
    finding = verdict.adaptation_finding(Counts(40, adapted, 30 * adapted, 1200, adapted - from_b, from_b, 30 * from_b))
    if not adapted:
        assert finding.startswith("RASA adapts none of the 40 modules")
        return
    assert numbers(finding) == [adapted, 40, pytest.approx(100 * adapted / 40), from_b, adapted - from_b]


def some_bins(seed):
    random = np.random.default_rng(seed)
    sizes = random.integers(20, 60, 5)
    masks = [[random.random(size) < random.uniform(0.3, 0.7) for size in sizes] for _ in range(2)]
    first_kept, second_kept = (np.array([part.mean() for part in mask]) for mask in masks)
    both = np.array([(first & second).mean() for first, second in zip(*masks, strict=True)])
    shares = 100 * np.stack([both, first_kept - both, second_kept - both, 1 - first_kept - second_kept + both])
    names = [str(number) for number in range(5)]
    jaccard = both / (first_kept + second_kept - both)
    chance = chance_jaccard(first_kept, second_kept)
    return Bins(names, np.arange(5.0), sizes, first_kept, second_kept, jaccard, chance, shares)


@pytest.mark.parametrize("seed", range(8))
def test_the_budget_of_the_most_unstable_modules_and_the_shared_neurons(seed):
    bins = some_bins(seed)
    title, _, rest = verdict.budget_finding(bins, "FLAP").partition(". ")
    change = bins.gprune - bins.base
    stable_change = (change * bins.neurons)[:-1].sum() / bins.neurons[:-1].sum()
    # the change agrees with the retentions that are printed
    printed = float(f"{100 * bins.gprune[-1]:.1f}") - float(f"{100 * bins.base[-1]:.1f}")
    unstable, pooled = (f"{value:+.1f}".replace("-", "−") for value in (printed, 100 * stable_change))
    assert title.endswith(f" FLAP: {unstable} points in the most unstable modules, {pooled} on average in the others")
    ratio, base, both = (np.average(each, weights=bins.neurons) for each in (bins.gprune, bins.base, bins.shares[0]))
    expected = [100 * bins.gprune[-1], 100 * bins.base[-1], 100 * ratio, 100 * base, both]
    assert numbers(rest) == pytest.approx(expected, abs=0.051)
    evenly = "GPrune spreads the budget over stable and unstable modules as FLAP does"
    assert verdict.budget_title(replace(bins, base=bins.gprune), "FLAP") == evenly


def cell(method, loss, text="c", retention=0.5):
    losses = loss + 0.01 * np.random.default_rng([len(method), int(100 * loss)]).normal(size=30)
    values = float(np.exp(losses.mean())), 0.1
    return Measurement("r", method, text, *values, 30, 8, retention, 0, "m", "", losses)


def compared(cells):
    return verdict.comparison_finding(comparison.lines(comparison.rows(cells)), ["c"], UNSEEN)


UNSEEN = {"c": HoldoutStatus("c", {"A": OTHER, "B": OTHER}, TextOverlap("c", 17, 30, np.zeros(2), np.ones(2)))}


def test_the_rival_is_no_control_and_its_absence_is_said():
    alone = [cell("gprune", 3.0), cell("dense", 2.0)]
    assert compared(alone) == "On c (unseen): No winner: a baseline is not part of this run."
    cells = [cell("gprune", 3.2), cell("flap", 3.6), cell("msl_random", 3.1), cell("flap_no_bias", 3.0)]
    sentence = compared(cells)
    change = 100 * np.expm1(cells[2].losses.mean() - cells[0].losses.mean())
    assert (
        "higher perplexity than FLAP without bias compensation. On c (unseen): A control does better: MSL" in sentence
    )
    assert numbers(sentence.replace("−", "-"))[-1] == pytest.approx(change, abs=0.051)
    weak = [*cells[:2], cell("msl_random", 3.5)]
    assert "control" not in compared(weak)


@pytest.mark.parametrize("seed", range(5))
def test_movers_are_the_largest_moves_with_their_ranks(seed):
    record, a, b = a_drift(seed, 1.0, 0.1)
    layer = drift.least_stable_layer(record)
    assert layer == max(range(3), key=lambda index: np.median(record.magnitude[index]))
    movers = drift.movers(record, a, b, layer, 10)
    rank = [[sum(other < move for other in row) / 49 for move in row] for row in (a.ffn[layer], b.ffn[layer])]
    moves = [abs(first - second) for first, second in zip(*rank, strict=True)]
    assert sorted(moves)[-10:] == pytest.approx(sorted(np.abs(movers.first - movers.second)))
    for neuron, first, second in zip(movers.neurons, movers.first, movers.second, strict=True):
        assert (first, second) == pytest.approx((rank[0][neuron], rank[1][neuron]))
