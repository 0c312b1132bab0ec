"""Profiles of settings, and what the recommended recipe claims."""

import json

import pytest

from gprune.__main__ import main
from gprune.pruning.choosing import WEIGHTS
from gprune.study import field_names, from_dict, profiles
from gprune.study.profiles import Profile


def sparsity_settings(capsys, *options):
    assert main(["study", "--model", "demo", *options]) == 0
    settings = json.loads(capsys.readouterr().out)["sparsity"]
    return settings["epochs"], settings["learning_rate"]


def test_a_study_takes_a_profile_where_nothing_is_asked_for_by_name(capsys, monkeypatch):
    settings = (("sparsity.epochs", 3), ("sparsity.learning_rate", 0.1))
    by_name = {"paper": Profile((), ""), "recommended": Profile(settings, "")}
    monkeypatch.setattr(profiles, "profile", by_name.__getitem__)
    assert sparsity_settings(capsys) == (2, 0.05)
    assert sparsity_settings(capsys, "--profile", "recommended") == (3, 0.1)
    options = ("--profile", "recommended", "--epochs", "4", "--set", "sparsity.learning_rate=0.2")
    assert sparsity_settings(capsys, *options) == (4, 0.2)


def test_the_reason_is_told_with_its_numbers():
    assert "49 configurations searched on babyllama-tok361" in profiles.profile("recommended").why
    assert "4.9% lower" in profiles.profile("recommended").why


def test_the_recommended_profile_is_a_study_of_known_fields_and_its_weights_are_those_that_choose():
    evidence = json.loads(profiles.RECIPE.read_text(encoding="utf-8"))
    assert evidence["weights"] == pytest.approx(WEIGHTS)
    study = from_dict({"model": "demo", "primary": "python-reference", "auxiliary": "science-docs"})
    settings = dict(profiles.profile("recommended").settings)
    assert settings and settings.keys() <= set(field_names())
    assert profiles.profile("paper").settings == () and study.with_settings(settings) != study


def test_the_launch_form_claims_what_was_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(profiles, "RECIPE", tmp_path / "recipe.json")
    evidence = {"models": ["small", "tiny"], "cases": 6, "to GPrune": 0.7512, "to the best unrepaired": 0.8249}
    profiles.RECIPE.write_text(json.dumps(evidence), encoding="utf-8")
    profiles.recipe.cache_clear()
    assert "the masks of GPrune, Gates, FLAP and Wanda-sp, one ratio with several repairs" in profiles.recipe()
    assert "On small and tiny" in profiles.recipe() and "0.75× GPrune" in profiles.recipe()
    assert "0.82× that of the best masks without repair (6 cases)" in profiles.recipe()
    profiles.recipe.cache_clear()
