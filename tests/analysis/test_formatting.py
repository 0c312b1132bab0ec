"""How a sentence writes what is counted."""

import pytest

from gprune.analysis.formatting import format_count


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0 neurons"), (1, "1 neuron"), (2, "2 neurons"), (11008, "11,008 neurons")]
)
def test_only_one_stands_in_the_singular(number, words):
    assert format_count(number, "neuron") == words
