"""A sweep file makes studies; what is wrong with it is said in the sentences of study files."""

import json

import pytest

from gprune.experiments.sweep import from_file
from gprune.study import from_dict
from gprune.study.demo import demo_study
from gprune.system.errors import SettingsError

PAIRS = [
    {"primary": "python-reference", "auxiliary": "science-docs"},
    {"primary": "science-docs", "auxiliary": "python-reference"},
]


def sweep_file(folder, **values):
    file = folder / "lines.json"
    file.write_text(json.dumps({"study": "demo", **values}))
    return file


def read(folder, **values):
    return from_file(sweep_file(folder, **values))


def test_every_value_meets_every_other_and_fields_of_a_case_stay_together(tmp_path):
    sweep = read(tmp_path, space={"reliability.drift_quantile": [0.8, 0.85], "seed": [0, 1, 2]}, cases=[*PAIRS])
    created = sweep.variations()
    assert sweep.count == len(created) == 12 and len({item.study.digest for item in created}) == 12
    assert {(item.study.primary, item.study.auxiliary) for item in created} == {
        ("python-reference", "science-docs"),
        ("science-docs", "python-reference"),
    }
    assert created[1].label == "primary python-reference, auxiliary science-docs, drift quantile 0.8, seed 1"
    # a run is known by what it varies, also where only its name is seen
    assert created[1].study.name == f"lines: {created[1].label}" and created[1].study.group == "lines"
    assert (sweep.until, created[1].study.reliability.drift_quantile, created[1].study.seed) == ("perplexity", 0.8, 1)


def test_values_that_look_alike_in_short_are_told_apart(tmp_path):
    texts = ["/one/text.txt", "/two/text.txt", "/two/other.txt"]
    created = read(tmp_path, space={"primary": texts, "retention": [0.5, 0.50000001]}).variations()
    assert [item.label for item in created if item.study.retention == 0.5] == [
        "primary /one/text.txt, retention 0.5",
        "primary /two/text.txt, retention 0.5",
        "primary /two/other.txt, retention 0.5",
    ]
    assert len({item.study.name for item in created}) == 6
    # whose words nobody else has keeps them when a list grows: its run is known by them
    few = read(tmp_path, space={"primary": [texts[0], texts[2]]}).variations()
    more = read(tmp_path, space={"primary": texts}).variations()
    assert few[1].study.name == more[2].study.name == "lines: primary other.txt"


def test_the_study_is_the_demo_or_a_file_beside_the_sweep_or_stands_in_it(tmp_path):
    (tmp_path / "mine.json").write_text(demo_study().renamed("mine").to_json())
    for study in ("demo", "mine.json", str(tmp_path / "mine.json"), demo_study().to_dict()):
        sweep = read(tmp_path, study=study, space={"seed": [3]})
        assert sweep.variations()[0].study.digest == from_dict(demo_study().to_dict() | {"seed": 3}).digest


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"space": {"reliability.drift_quantil": [0.8]}}, "did you mean 'reliability.drift_quantile'"),
        ({"space": {"seed": [0, -1]}}, r"study 2 of 2 \(seed -1\): seed must be 0 or more"),
        ({"space": {"metric": ["flap", "flop"]}}, r"study 2 of 2 \(metric flop\): metric must be"),
        ({"space": {"auxiliary": ["python-reference"]}}, "primary and auxiliary are the same text"),
        ({"space": {"seed": [1, 1.0]}}, "'seed 1.0' and 'seed 1' are the same study"),
        ({"space": {"seed": []}}, r"space\[seed\] must be a list of at least one value"),
        ({"space": {"seed": 3}}, r"space.seed must be a list"),
        ({"space": {"name": ["a", "b"]}}, "the sweep names its studies"),
        ({"space": {"seed": [1]}, "cases": [{"seed": 2}]}, "not in both"),
        ({"space": {"seed": list(range(101)), "retention": [0.1] * 10}}, "1,010 studies, more than the limit of 1,000"),
        ({"space": {"reliability": [{}], "reliability.drift_quantile": [0.8]}}, "varied alone, without 'reliability'"),
        ({"space": {"seed": [1]}, "title": "  "}, "title must be text in one line"),
        ({}, "space must be given at least one field"),
        ({"seeds": [1]}, "a sweep has no field 'seeds'"),
        ({"space": {"seed": [1]}, "until": "tomorrow"}, "until must be one of drift"),
        ({"space": {"seed": [1]}, "title": "two\nlines"}, "title must be text in one line"),
        ({"space": {"seed": [1]}, "study": "absent.json"}, "cannot be read: there is no such file"),
        ({"space": {"seed": [1]}, "study": {"model": "demo"}}, "lacks study.primary, study.auxiliary"),
    ],
)
def test_what_is_wrong_is_said_with_the_file(tmp_path, values, said):
    file = sweep_file(tmp_path, **values)
    with pytest.raises(SettingsError, match=f"^sweep file .*lines.json.*{said}"):
        from_file(file)


def test_a_file_that_is_none_is_refused_and_the_example_is_a_sweep(tmp_path, project):
    with pytest.raises(SettingsError, match="cannot be read: there is no such file"):
        from_file(tmp_path / "absent.json")
    (tmp_path / "torn.json").write_text('{"study": "demo"')
    with pytest.raises(SettingsError, match="is not JSON"):
        from_file(tmp_path / "torn.json")
    sweep = from_file(project / "examples" / "sweep.json")
    assert sweep.count == 12 == len(sweep.variations())
