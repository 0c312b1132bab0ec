"""How sentences write changes and shares."""

import re

import pytest

from gprune.analysis.formatting import percent, signed, spaced


@pytest.mark.parametrize(
    ("share", "digits", "words"),
    [(0.41, 0, "41 %"), (1.0, 1, "100.0 %"), (-0.0725, 1, "−7.2 %"), (float("nan"), 0, "nan %")],
)
def test_a_blank_stands_before_the_sign_of_percent(share, digits, words):
    assert percent(share, digits) == words


def test_changes_and_shares_are_spaced_with_a_true_minus():
    assert [signed(value, ".1%") for value in (0.156, -0.156)] == ["+15.6 %", "−15.6 %"]
    assert signed(-0.0681, ".3f") == "−0.068"
    assert spaced("keep 50% · 80–100 % · 7.25%") == "keep 50 % · 80–100 % · 7.25 %"
    assert not re.search(r"\d%", spaced("FLAP 50%, 20%"))
    assert spaced("a%b and %s") == "a%b and %s"
