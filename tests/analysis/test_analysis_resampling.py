"""What sampling does to ranks and decisions, against loops; its law against samples that are really drawn."""

import numpy as np
import pytest

from gprune.analysis import resampling
from gprune.analysis.resampling import Law, beyond, changed, decided, jaccard, law, rank_drift, resampled
from gprune.pruning.ranking import ranks

LAYERS, NEURONS, SHARDS, PER_SHARD = 3, 400, 8, 20


def text(seed, sequences, noise=1.0, truth=None):
    """(sequences, layers, neurons) a score of every sequence: a true one and an error of its own."""
    random = np.random.default_rng(seed)
    truth = np.random.default_rng(7).normal(size=(LAYERS, NEURONS)) if truth is None else truth
    return truth + noise * random.normal(size=(sequences, LAYERS, NEURONS))


def shards_of(values):
    parts = np.split(values, SHARDS)
    return lambda chosen: np.concatenate([parts[shard] for shard in chosen]).mean(axis=0)


def test_samples_are_those_of_a_loop():
    values = text(0, SHARDS * PER_SHARD)
    score, kept = shards_of(values), np.array([200, 10, 399])
    found = resampled(score, np.full(SHARDS, PER_SHARD), kept)
    assert found.sequences.tolist() == [20, 40, 60, 80]
    for row, count in enumerate((1, 2, 3, 4)):
        for start in range(SHARDS):
            both = [
                ranks(score([(first + step) % SHARDS for step in range(count)]))
                for first in (start, start + count)
            ]
            moved = np.median(np.abs(both[0] - both[1])) / (NEURONS - 1)
            assert found.drift[row, start] == pytest.approx(moved)
            sides = [
                {
                    (layer, neuron)
                    for layer in range(LAYERS)
                    for neuron in np.argsort(-rank[layer])[: kept[layer]]
                }
                for rank in both
            ]
            differ = len(sides[0] ^ sides[1]) / (LAYERS * NEURONS)
            assert found.changed[row, start] == pytest.approx(differ)


@pytest.mark.parametrize("noise", [0.3, 1.0, 4.0])
def test_the_law_tells_what_four_times_as_many_sequences_do(noise):
    """Fitted to two samples of at most 80 sequences, it foretells two samples of 320."""
    score, kept = shards_of(text(1, SHARDS * PER_SHARD, 3 * noise)), np.full(LAYERS, NEURONS // 2)
    found = resampled(score, np.full(SHARDS, PER_SHARD), kept)
    drift, decisions = (law(found.sequences, values) for values in (found.drift, found.changed))
    drawn = [ranks(text(seed, 320, 3 * noise).mean(axis=0)) for seed in range(2, 10)]
    pairs = list(zip(drawn[::2], drawn[1::2], strict=True))
    assert drift.at(320) == pytest.approx(np.mean([rank_drift(*pair) for pair in pairs]), rel=0.1)
    differ = [changed(*(decided(one, kept) for one in pair)) for pair in pairs]
    assert decisions.at(320) == pytest.approx(np.mean(differ), rel=0.15)
    # and back from the level to the number
    assert drift.reaches(drift.at(320)) == pytest.approx(320)


def test_a_law_that_is_met_exactly_is_found():
    sizes = np.array([10.0, 20.0, 30.0, 40.0])
    found = law(sizes, np.sqrt(0.5 / (sizes + 12))[:, None].repeat(3, axis=1))
    assert (found.scale, found.shift) == (pytest.approx(0.5), pytest.approx(12))
    assert found.reaches(0.05) == pytest.approx(0.5 / 0.0025 - 12)
    assert found.reaches(10.0) == 0
    # one size alone: the square root of the number
    alone = law(np.array([16.0]), np.array([[0.1, 0.3]]))
    assert (alone.at(64), alone.shift) == (pytest.approx(0.1), 0.0)


def test_where_nothing_falls_there_is_no_law():
    sizes = np.array([10.0, 20.0, 30.0])
    for values in ([0.1, 0.11, 0.12], [0.1, float("nan"), 0.1], [0.1, 0.0, 0.1], [0.1, 0.1, 0.1]):
        found = law(sizes, np.array(values)[:, None])
        assert not found.known and np.isnan(found.at(50)) and np.isnan(found.reaches(0.1)), values
    assert not law(np.array([]), np.empty((0, 2))).known
    # samples that agree in everything need none
    still = law(sizes, np.zeros((3, 4)))
    assert still.known and still.at(10) == 0 and still.reaches(0) == 0 and still.reaches(0.1) == 0
    assert Law(0.5, 0.0).reaches(0.0) == np.inf


def test_drift_beyond_sampling_is_that_of_endless_texts():
    """Of two texts whose true scores differ, the same is left for few sequences and for many."""
    random = np.random.default_rng(5)
    truths = random.normal(size=(2, LAYERS, NEURONS))
    truths[1] = truths[0] + 0.5 * truths[1]
    endless = rank_drift(*(ranks(truth) for truth in truths))
    for sequences in (16, 64, 256):
        sides = [
            [ranks(text(10 * side + draw, sequences, 3, truths[side]).mean(axis=0)) for draw in (1, 2)]
            for side in (0, 1)
        ]
        measured = rank_drift(sides[0][0], sides[1][0])
        left = beyond(measured, rank_drift(*sides[0]), rank_drift(*sides[1]))
        assert left == pytest.approx(endless, rel=0.12)
        assert measured > left
    assert beyond(0.1, 0.2, 0.1) == 0


def test_a_jaccard_index_follows_from_the_share_that_differs():
    random = np.random.default_rng(3)
    first, second = (decided(ranks(random.normal(size=(4, 50))), np.full(4, 20)) for _ in range(2))
    measured = (first & second).sum() / (first | second).sum()
    assert jaccard(0.4, changed(first, second)) == pytest.approx(measured)
    assert jaccard(0.4, 0.0) == 1
    scores = np.array([[0.1, 5.0, 3.0], [9.0, 8.0, 7.0]])
    kept = resampling.decided(ranks(scores), np.array([1, 2]))
    assert kept.tolist() == [[False, True, False], [True, True, False]]
