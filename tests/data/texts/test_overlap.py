"""The measured overlap: exact against a naive count, and what a copy, a split and chance give."""

import numpy as np
import pytest

from gprune.data.texts import overlap
from gprune.records import Array, Tokens


def naive(windows: Array, sequences: Array, run: int) -> float:
    """Every run of every row as a tuple."""
    known = {tuple(row[i : i + run]) for row in sequences for i in range(len(row) - run + 1)}
    runs = [tuple(row[i : i + run]) for row in windows for i in range(len(row) - run + 1)]
    return sum(one in known for one in runs) / len(runs)


@pytest.mark.parametrize("run", [1, 2, 3, 5, 8, 13])
def test_the_share_is_that_of_a_naive_count(run):
    random = np.random.default_rng(run)
    # few tokens: runs of every length are met by chance, at every place
    sequences = random.integers(0, 3, (40, 20)).astype(np.int32)
    windows = np.concatenate([random.integers(0, 3, (9, 16)), sequences[:3, 2:18]]).astype(np.int32)
    found = overlap.shared(windows, sequences, run)
    assert found == naive(windows, sequences, run) and found > 0


def test_no_run_reaches_over_the_end_of_a_row_and_large_tokens_do_not_overflow():
    sequences = np.array([[2**31 - 1, 7], [8, 2**31 - 2]])
    assert overlap.shared(np.array([[7, 8]]), sequences, 2) == 0.0
    assert overlap.shared(np.array([[2**31 - 1, 7, 8]]), sequences, 2) == 0.5


def a_set(ids: Array, available: int) -> Tokens:
    return Tokens(text="t", fingerprint="", ids=ids, available=available)


def test_a_copy_overlaps_by_what_was_drawn_of_it_and_chance_by_nothing():
    random = np.random.default_rng(0)
    text = random.integers(0, 4096, (200, 64)).astype(np.int32)
    drawn = text[random.permutation(200)[:50]]
    other = random.integers(0, 4096, (50, 64)).astype(np.int32)
    found = overlap.measured("copy", text, [a_set(drawn, 200), a_set(other, 50)], 4096)
    assert found.run == 17 and found.windows == 200
    assert found.share.tolist() == [0.25, 0.0] and found.drawn.tolist() == [0.25, 1.0]


def test_windows_are_the_first_ones_and_the_tail_is_dropped():
    stream = np.arange(10)
    assert overlap.cut(stream, 3).tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert overlap.cut(stream, 3, 2).shape == (2, 3) and overlap.cut(stream, 11).shape == (0, 11)
