"""Forms: pydantic's checks, all faults at once, and one sentence for each field with its value."""

from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal

import pytest

from gprune.system import forms
from gprune.system.errors import SettingsError


@forms.validate_form
@dataclass(frozen=True, slots=True)
class Corner(forms.Form):
    WHERE: ClassVar = "corner."
    width: Annotated[int, forms.at_least(1)] = 4
    style: Literal["round", "square"] = "round"

    def __post_init__(self):
        if self.width == 13:
            raise SettingsError("corner.width 13 brings bad luck: choose another")


@forms.validate_form
@dataclass(frozen=True, slots=True)
class Box(forms.Form):
    WHAT: ClassVar = "a box"
    name: str
    corner: Corner = field(default_factory=Corner)
    sides: forms.Listed[float] = ()


def test_a_form_is_read_from_json_with_the_types_of_its_fields():
    box = Box.parse({"name": "a", "corner": {"width": 2}, "sides": [1, 2.5]})
    assert box == Box("a", Corner(2), (1.0, 2.5)) and isinstance(box.sides[0], float)
    assert hash(box) == hash(replace(box)) and replace(box, name="b").corner is box.corner


def test_all_faults_are_told_at_once():
    values = {"corner": {"width": 0, "style": "rund"}, "sides": [1, "x"], "nmae": "a"}
    with pytest.raises(SettingsError) as caught:
        Box.parse(values)
    assert caught.value.faults == (
        "a box lacks name",
        "corner.width must be at least 1 (got 0)",
        "corner.style must be one of round, square (got 'rund'); did you mean 'round'?",
        "sides[1] must be a number (got 'x')",
        "a box has no field 'nmae'; did you mean 'name'?",
    )
    assert str(caught.value) == "; also: ".join(caught.value.faults)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"width": 0}, "corner.width must be at least 1 (got 0)"),
        ({"width": True}, "corner.width must be a whole number (got True)"),
        ({"width": 13}, "corner.width 13 brings bad luck: choose another"),
    ],
)
def test_python_and_json_are_refused_in_the_same_words(values, words):
    with pytest.raises(SettingsError) as caught:
        Corner(**values)
    with pytest.raises(SettingsError) as read:
        Box.parse({"name": "a", "corner": values})
    assert str(caught.value) == str(read.value) == words


def test_python_mistakes_stay_type_errors():
    with pytest.raises(TypeError):
        Corner(height=1)
