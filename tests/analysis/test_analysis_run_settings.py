"""The settings in which runs differ, in words, and runs that differ in nothing but their seed."""

from dataclasses import replace

from gprune.analysis import run_settings
from gprune.study import field_names
from gprune.study.demo import demo_study
from gprune.study.settings import ReliabilitySettings


def test_every_field_of_a_study_is_flattened_once():
    assert set(run_settings.flattened(demo_study())) == set(field_names())


def test_only_what_differs_is_listed_with_its_meaning():
    first = demo_study()
    second = replace(
        first, retention=0.7, reliability=replace(ReliabilitySettings(), drift_quantile=0.8), name="B"
    )
    table = run_settings.differences({"one": first, "other": second}).set_index("setting")
    assert set(table.index) == {"retention", "reliability.drift_quantile"}
    assert table.loc["retention"].tolist()[:2] == [str(first.retention), "0.7"]
    assert "fraction R* of the decoder layers' linear weights" in table.loc["retention", "meaning"]
    assert run_settings.differences({"one": first, "same": first}).empty


def test_runs_of_several_seeds_are_a_group_whatever_they_are_called():
    first = demo_study()
    studies = {
        "a": first,
        "b": replace(first, seed=1, name="again", methods=("dense", "gprune")),
        "c": replace(first, seed=2, retention=0.7),
    }
    groups = run_settings.seed_groups(studies)
    assert groups["a"][0] == groups["b"][0] != groups["c"][0] and [groups[r][1] for r in "abc"] == [0, 1, 2]
    assert run_settings.has_several_seeds(groups)
    assert not run_settings.has_several_seeds({run: groups[run] for run in "ac"})
    assert not run_settings.has_several_seeds({"a": groups["a"], "twin": groups["a"]})
