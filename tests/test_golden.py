"""The comparison with an earlier commit: what counts as a difference, and how it is reported."""

import json

import numpy as np
import pytest

from gprune.study import from_dict
from scripts import golden


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (np.array(2.0), np.array(2.0 + 1e-7), ""),
        (np.array(568.84), np.array(611.64), "is 611.64, before 568.84"),
        (
            np.array([1.0, 2.0, np.nan]),
            np.array([1.0, 2.5, np.nan]),
            "differs in 1 of 3 values, by up to 0.25 of the value",
        ),
        (np.array([True, False]), np.array([True, True]), "differs in 1 of 2 values"),
        (np.zeros(2), np.zeros(3), "has the shape (3,), before (2,)"),
        (None, np.zeros(2), "is new"),
        (np.zeros(2), None, "is gone"),
    ],
)
def test_differences_are_sized(before, after, text):
    assert golden.difference(before, after) == text


def test_perplexities_are_named_by_method_and_file():
    figures = {"perplexity": {"flap": {"/data/wiki.txt": 3.5, "science-docs": None}}}
    assert golden.flatten(figures) == {"perplexity.flap.wiki.txt": 3.5}


def test_only_a_difference_with_a_cause_passes(capsys):
    differences = {"drift": "differs in 1 of 2 values", "perplexity.flap.a": "is 2, before 1"}
    assert golden.report("demo", differences, 5, {"drift": "ties are averaged now"}) == 1
    printed = capsys.readouterr().out
    assert "demo: 3 of 5 quantities agree" in printed
    assert "drift differs in 1 of 2 values: ties are averaged now" in printed
    assert "perplexity.flap.a is 2, before 1: NO CAUSE NAMED" in printed


def test_studies_are_valid_and_causes_name_studies():
    paths = {path.stem: path for path in golden.STUDIES.glob("*.json")}
    moves = json.loads(paths.pop("moves").read_text())
    assert {from_dict(json.loads(path.read_text())).metric for path in paths.values()} == {"flap", "wanda_sp", "twflap"}
    assert set(moves) <= set(paths)
