"""What a study's fields mean and hold is read from the settings, for the command line and the form alike."""

import argparse
import typing

import pytest

from gprune.cli import study
from gprune.study import field_names, from_dict
from gprune.study.fields import OPTIONS, documentation, hint
from gprune.system.errors import SettingsError

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
