"""What the RASA page counts."""

import numpy as np
import pytest

from gprune.analysis import thresholds
from gprune.records import AdaptedScores, ModuleStatistics
from gprune.study import ReliabilitySettings


def statistics() -> ModuleStatistics:
    return ModuleStatistics(
        drift=np.array([0.1, 0.2, 0.9, 0.8]),
        score=np.array([1.0, 2.0, 0.5, 0.4]),
        size=np.array([3, 5, 2, 6]),
        layer=np.array([0, 0, 1, 1]),
        u_primary=np.array([0.1, 0.1, 0.3, 0.1]),
        u_auxiliary=np.array([0.2, 0.2, 0.1, 0.2]),
    )


def adapted(chosen: list[bool], source: list[int]) -> AdaptedScores:
    return AdaptedScores(np.zeros((2, 8)), np.array(chosen), np.array(source, dtype=np.int8), 0.8, 0.6)


def test_modules_neurons_and_sources_are_counted():
    counts = thresholds.count(statistics(), adapted([False, False, True, True], [0, 0, 1, 0]))
    assert (counts.adapted, counts.modules, counts.neurons, counts.all_neurons) == (2, 4, 8, 16)
    assert (counts.from_primary, counts.from_auxiliary, counts.rescored) == (1, 1, 2)
    counts = thresholds.count(statistics(), adapted([False] * 4, [0] * 4))
    assert (counts.adapted, counts.neurons, counts.from_primary, counts.from_auxiliary) == (0, 0, 0, 0)
    rows = thresholds.by_layer(statistics(), adapted([False, False, True, True], [0, 0, 1, 0]), layers=3)
    np.testing.assert_array_equal(rows, [[0, 1, 0], [0, 1, 0]])
    first, second = np.array([True, True, False]), np.array([True, False, False])
    assert thresholds.overlap(first, second) == 0.5
    nothing = np.zeros(3, dtype=bool)
    assert thresholds.overlap(nothing, nothing) == 1.0
    assert thresholds.labels_within_layer(np.array([0, 0, 1, 3, 3, 3])).tolist() == [0, 1, 0, 0, 1, 2]
    table = thresholds.table(statistics(), adapted([False, False, True, True], [0, 0, 1, 0]))
    assert table["decision"].tolist() == ["adapted, from B", "adapted, from A", "not adapted", "not adapted"]
    assert table["module"].tolist() == [0, 1, 0, 1] and table["neurons"].tolist() == [2, 6, 3, 5]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "γ 0.90/0.90"),
        ({"score_quantile": 0.855}, "γ 0.90/0.855"),
        ({"selection": "drift", "score_scale": "standardized"}, "γ 0.90 drift only"),
        ({"score_scale": "standardized"}, "γ 0.90/0.90 standardized"),
        ({"selection": "none"}, "no adaptation"),
        ({"selection": "random", "source": "random"}, "γ 0.90/0.90 random modules random text"),
    ],
)
def test_a_rule_in_short(changes, words):
    assert thresholds.described(ReliabilitySettings(**changes)) == words
