"""Scores of two texts averaged, against loops over units."""

import numpy as np
import pytest

from gprune.pruning.scoring import combine_scores
from gprune.records import ModelShape, UnitScores

SHAPE = ModelShape(layers=3, neurons=13, heads=6, kv_heads=2, head_width=2, hidden=5)


def scored(metric, text, seed):
    generator = np.random.default_rng(seed)
    ffn = generator.gamma(1, 1, (3, 13))
    channels = generator.gamma(1, 1, (3, 12))
    # equal scores share a rank
    ffn[:, 4], channels[:, 5] = ffn[:, 9], channels[:, 0]
    heads = channels.reshape(3, 2, 6).sum(-1) if metric == "wanda_sp" else channels.reshape(3, 2, 6).mean(-1)
    return UnitScores(metric, text, ffn, heads, channels)


def loop_ranks(row):
    return [sum(other < x for other in row) + (sum(other == x for other in row) - 1) / 2 for x in row]


@pytest.mark.parametrize("metric", ["flap", "twflap", "wanda_sp"])
@pytest.mark.parametrize("scoring", ["score_average", "rank_average"])
def test_averages_are_those_of_a_loop(scoring, metric):
    first, second = scored(metric, "a", 0), scored(metric, "b", 1)
    combined = combine_scores(scoring, first, second, SHAPE)
    assert (combined.metric, combined.text) == (metric, "a + b")
    for layer in range(3):
        means = {}
        for part in ("ffn", "channels"):
            rows = getattr(first, part)[layer], getattr(second, part)[layer]
            rows = map(loop_ranks, rows) if scoring == "rank_average" else rows
            means[part] = [(a + b) / 2 for a, b in zip(*rows, strict=True)]
            np.testing.assert_allclose(getattr(combined, part)[layer], means[part], rtol=1e-12)
        for group in range(2):
            channels = means["channels"][group * 6 : group * 6 + 6]
            expected = sum(channels) if metric == "wanda_sp" else sum(channels) / 6
            assert combined.heads[layer, group] == pytest.approx(expected, rel=1e-12)


def test_ranks_ignore_the_scale_of_a_text_and_scores_do_not_and_large_scores_do_not_overflow():
    first, second = scored("flap", "a", 0), scored("flap", "b", 1)
    larger = UnitScores("flap", "b", second.ffn * 1e6, second.heads, second.channels * 1e6)
    ranked = [combine_scores("rank_average", first, other, SHAPE) for other in (second, larger)]
    np.testing.assert_array_equal(ranked[0].ffn, ranked[1].ffn)
    np.testing.assert_array_equal(ranked[0].heads, ranked[1].heads)
    averaged = combine_scores("score_average", first, larger, SHAPE)
    assert (averaged.ffn.argmax(1) == second.ffn.argmax(1)).all()
    huge = np.full((3, 13), 1.7e308)
    scores = UnitScores("flap", "a", huge, np.ones((3, 2)), np.ones((3, 12)))
    np.testing.assert_array_equal(combine_scores("score_average", scores, scores, SHAPE).ffn, huge)
