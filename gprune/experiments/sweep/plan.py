"""Answers: which studies does a sweep make, and what is each called?"""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

from gprune.pipeline.stages import UNTIL
from gprune.study import Study, short, study
from gprune.study.demo import DEMOS
from gprune.study.settings import read, require
from gprune.system import limits, safe_parsing
from gprune.system.errors import SettingsError
from gprune.system.forms import Form, Listed, Rule, one_of

NOT_VARIED = ("name", "group")
"""fields that tell no study from another: a sweep names its studies itself"""


_TITLE = Rule(
    f"text in one line, of at most {limits.LONGEST_NAME} characters",
    lambda title: title.isprintable() and len(title) <= limits.LONGEST_NAME and bool(title.strip()),
)


@dataclass(frozen=True, slots=True)
class Variation:
    """One study of a sweep."""

    settings: tuple[tuple[str, Any], ...]
    """dotted fields that the sweep varies, with their values here"""
    words: str
    """the same, for people"""
    study: Study
    """what is run, named after the sweep and these words"""


@dataclass(frozen=True, slots=True)
class Sweep(Form):
    """A study, and the values that some of its fields take."""

    WHAT: ClassVar = "a sweep"
    title: Annotated[str, _TITLE]
    """what it is called; the group of its studies, and the beginning of their names"""
    study: Study
    """what all its studies differ from"""
    space: dict[str, Listed[Any]] = field(default_factory=dict)
    """dotted fields of the study, and the values that each takes, every one with every other"""
    cases: Listed[dict[str, Any]] = ()
    """sets of fields that are changed together, as two texts; each with every point of the space"""
    until: Annotated[str, one_of(UNTIL)] = "perplexity"
    """how far the studies go, one of gprune.pipeline.stages.UNTIL"""

    def __post_init__(self) -> None:
        """Checks the names, and how many studies there are; their values are checked when they are made.

        Raises SettingsError where nothing or too much is varied, or a field twice.
        """
        require(bool(self.space or self.cases), "space", {}, "given at least one field, or cases beside it")
        for name, values in self.space.items():
            require(bool(values), f"space[{name}]", list(values), "a list of at least one value")
        fields = {*self.space, *(name for case in self.cases for name in case)}
        for name in fields:
            within = next((other for other in fields if name.startswith(f"{other}.")), "")
            require(not within, "space", name, f"varied alone, without {within!r}, which holds it")
        varied = Counter(list(self.space))
        varied.update({name for case in self.cases for name in case})
        for name, times in varied.items():
            require(times == 1, "space", name, "varied in the space or in the cases, not in both")
            require(name not in NOT_VARIED, "space", name, "free to vary: studies are named by the sweep")
        most = limits.MOST_STUDIES
        if self.count > most:
            raise SettingsError(
                f"the sweep makes {self.count:,} studies, of which at most {most:,} are taken: shorten a list"
            )

    @property
    def count(self) -> int:
        """How many studies it makes."""
        return math.prod(len(values) for values in self.space.values()) * max(1, len(self.cases))

    def variations(self) -> list[Variation]:
        """Its studies, the last field varied first.

        Raises SettingsError where a field is unknown, a value is not valid, or two studies are the same.
        """
        axes = [[(name, value) for value in values] for name, values in self.space.items()]
        points = [(*case.items(), *point) for case in self.cases or ({},) for point in itertools.product(*axes)]
        told = [words(point) for point in points]
        times = Counter(told)
        # two files of one name in different folders: whoever compares them is to know which is which
        told = [
            each if times[each] == 1 else words(point, whole=True) for each, point in zip(told, points, strict=True)
        ]
        made = [self._variation(*one) for one in zip(itertools.count(1), points, told, strict=False)]
        require_distinct(made)
        return made

    def _variation(self, number: int, settings: tuple[tuple[str, Any], ...], told: str) -> Variation:
        try:
            made = self.study.with_settings(dict(settings))
        except SettingsError as error:
            raise SettingsError(f"study {number} of {self.count} ({told}): {error}") from error
        # a name is for people: what does not fit is in the settings
        name = safe_parsing.sentence(f"{self.title}: {told}", limits.LONGEST_NAME)
        return Variation(settings, told, replace(made, name=name, group=self.title))


def require_distinct(made: Sequence[Variation]) -> None:
    """Raises SettingsError where two studies are the same one."""
    seen: dict[str, Variation] = {}
    for one in made:
        other = seen.setdefault(one.study.digest, one)
        if other is not one:
            raise SettingsError(f"{one.words!r} and {other.words!r} are the same study: name each value once")


def words(settings: tuple[tuple[str, Any], ...], *, whole: bool = False) -> str:
    """Settings, dotted fields with their values, for people: `drift quantile 0.85, seed 1`.

    If `whole`, texts keep their folders, and numbers all their digits.
    """
    ends = Counter(name.rpartition(".")[2] for name, _ in settings)

    def called(name: str) -> str:
        end = name.rpartition(".")[2]
        return (end if ends[end] == 1 else name).replace("_", " ")

    return safe_parsing.sentence(", ".join(f"{called(name)} {_word(value, whole)}" for name, value in settings))


def _word(value: Any, whole: bool) -> str:
    if isinstance(value, list | tuple):
        return "+".join(_word(one, whole) for one in value)
    if isinstance(value, float) and not whole:
        return f"{value:g}"
    return short(value) if isinstance(value, str) and not whole else str(value)


def from_file(path: Path) -> Sweep:
    """Reads a sweep; a study that the file names by a path lies beside it.

    Raises SettingsError where the file is missing, or does not hold a valid sweep.
    """
    return read(path, "sweep file", lambda values: _sweep(values, path))


def _sweep(values: Any, path: Path) -> Sweep:
    if isinstance(values, dict):
        values = {"title": path.stem} | values
        if isinstance(values.get("study"), str):
            values |= {"study": _study(values["study"], path.parent)}
    made = Sweep.parse(values)
    made.variations()
    return made


def _study(value: str, folder: Path) -> Study:
    """The study that a sweep names."""
    if value in DEMOS:
        return DEMOS[value]()
    with safe_parsing.refused_as(SettingsError):
        return study.from_file(folder / safe_parsing.path(value, "the study file"))
