"""A whole search on a small model: what it writes, what it takes from the cache, what it refuses."""

import json
from pathlib import Path

import pandas as pd
import pytest
import tiny_study

from gprune.__main__ import main
from gprune.experiments import search
from gprune.experiments.search.plan import from_file
from gprune.pipeline import runs as run_records
from gprune.store import Store
from gprune.study import field_names, from_dict, profiles

pytestmark = pytest.mark.slow


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


def test_a_dry_run_lists_the_configurations(workshop, capsys):
    assert main(arguments(workshop, "--dry-run")) == 0
    told = capsys.readouterr()
    assert told.out.splitlines()[0].split(maxsplit=1) == ["0", "the study's own settings"]
    assert len(told.out.splitlines()) == 3 and "2 rounds, 7 runs" in told.err


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ("[]", "a search must be an object"),
        ('{"title": "t"}', "it lacks these"),
        ('{"title": "t", "study": {}, "space": {}, "rungs": [], "more": 1}', "no field 'more'"),
        ('{"title": "t", "study": 1, "space": {}, "rungs": []}', "study must be an object"),
        ('{"title": "t", "study": {}, "space": {"x": [1]}, "rungs": []}', "fields of a study"),
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


def test_the_committed_search_has_forty_configurations_and_its_profile_is_a_study():
    plan = from_file(Path(search.__file__).with_name("development.json"))
    assert plan.rungs[0].configurations >= 40 and len(plan.configurations()) == 49
    study = from_dict({"model": "demo", "primary": "python-reference", "auxiliary": "science-docs"})
    assert profiles.applied(study, "paper") == study
    recommended = profiles.profile("recommended")
    assert dict(recommended.settings).keys() <= {name for name, _ in plan.space}
    assert profiles.applied(study, "recommended") == study.with_settings(dict(recommended.settings))
