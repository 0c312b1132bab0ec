"""What a study's fields mean and hold is read from the settings, for the command line and the form alike."""

import argparse
import typing

import pytest

from gprune.commands import reproduce, study
from gprune.errors import SettingsError
from gprune.study import field_names, from_dict
from gprune.study_fields import OPTIONS, documentation, hint

CHOICES = [name for name in field_names() if typing.get_origin(hint(name)) is typing.Literal]
ONE_STUDY = from_dict({"model": "m", "primary": "a", "auxiliary": "b"})


def options(command) -> dict[str, argparse.Action]:
    commands = argparse.ArgumentParser().add_subparsers()
    command.add(commands)
    (parser,) = commands.choices.values()
    return {
        action.option_strings[-1].removeprefix("--"): action
        for action in parser._actions[1:]
        if action.option_strings
    }


def test_every_field_has_its_documentation():
    documented = documentation()
    assert all(documented.get(name) for name in field_names())
    assert documented["retention"].startswith("fraction R*")
    assert documented["sparsity"] == "MSL" and documented["sparsity.batch"].startswith(
        "sequences of one step"
    )
    assert documented["calibration.batch"] != documented["evaluation.batch"]


def test_every_field_has_its_type():
    assert (hint("seed"), hint("calibration.samples"), hint("retention")) == (int, int, float)
    assert hint("evaluation.windows") == (int | None)
    assert typing.get_args(hint("dtype")) == ("auto", "float32", "bfloat16", "float16")


def test_the_choices_are_found():
    assert {"dtype", "reliability.selection", "evaluation.speed", "baselines.fang_grouping"} < set(CHOICES)
    assert len(CHOICES) == 15


@pytest.mark.parametrize("name", CHOICES)
def test_a_choice_takes_its_words_and_no_other(name):
    words = typing.get_args(hint(name))
    for word in words:
        value = ONE_STUDY.with_settings({name: word})
        for part in name.split("."):
            value = getattr(value, part)
        assert value == word
    with pytest.raises(SettingsError) as caught:
        ONE_STUDY.with_settings({name: "else"})
    assert str(caught.value) == f"{name} must be one of {', '.join(words)} (got 'else')"


def test_every_option_of_study_says_what_its_field_means():
    made = options(study)
    assert set(made) == {*OPTIONS, "set", "with-controls", "profile", "dry-run"} and set(
        OPTIONS.values()
    ) <= set(field_names())
    for option, field in OPTIONS.items():
        assert made[option].help.replace("%%", "%").startswith(documentation()[field])
    assert (made["seed"].type, made["retention"].type, made["windows"].type) == (int, float, int)
    assert (made["tasks"].nargs, made["tasks"].metavar, made["name"].type) == ("+", "TASK", None)
    assert made["dtype"].metavar == "{auto,float32,bfloat16,float16}"
    assert made["model"].required and "fang_pooled" in made["methods"].help


def test_options_of_reproduce_say_the_same():
    made = options(reproduce)
    for option in ("primary", "evaluate", "samples", "epochs", "windows", "profile"):
        assert made[option].help == options(study)[option].help.split("; see `texts`")[0]
    assert made["model"].nargs == "+" and made["model"].help.startswith(options(study)["model"].help)
    assert made["speed"].choices == ["auto", "cpu", "gpu"]
    assert made["limit"].help.startswith(documentation()["evaluation.limit"])


def test_a_percent_sign_in_the_documentation_is_no_format():
    parser = argparse.ArgumentParser()
    study.add_field(parser, "split", "modularization.split_fraction")
    assert "20 %" in parser.format_help()
