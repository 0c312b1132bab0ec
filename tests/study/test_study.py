"""Studies: the paper's values as defaults, JSON round trip, and one clear sentence for every bad field."""

import argparse
import json
import typing
from dataclasses import replace

import pytest

from gprune.cli import study
from gprune.study import Study, field_names, from_dict, from_file, run_name, short
from gprune.study.demo import demo_study
from gprune.study.fields import OPTIONS, documentation, hint
from gprune.system.errors import SettingsError

MINIMAL = {"model": "m", "primary": "a", "auxiliary": "b"}


def test_defaults_are_the_papers_hyperparameters():
    study = Study(model="m", primary="a", auxiliary="b")
    assert (study.calibration.samples, study.calibration.length) == (2048, 128)
    assert study.modularization.candidates == (16, 24, 32, 40, 48)
    assert (study.reliability.drift_quantile, study.reliability.score_quantile) == (0.90, 0.90)
    assert (study.modularization.split_fraction, study.seed) == (0.2, 0)


@pytest.mark.parametrize("study", [demo_study(), from_dict(MINIMAL)])
def test_json_round_trip_keeps_every_field(study):
    assert from_dict(json.loads(study.to_json())) == study


def test_every_field_is_written_and_can_be_set_by_its_dotted_name():
    study = from_dict(MINIMAL)
    flat = set()
    for name, value in study.to_dict().items():
        flat |= {f"{name}.{inner}" for inner in value} if isinstance(value, dict) else {name}
    assert flat == set(field_names())
    changed = study.with_settings({"reliability.score_quantile": 0.85, "retention": 0.7})
    assert (changed.reliability.score_quantile, changed.retention) == (0.85, 0.7)
    assert study.retention == 0.5
    with pytest.raises(SettingsError, match="did you mean 'sparsity.epochs'"):
        study.with_settings({"sparsity.epoch": 3})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"retention": 0}, r"retention must be more than 0 and less than 1.*got 0"),
        ({"retention": 1.2}, r"retention must be more than 0 and less than 1.*got 1\.2"),
        ({"retention": "half"}, r"retention must be a number \(got 'half'\)"),
        ({"auxiliary": "a"}, r"primary and auxiliary are the same text \('a'\)"),
        ({"substitute": "b"}, r"substitute is already the auxiliary text \('b'\)"),
        ({"metric": "magnitude"}, r"metric must be one of flap, wanda_sp, twflap \(got 'magnitude'\)"),
        ({"retentoin": 0.5}, r"no field 'retentoin'; did you mean 'retention'\?"),
        ({"reliability": {"drift_quantil": 0.9}}, r"did you mean 'reliability.drift_quantile'"),
        ({"reliability": {"drift_quantile": 1.5}}, r"drift_quantile must be in \[0, 1\] \(got 1\.5\)"),
        ({"calibration": {"samples": 2.5}}, r"calibration.samples must be a whole number \(got 2\.5\)"),
        ({"calibration": {"samples": 4}}, r"at least calibration.shards \(8\)"),
        ({"calibration": {"shards": 3}}, r"calibration.shards must be an even number"),
        ({"calibration": 5}, r"calibration must be an object"),
        ({"sparsity": {"batch": 6}}, r"sparsity.batch must be a multiple of 4"),
        ({"evaluation": {"texts": ["x", "x"]}}, r"evaluation.texts must be texts that differ"),
        ({"evaluation": {"texts": "x"}}, r"evaluation.texts must be a list"),
        ({"trust_remote_code": "yes"}, r"trust_remote_code must be true or false"),
        ({"model": " "}, r"model must be a name or a path"),
        ({"seed": True}, r"seed must be a whole number"),
    ],
)
def test_bad_fields_are_named_with_value_and_remedy(change, message):
    with pytest.raises(SettingsError, match=message):
        from_dict({**MINIMAL, **change})


@pytest.mark.parametrize(
    ("content", "message"),
    [("{", "is not JSON"), ("[]", "must be an object"), ('{"modle": 1}', "did you mean 'model'")],
)
def test_study_file_errors_name_the_file(tmp_path, content, message):
    path = tmp_path / "study.json"
    path.write_text(content)
    with pytest.raises(SettingsError, match=message) as caught:
        from_file(path)
    assert "study.json" in str(caught.value)


def test_a_short_name_has_no_folders_and_keeps_its_options():
    names = ("wikitext2", "/models/llama-7b/", "owner/name", "/a/c4.jsonl#fields=x/y&documents=0:9")
    assert [*map(short, names)] == ["wikitext2", "llama-7b", "name", "c4.jsonl#fields=x/y&documents=0:9"]


CHOICES = [name for name in field_names() if typing.get_origin(hint(name)) is typing.Literal]
ONE_STUDY = from_dict(MINIMAL)


def options(command):
    commands = argparse.ArgumentParser().add_subparsers()
    command.add(commands)
    (parser,) = commands.choices.values()
    actions = [action for action in parser._actions[1:] if action.option_strings]
    return {action.option_strings[-1].removeprefix("--"): action for action in actions}


def test_every_field_has_its_documentation():
    documented = documentation()
    assert all(documented.get(name) for name in field_names())
    assert documented["retention"].startswith("fraction R*")
    assert documented["sparsity"] == "MSL" and documented["sparsity.batch"].startswith("sequences of one step")
    assert documented["calibration.batch"] != documented["evaluation.batch"]


@pytest.mark.parametrize("name", CHOICES)
def test_a_choice_takes_its_words_and_no_other(name):
    words = typing.get_args(hint(name))
    for word in words:
        base = replace(ONE_STUDY, methods=("experts_reap",)) if word == "router" else ONE_STUDY
        value = base.with_settings({name: word})
        for part in name.split("."):
            value = getattr(value, part)
        assert value == word
    with pytest.raises(SettingsError) as caught:
        ONE_STUDY.with_settings({name: "zzz"})
    assert str(caught.value) == f"{name} must be one of {', '.join(words)} (got 'zzz')"


def test_every_option_of_study_says_what_its_field_means():
    created = options(study)
    assert set(created) == {*OPTIONS, "set", "with-controls", "profile"} and set(OPTIONS.values()) <= set(field_names())
    for option, field in OPTIONS.items():
        assert created[option].help.replace("%%", "%").startswith(documentation()[field])
    assert (created["seed"].type, created["retention"].type, created["windows"].type) == (int, float, int)
    assert (created["tasks"].nargs, created["name"].type) == ("+", None)
    assert created["dtype"].metavar == "{auto,float32,bfloat16,float16}"
    assert created["model"].required and "fang_pooled" in created["methods"].help


def test_settings_that_came_later_change_no_name_of_a_run():
    # the folder of everybody's first run: another name, and it would be computed again
    assert run_name(demo_study()) == "bundled-demo-910e1da2ca"


def test_a_text_may_be_given_a_name_which_changes_nothing_but_what_it_is_called(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plain = Study(model="demo", primary="/data/a/valid.txt", auxiliary="/data/b/valid.txt#split=test")
    with_names = Study(model="demo", primary="wikitext=/data/a/valid.txt", auxiliary="ptb=/data/b/valid.txt#split=test")
    assert (with_names.primary, with_names.auxiliary) == (plain.primary, plain.auxiliary)
    assert with_names.digest == plain.digest and from_dict(with_names.to_dict()) == with_names
    assert with_names.text_name(with_names.primary) == "wikitext" and plain.text_name(plain.primary) == "valid.txt"
    # a name goes with its text, and a text may be evaluated under the name that it has
    texts = ["held out=/data/d.txt", "/data/d.txt"]
    other = with_names.with_settings({"primary": "/data/c.txt", "evaluation.texts": texts})
    assert set(other.text_names) == {"ptb=/data/b/valid.txt#split=test", "held out=/data/d.txt"}
    assert other.evaluation.texts == ("/data/d.txt",)
    with pytest.raises(SettingsError, match=r"text_names must be names of one text each \(got 'ptb'\)"):
        with_names.with_settings({"primary": "ptb=/data/a/valid.txt"})
    with pytest.raises(SettingsError, match=r"text_names must be entries like wikitext=/data/wiki.txt \(got 'ptb'\)"):
        with_names.with_settings({"text_names": ["ptb"]})
    # options and files that hold an = are no names
    (tmp_path / "a=b.txt").write_text("text")
    for text in ("self:#temperature=0.8", "hub:a/b#config=en", "a=b.txt", "folder/a=b"):
        assert Study(model="demo", primary=text, auxiliary="ptb").text_names == ()
