"""Answers: what is searched, in which steps, and which configurations are drawn?

Successive halving (Jamieson and Talwalkar 2016): many configurations are measured on little data, the better
ones on more, the best on most and under several seeds.
"""

import itertools
import math
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, ClassVar

from gprune.study import Study, field_names, short
from gprune.study.methods import require_known
from gprune.study.settings import Words, read, require
from gprune.system import limits, safe_parsing
from gprune.system.forms import Before, Form, Listed, Rule, between

FIXED = ("model", "primary", "auxiliary", "retention", "seed", "methods", "name", "group", "device", "dtype")
"""fields of a study that a search does not vary: they say what is pruned, or change no result"""

PARTS = {"modularization": "BCM", "reliability": "RASA", "sparsity": "MSL", "gates": "gates"}
"""sections of a study that are parts of the method, with their names in the paper"""


def _is_value(value: Any) -> bool:
    inner = value if isinstance(value, tuple) else (value,)
    return not any(isinstance(one, dict | list) for one in inner)


_Count = Annotated[int, between(0, limits.MOST_COUNT)]
_Value = Annotated[
    Any,
    Before(lambda value: tuple(value) if isinstance(value, list) else value),
    Rule("a number, a text, a switch or a list of these", _is_value),
]


@dataclass(frozen=True, slots=True)
class Configuration:
    """One point of the space."""

    number: int
    """0 is the study as it stands; the others as they were drawn"""
    settings: tuple[tuple[str, Any], ...] = ()
    """dotted fields of the study and their values, those alone that differ from the study's own"""


@dataclass(frozen=True, slots=True)
class Rung(Form):
    """One round: how many configurations it has, and on how much data each is measured."""

    WHAT: ClassVar = "a round"
    configurations: _Count
    """drawn ones that take part; the study as it stands is measured in every round besides"""
    settings: dict[str, Any] = field(default_factory=dict)
    """dotted fields of the study that say how much data: samples, windows"""
    seeds: Listed[_Count] = (0,)
    """seeds under which every configuration is run"""


@dataclass(frozen=True, slots=True)
class Plan(Form):
    """A search."""

    WHAT: ClassVar = "a search"
    title: Words
    """what it is called on pages and in the report"""
    study: Study
    """what every trial differs from"""
    space: dict[str, Listed[_Value]]
    """dotted fields of the study, and the values that each may take"""
    rungs: Listed[Rung]
    """the rounds, in order"""
    seed: _Count = 0
    """seed of the drawing"""
    method: Words = "gprune"
    """the method that is pruned by and measured"""

    def __post_init__(self) -> None:
        """Raises SettingsError where a value of the space is no valid setting, or none is to be chosen."""
        require_known("method", self.method)
        require(bool(self.rungs), "rungs", list(self.rungs), "at least one round")
        counts = [rung.configurations for rung in self.rungs]
        falling = all(more > fewer >= 1 for more, fewer in itertools.pairwise(counts)) and counts[-1] >= 1
        require(falling, "rungs", counts, "rounds of ever fewer configurations, at least 1")
        most = min(math.prod(len(values) for values in self.space.values()), limits.MOST_COUNT) - 1
        require(counts[0] <= most, "rungs", counts[0], f"at most {most} configurations, which the space has")
        require(bool(self.study.evaluation.texts), "study.evaluation.texts", (), "at least one text")
        known = field_names()
        for name, values in self.space.items():
            require(name in known, "space", name, "fields of a study")
            require(name not in FIXED and not name.startswith("evaluation."), "space", name, "free to vary")
            require(len(set(values)) == len(values) > 1, f"space[{name}]", values, "several different values")
            for value in values:
                self.study.with_settings({name: value})
        for rung in self.rungs:
            require(bool(rung.seeds), "rungs.seeds", rung.seeds, "at least one seed")
            self.study.with_settings(dict(rung.settings))

    def configurations(self) -> list[Configuration]:
        """The study as it stands, then the drawn ones, all different from each other and from it."""
        from sklearn.model_selection import ParameterSampler

        space = dict(self.space)
        # one more than wanted: the study's own values may be among those drawn
        drawn = ParameterSampler(space, self.rungs[0].configurations + 1, random_state=self.seed)
        own = {name: attrgetter(name)(self.study) for name in space}
        different = [point for point in drawn if point != own][: self.rungs[0].configurations]
        points = [
            tuple((name, value) for name, value in sorted(point.items()) if value != own[name]) for point in different
        ]
        return [Configuration(0), *itertools.starmap(Configuration, enumerate(points, start=1))]

    def trial(self, configuration: Configuration, rung: Rung, seed: int) -> Study:
        """The study that measures a configuration in a round."""
        made = self.study.with_settings(dict(rung.settings) | dict(configuration.settings))
        name = f"{self.title} {configuration.number}, {rung.configurations} left, seed {seed}"
        return replace(made, seed=seed, methods=(self.method,), name=name, group=self.title)


def from_file(path: Path, within: Path | None = None) -> Plan:
    """Reads a plan; `within` holds the model and the texts that the file names by relative paths.

    Raises SettingsError where the file is missing, or does not hold a valid plan.
    """
    return read(path, "search file", lambda values: Plan.parse(placed(values, within)))


def placed(values: Any, within: Path | None) -> Any:
    """The values of a search whose studies have their models and texts in a folder, where they are there."""
    if isinstance(values, dict) and isinstance(values.get("study"), dict):
        values = values | {"study": _placed(values["study"], within)}
    if isinstance(values, dict) and isinstance(values.get("studies"), list):
        made = [_placed(one, within) if isinstance(one, dict) else one for one in values["studies"]]
        values = values | {"studies": made}
    return values


def _placed(values: dict[str, Any], within: Path | None) -> dict[str, Any]:
    """A study's values with the model and the texts found in a folder, where they are there."""
    if within is None:
        return values

    def found_in(name: Any) -> Any:
        if not isinstance(name, str):
            return name
        place, sign, options = name.partition("#")
        found = safe_parsing.path(str(within / place), "a file that the search names")
        return f"{found.resolve()}{sign}{options}" if found.exists() else name

    made = {name: found_in(value) for name, value in values.items() if name in FIXED[:3]}
    evaluation = values.get("evaluation")
    if isinstance(evaluation, dict) and isinstance(evaluation.get("texts"), list):
        made["evaluation"] = evaluation | {"texts": [found_in(text) for text in evaluation["texts"]]}
    return values | made


def words(configuration: Configuration) -> str:
    """What a configuration changes, as `MSL epochs 3, BCM temperature 0.1`."""
    told = (f"{_field(name)} {_word(value)}" for name, value in configuration.settings)
    return ", ".join(told) or "the study's own settings"


def _field(name: str) -> str:
    section, _, field = name.rpartition(".")
    return f"{PARTS.get(section, section)} {field.replace('_', ' ')}".strip()


def _word(value: Any) -> str:
    return "/".join(map(str, value)) if isinstance(value, tuple) else short(str(value))
