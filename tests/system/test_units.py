"""Durations and sizes in words."""

import pytest

from gprune.system.units import amount, duration


@pytest.mark.parametrize(
    ("seconds", "words", "about"),
    [
        (None, "–", "–"),
        (float("nan"), "–", "–"),
        (0.4, "0 s", "0 s"),
        (89.4, "89 s", "89 s"),
        (90, "1 min 30 s", "2 min"),
        (7265, "2 h 01 min", "2.0 h"),
        (-3, "0 s", "0 s"),
    ],
)
def test_durations(seconds, words, about):
    assert (duration(seconds), duration(seconds, 1)) == (words, about)


def test_sizes():
    assert [amount(size) for size in (512, 3 * 2**20, 2.5 * 2**30)] == ["0.5 KiB", "3.0 MiB", "2.5 GiB"]
