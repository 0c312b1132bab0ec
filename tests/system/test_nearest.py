"""Nearest names."""

from gprune.system.safe_parsing import closest, did_you_mean


def test_the_nearest_name_is_told_and_nothing_where_none_is_near():
    assert closest("retentoin", iter(["retention", "repair"])) == "retention"
    assert did_you_mean("retentoin", {"retention": 1}) == " (did you mean retention?)"
    assert closest("zzzz", ["retention"]) == did_you_mean("zzzz", []) == ""


def test_words_of_any_length_are_compared_by_their_beginning():
    assert closest("a" * 200 + "b" * 10_000_000, ["a" * 200]) == "a" * 200
