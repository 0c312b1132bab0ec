"""The search of the weights by which repairs and recipes are chosen, on the smallest model."""

import json
from pathlib import Path

import numpy as np
import pytest
import tiny_study

from gprune.__main__ import main
from gprune.experiments.search import weights
from gprune.pruning.choosing import WEIGHTS
from gprune.store import Store
from gprune.study import profiles
from gprune.study.methods import RECOMMENDED
from gprune.system.errors import SettingsError

pytestmark = pytest.mark.slow

REPAIRS = ["least_squares:both", "affine:primary"]


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights")
    texts = tiny_study.write_texts(folder / "texts")
    study = tiny_study.settings(tiny_study.write_model(folder / "model", texts), texts, device="cpu")
    study["evaluation"] |= {"texts": list(texts)}
    study["choice"] = {
        "sequences": 8,
        "fresh": "self:#length=24&seed=1",
        "repairs": REPAIRS,
        "masks": ["gprune", "flap"],
    }
    values = {"title": "Weights", "studies": [study], "retentions": [0.5], "weights": [[1, 1, 0], [0, 0, 1]]}
    file = folder / "choice.json"
    file.write_text(json.dumps(values), encoding="utf-8")
    store = Store(folder / "cache")
    plan = weights.from_file(file)
    return file, plan, store, weights.measured(plan, store, lambda _: None)


@pytest.mark.long
def test_a_case_is_a_pair_of_texts_with_the_third_one_unseen(searched):
    _, plan, _, cases = searched
    assert {case.texts[2] for case in cases} == set(plan.studies[0].evaluation.texts) and len(cases) == 3
    for case in cases:
        assert len(set(case.texts)) == 3
        assert case.unseen.keys() == {(masks, word) for masks in ("gprune", "flap") for word in ("none", *REPAIRS)}
        assert case.choices.keys() == {RECOMMENDED, "gprune", "flap"}


@pytest.mark.long
def test_regret_is_what_the_lowest_number_loses_on_the_unseen_text(searched):
    _, plan, _, cases = searched
    for case in cases:
        one = case.choices[RECOMMENDED]
        for given in plan.weights:
            numbers = np.prod(one.figures ** (np.array(given) / sum(given)), axis=1)
            place = int(np.argmin(numbers))
            pairs = list(zip(one.masks, one.repairs, strict=True))
            assert case.chosen(RECOMMENDED, given) == pairs[place]
            best = min(case.unseen[pair] for pair in pairs)
            expected = np.log(case.unseen[pairs[place]]) - np.log(best)
            assert case.regret(RECOMMENDED, given) == pytest.approx(expected) and expected >= 0
    means = weights.regrets(plan, cases).mean(axis=1)
    assert weights.regrets(plan, cases)[int(np.argmin(means))].mean() == means.min()
    near = [one for one, mean in zip(plan.weights, means, strict=True) if mean <= means.min() + 0.01]
    assert weights.winner(plan, cases) == max(near, key=lambda one: one[2])


@pytest.mark.long
def test_the_command_writes_what_was_found_and_runs_nothing_twice(searched, tmp_path, monkeypatch, capsys):
    file, plan, store, cases = searched
    before = {kind: len(list((store.root / kind).iterdir())) for kind in ("repaired", "perplexity", "choice")}
    out = tmp_path / "out"
    monkeypatch.setenv("GPRUNE_CACHE", str(store.root))
    assert main(["search", str(file), "--weights", "--cache", str(store.root), "--out", str(out)]) == 0
    assert before == {kind: len(list((store.root / kind).iterdir())) for kind in before}
    told = json.loads((out / weights.FILES[1]).read_text())
    assert told["cases"] == 3 and sum(told["weights"].values()) == pytest.approx(1)
    ours = [case.unseen[case.chosen(RECOMMENDED, weights.winner(plan, cases))] for case in cases]
    plain = [case.unseen["gprune", "none"] for case in cases]
    assert told["to GPrune"] == pytest.approx(float(np.exp(np.mean(np.log(ours) - np.log(plain)))))
    text = (out / weights.FILES[0]).read_text(encoding="utf-8")
    assert "## Weights" in text and text.count(" **") == 3 + 1
    assert "The recipe that they choose has" in capsys.readouterr().out


def test_the_launch_form_claims_what_was_measured_and_nothing_before(tmp_path, monkeypatch):
    monkeypatch.setattr(profiles, "RECIPE", tmp_path / "recipe.json")
    profiles.recipe.cache_clear()
    words = profiles.recipe()
    assert "the masks of GPrune, Gates, FLAP and Wanda-sp, one ratio with several repairs" in words
    assert words.endswith("What that brings is not measured yet: no figure is claimed.")
    known = {"models": ["small", "tiny"], "cases": 6, "to GPrune": 0.7512, "to the best unrepaired": 0.8249}
    profiles.RECIPE.write_text(json.dumps(known), encoding="utf-8")
    profiles.recipe.cache_clear()
    assert "On small and tiny" in profiles.recipe() and "0.75 of GPrune" in profiles.recipe()
    assert "0.82 of the best masks’ without repair (6 cases)" in profiles.recipe()
    profiles.recipe.cache_clear()


def test_what_was_found_is_what_chooses():
    known = json.loads(profiles.RECIPE.read_text(encoding="utf-8"))
    assert known["weights"] == pytest.approx(WEIGHTS)
    assert weights.from_file(Path(weights.__file__).with_name("choice.json")).weights


@pytest.mark.long
def test_what_is_no_plan_is_told(searched):
    _, plan, _, _ = searched
    with pytest.raises(SettingsError, match="weights must be lists of three numbers"):
        weights.Plan(plan.title, plan.studies, plan.retentions, ((1.0, 1.0),))
    with pytest.raises(SettingsError, match="retentions must be a list with one or more"):
        weights.Plan(plan.title, plan.studies, (), plan.weights)
    without = plan.studies[0].with_settings({"choice.masks": ("flap", "wanda_sp")})
    with pytest.raises(SettingsError, match=r"studies\.choice\.masks must be gprune among them"):
        weights.Plan(plan.title, (without,), plan.retentions, plan.weights)
