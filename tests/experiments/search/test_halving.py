"""Which configurations go on, and what counts as better, told by made-up losses."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tiny_study

from gprune.__main__ import main
from gprune.experiments import search
from gprune.experiments.search import halving
from gprune.experiments.search.plan import Plan, Rung, from_file
from gprune.pipeline import runs as run_records
from gprune.store import Store
from gprune.study import field_names, from_dict, profiles
from gprune.study.profiles import Profile
from gprune.system.errors import SettingsError

STUDY = {"model": "m", "primary": "a", "auxiliary": "b", "evaluation": {"texts": ["x", "y"]}}
SPACE = {
    "modularization.temperature": (1.0, 0.1, 0.05),
    "sparsity.learning_rate": (0.05, 0.1, 0.2),
    "sparsity.epochs": (2, 3),
}


def a_plan(*rungs, **changes):
    rungs = rungs or (Rung(8), Rung(3), Rung(2, seeds=(0, 1)))
    return Plan("t", **{"study": from_dict(STUDY), "space": SPACE, "rungs": rungs, **changes})


def measured(better, spread=0.01):
    """Losses that are lower by a number for some configurations, on two texts of 40 windows."""

    def measure(configuration, rung, seed):
        noise = np.random.default_rng([configuration.number, seed])
        shared = np.linspace(2, 4, 40)
        drop = better.get(configuration.number, 0.0)
        return tuple(shared + text - drop + noise.normal(0, spread, 40) for text in (0.0, 1.0))

    return measure


def test_the_configurations_differ_from_each_other_and_from_the_study_and_are_the_same_each_time():
    plan = a_plan()
    found = plan.configurations()
    assert [one.number for one in found] == list(range(9)) and found[0].settings == ()
    assert len({one.settings for one in found}) == 9 and found == a_plan().configurations()
    assert found != a_plan(seed=1).configurations()
    # what equals the study's own value is not named: 1.0, 0.05 and 2 are the defaults
    own = {("modularization.temperature", 1.0), ("sparsity.learning_rate", 0.05), ("sparsity.epochs", 2)}
    assert not own & {pair for one in found for pair in one.settings}


def test_the_best_go_on_and_the_study_itself_always_does():
    asked = []
    measure = measured({7: 0.5, 2: 0.4, 5: 0.3, 3: 0.2})

    def noted(configuration, rung, seed):
        asked.append((rung.configurations, configuration.number, seed))
        return measure(configuration, rung, seed)

    rounds = halving.search(a_plan(), noted)
    assert [[score.configuration.number for score in done.scores] for done in rounds[1:]] == [
        [0, 7, 2, 5],
        [0, 7, 2],
    ]
    assert len(asked) == 9 + 4 + 3 * 2 == len(set(asked))
    assert halving.winner(rounds[-1]).configuration.number == 7
    assert rounds[0].scores[1].objective == pytest.approx(3.5 - 0.5, abs=0.01)


def test_a_difference_within_its_noise_wins_nothing():
    clear = halving.search(a_plan(Rung(2)), measured({1: 0.05}))[-1]
    noisy = halving.search(a_plan(Rung(2)), measured({1: 0.05}, spread=2.0))[-1]
    assert halving.winner(clear).configuration.number == 1
    assert halving.winner(noisy) is noisy.scores[0]


def test_what_could_not_be_run_comes_last_and_never_wins():
    def measure(configuration, rung, seed):
        return None if configuration.number in (0, 1) else measured({2: 0.1})(configuration, rung, seed)

    last = halving.search(a_plan(Rung(3)), measure)[-1]
    assert [score.configuration.number for score in last.scores] == [0, 2, 3, 1]
    assert last.scores[-1].objective == np.inf
    assert halving.winner(last).configuration.number == 2
    nothing = halving.search(a_plan(Rung(1)), lambda *_: None)[-1]
    assert halving.winner(nothing).configuration.number == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rungs": (Rung(3), Rung(3))}, "ever fewer"),
        ({"rungs": (Rung(18),)}, "at most 17 configurations"),
        ({"rungs": ()}, "at least one round"),
        (
            {"space": {"sparsity.surrogate": ("sigmoid", "tanh")}, "rungs": (Rung(1),)},
            "sparsity.surrogate",
        ),
        ({"space": {"sparsity.epochs": (2, 2)}, "rungs": (Rung(1),)}, "several different values"),
        ({"space": {"retention": (0.5, 0.3)}, "rungs": (Rung(1),)}, "free to vary"),
        ({"study": from_dict({**STUDY, "evaluation": {}})}, "at least one text"),
    ],
)
def test_a_search_that_cannot_be_says_why(changes, words):
    with pytest.raises(ValueError, match=words):
        a_plan(**changes)


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
    found = written(capsys, "--profile", "recommended", "--epochs", "4", "--set", "sparsity.learning_rate=0.2")
    assert (found["epochs"], found["learning_rate"]) == (4, 0.2)


def test_the_reason_is_told_with_its_numbers():
    values = {"settings": {"sparsity.epochs": 3}, "configurations": 49, "model": "small"}
    found = profiles._why(values | {"gain": {"perplexity": -0.031}})
    assert "49 configurations searched on small" in found and "3.1 % lower" in found
    assert "None of 49 configurations" in profiles._why(values | {"settings": {}})


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search")
    texts = tiny_study.write_texts(folder / "texts")
    tiny_study.write_model(folder / "model", texts)
    study = tiny_study.settings("model", tuple(f"texts/{name.rpartition('/')[2]}" for name in texts))
    study["evaluation"]["texts"] = study["evaluation"]["texts"][:2]
    plan = {
        "title": "Small search",
        "study": study,
        "space": {"sparsity.learning_rate": [0.05, 0.5], "sparsity.epochs": [1, 2]},
        "rungs": [{"configurations": 2}, {"configurations": 1, "seeds": [0, 1]}],
    }
    (folder / "plan.json").write_text(json.dumps(plan))
    return folder


def arguments(workshop, *more):
    place = ["--within", str(workshop), "--cache", str(workshop / "cache"), "--out", str(workshop / "out")]
    return ["search", str(workshop / "plan.json"), *place, *more]


@pytest.mark.long
@pytest.mark.slow
def test_a_search_writes_every_trial_and_goes_on_from_the_cache(workshop, capsys):
    assert main(arguments(workshop)) == 0
    told = capsys.readouterr()
    assert told.err.count("loss ") == 3 + 2 * 2
    numbers = pd.read_csv(workshop / "out" / "search.csv")
    # three configurations on two texts, then two under two seeds
    assert len(numbers) == 3 * 2 + 2 * 2 * 2 and (numbers["perplexity"] > 1).all()
    report = (workshop / "out" / "search.md").read_text()
    assert "## Round 2: 1 configurations, seeds 0, 1" in report and "## What follows" in report
    written = json.loads((workshop / "out" / "profile.json").read_text())
    assert written["configurations"] == 3 and set(written["settings"]) <= set(field_names())
    runs = {name for name, _ in run_records.every(Store(workshop / "cache"))}
    assert main(arguments(workshop)) == 0
    again = capsys.readouterr()
    assert again.err.count("there already") == 7
    assert pd.read_csv(workshop / "out" / "search.csv").equals(numbers)
    assert {name for name, _ in run_records.every(Store(workshop / "cache"))} == runs


@pytest.mark.slow
def test_a_dry_run_lists_the_configurations(workshop, capsys):
    assert main(arguments(workshop, "--dry-run")) == 0
    told = capsys.readouterr()
    assert told.out.splitlines()[0].split(maxsplit=1) == ["0", "the study's own settings"]
    assert len(told.out.splitlines()) == 3 and "2 rounds, 7 runs" in told.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "words"),
    [
        ("[]", "a search must be an object"),
        ('{"title": "t"}', "lacks study, space, rungs"),
        ('{"title": "t", "study": {}, "space": {}, "rungs": [], "more": 1}', "no field 'more'"),
        ('{"title": "t", "study": 1, "space": {}, "rungs": []}', "study must be an object"),
        (
            '{"title": "t", "study": {}, "space": {"x": [1]}, "rungs": []}',
            "lacks study.model, study.primary",
        ),
        ("{", "is not JSON"),
    ],
)
def test_a_file_that_is_no_search_says_why(tmp_path, capsys, values, words):
    (tmp_path / "plan.json").write_text(values)
    assert main(["search", str(tmp_path / "plan.json"), "--cache", str(tmp_path / "cache")]) == 2
    told = capsys.readouterr().err
    assert words in told and len(told.splitlines()) == 1
    assert main(["search", str(tmp_path / "absent.json")]) == 2
    assert "there is no such file" in capsys.readouterr().err


def test_a_search_measures_the_method_that_it_names():
    plan = a_plan(method="gates")
    trial = plan.trial(plan.configurations()[1], plan.rungs[0], 3)
    assert trial.methods == ("gates",) and trial.seed == 3
    assert a_plan().trial(plan.configurations()[1], plan.rungs[0], 3).methods == ("gprune",)
    with pytest.raises(SettingsError, match="method must be one of dense, gprune, gates"):
        a_plan(method="gate")
    committed = from_file(Path(search.__file__).with_name("gates.json"))
    fields = {name for name in field_names() if name.startswith("gates.")}
    assert committed.method == "gates" and {name for name, _ in committed.space} == fields


ODD = [{}, {"a": 1}, [{"a": 1}], [[2]], [[[]]], {"a": [1]}]


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("field", ["sparsity.epochs", "modularization.candidates", "modularization"])
def test_objects_and_lists_of_lists_are_no_values_of_a_space(tmp_path, capsys, field, odd):
    plan = {
        "title": "t",
        "study": STUDY,
        "space": {field: [odd, 2, 3]},
        "rungs": [{"configurations": 2, "seeds": [0]}],
    }
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    assert main(["search", str(tmp_path / "plan.json"), "--dry-run"]) == 2
    told = capsys.readouterr().err
    assert f"space.{field}[0] must be a number, a text, a switch or a list of these" in told
    assert told.count("\n") == 1


@pytest.mark.slow
def test_the_committed_search_has_forty_configurations_and_its_profile_is_a_study():
    plan = from_file(Path(search.__file__).with_name("development.json"))
    assert plan.rungs[0].configurations >= 40 and len(plan.configurations()) == 49
    study = from_dict({"model": "demo", "primary": "python-reference", "auxiliary": "science-docs"})
    assert profiles.applied(study, "paper") == study
    recommended = profiles.profile("recommended")
    assert dict(recommended.settings).keys() <= plan.space.keys()
    assert profiles.applied(study, "recommended") == study.with_settings(dict(recommended.settings))
