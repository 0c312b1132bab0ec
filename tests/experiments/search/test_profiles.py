"""Where a profile's settings go: below what is asked for by name, in studies and in reproductions."""

import json

import pytest

from gprune.__main__ import main
from gprune.study import profiles
from gprune.study.profiles import Profile

WON = (("sparsity.epochs", 3), ("sparsity.learning_rate", 0.1))


@pytest.fixture(autouse=True)
def won(monkeypatch):
    known = {"paper": Profile("paper", (), ""), "recommended": Profile("recommended", WON, "")}
    monkeypatch.setattr(profiles, "profile", known.__getitem__)


def written(capsys, *more):
    assert main(["study", "--model", "demo", *more]) == 0
    return json.loads(capsys.readouterr().out)["sparsity"]


def test_a_study_takes_a_profile_where_nothing_is_asked_for_by_name(capsys):
    assert (written(capsys)["epochs"], written(capsys)["learning_rate"]) == (2, 0.05)
    found = written(capsys, "--profile", "recommended")
    assert (found["epochs"], found["learning_rate"]) == (3, 0.1)
    found = written(
        capsys, "--profile", "recommended", "--epochs", "4", "--set", "sparsity.learning_rate=0.2"
    )
    assert (found["epochs"], found["learning_rate"]) == (4, 0.2)


def test_the_reason_is_told_with_its_numbers():
    values = {"settings": {"sparsity.epochs": 3}, "configurations": 49, "model": "small"}
    found = profiles._why(values | {"gain": {"perplexity": -0.031}})
    assert "49 configurations searched on small" in found and "3.1 % lower" in found
    assert "None of 49 configurations" in profiles._why(values | {"settings": {}})
