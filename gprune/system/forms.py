"""Forms: dataclasses whose fields pydantic reads in strict mode, and what it refuses in our own sentences.

A form is told by its annotations alone: a type, and rules beside it in the words that follow `must be`.

    class Corner(Form): ...       frozen dataclass; `Corner.of(values)` reads an object of JSON
    class Corner(Checked): ...    the same, and checked as well where Python makes one

Limits on size and depth, and numbers that are none, are refused before, by `safe_parsing`. Pydantic is loaded
when the first value is read: whoever only asks for the fields does not wait for it.
"""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, TypeVar

from gprune.system.errors import GpruneError, SettingsError
from gprune.system.nearest import closest, not_one_of
from gprune.system.safe_parsing import quoted

if TYPE_CHECKING:
    from pydantic import ValidationError

T = TypeVar("T")
MOST_TOLD = 8
"""faults of a file that are told one by one"""
_LONGEST = 200
_WORDS = {
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "an object with named fields",
    "finite_number": "a finite number",
}


@dataclass(frozen=True, slots=True)
class Before:
    """Makes of a value what the type beside it takes, as a tuple of a list."""

    convert: Callable[[Any], Any]
    """from the value as it was read"""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Runs before the type is checked."""
        from pydantic_core import core_schema

        return core_schema.no_info_before_validator_function(self.convert, handler(source))


class After(Before):
    """Makes something of a value whose type and rules are checked; may raise SettingsError."""

    __slots__ = ()

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Runs after whatever stands before it in the annotation."""
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(self.convert, handler(source))


@dataclass(frozen=True, slots=True)
class Rule:
    """What a value of the right type must be besides."""

    words: str
    """as they follow `must be`"""
    holds: Callable[[Any], bool]
    """whether a value is so"""
    first: bool = False
    """whether this is asked before the type is"""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Runs where the type has been checked, or before."""
        from pydantic_core import PydanticCustomError, core_schema

        def check(value: Any) -> Any:
            if not self.holds(value):
                raise PydanticCustomError("rule", "{words}", {"words": self.words})
            return value

        if self.first:
            return core_schema.no_info_before_validator_function(check, handler(source))
        return core_schema.no_info_after_validator_function(check, handler(source))


class _AsGiven:
    """Checks a value against the type beside it, and leaves it in its own."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        def check(value: Any, read: Callable[[Any], Any]) -> Any:
            read(value)
            return value

        return core_schema.no_info_wrap_validator_function(check, handler(source))


class _Pairs:
    """Reads an object of JSON where the type beside it holds pairs of name and value."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        (_, value), *_ = (typing.get_args(pair) for pair in typing.get_args(source))
        named = handler.generate_schema(types.GenericAlias(dict, (str, value)))
        return core_schema.no_info_after_validator_function(lambda found: tuple(found.items()), named)


def at_least(least: float, unit: str = "") -> Rule:
    """The rule of a number that is not too small, of a unit."""
    return Rule(f"at least {least} {unit}".rstrip(), lambda value: value >= least)


def at_most(most: float, unit: str = "") -> Rule:
    """The rule of a number that is not too large, of a unit."""
    return Rule(f"at most {most} {unit}".rstrip(), lambda value: value <= most)


def shorter(most: int, what: str = "text", unit: str = "characters") -> Rule:
    """The rule of a text or a list that is not too long."""
    return Rule(f"{what} of at most {most} {unit}", lambda value: len(value) <= most)


def between(least: float, most: float) -> Rule:
    """The rule of a number of a range, ends included."""
    return Rule(f"{least} to {most}", lambda value: least <= value <= most)


def one_of(choices: tuple[str, ...]) -> Rule:
    """The rule of a word that is one of a few."""
    return Rule(f"one of {', '.join(choices)}", lambda value: value in choices)


NOT_NEGATIVE = Rule("0 or more", lambda value: value >= 0)
POSITIVE = Rule("positive", lambda value: value > 0)
SHARE = Rule("in [0, 1]", lambda value: 0 <= value <= 1)
Number = Annotated[float, _AsGiven()]
"""a number that is kept as it was written, whole or not"""
Listed = Annotated[tuple[T, ...], Before(lambda value: tuple(value) if isinstance(value, list) else value)]
"""a list of JSON, kept as a tuple"""
Items = Annotated[tuple[tuple[str, T], ...], _Pairs()]
"""an object of JSON, kept as pairs of name and value"""


class Form:
    """Base of a frozen dataclass that is read from plain values."""

    __slots__ = ()
    WHAT: ClassVar[str] = "the file"
    """what a sentence calls it"""
    WHERE: ClassVar[str] = ""
    """what stands before the names of its fields"""
    LOOSE: ClassVar[bool] = False
    """whether fields that it does not know are passed over"""

    @classmethod
    def of(cls, values: Any, kind: type[GpruneError] = SettingsError) -> Self:
        """What an object of JSON holds.

        Raises an error of the class `kind` where a field is unknown, missing, of another type or out of
        range. All that is wrong is told at once, each with its place and value.
        """
        try:
            return cls(**read(cls, values, kind))
        except SettingsError as error:
            raise _refusal(kind, str(error), error.faults) from error

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """For a form within another: an object of JSON, or what Python has made of one."""
        from pydantic_core import core_schema

        def made(value: Any, read: Callable[[Any], dict[str, Any]]) -> Any:
            return value if isinstance(value, cls) else cls(**read(value))

        return core_schema.no_info_wrap_validator_function(made, handler.generate_schema(_type_of(cls)))


class Checked(Form):
    """A form that is checked wherever one is made."""

    __slots__ = ()
    TAKES: ClassVar[bool] = False
    """whether it keeps what Python gives in the types of its fields; else as given, since keys rest on it"""

    def __post_init__(self) -> None:
        """Checks every field; SettingsError where one is of another type or out of range."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        taken = read(type(self), given, where=self.WHERE)
        for name in taken if self.TAKES else ():
            object.__setattr__(self, name, taken[name])
        self.require_together()

    def require_together(self) -> None:
        """Checks the fields against each other, once each is sound."""


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """The type of an object of JSON of which some fields have a known form."""

    hints: Mapping[str, Any]
    """their types and rules"""
    required: Container[str] = ()
    """those that may not be absent"""
    others: Any = Any
    """the type of those that are not named: Any passes them over, None refuses them"""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Asked after what stands before it in the annotation."""
        from pydantic_core import core_schema

        named = {
            name: core_schema.typed_dict_field(handler.generate_schema(hint), required=name in self.required)
            for name, hint in self.hints.items()
        }
        strict = core_schema.CoreConfig(strict=True, allow_inf_nan=False)
        extra: Any = {None: "forbid", Any: "ignore"}.get(self.others, "allow")
        rest = handler.generate_schema(self.others) if extra == "allow" else None
        table = core_schema.typed_dict_schema(named, extra_behavior=extra, extras_schema=rest, config=strict)
        return core_schema.chain_schema([handler(source), table])


def _type_of(form: type[Form]) -> Any:
    # rules name what stands in the module of their form
    names = globals() | vars(sys.modules[form.__module__])
    hints = typing.get_type_hints(form, names, include_extras=True)
    own: tuple[Any, ...] = fields(form)  # type: ignore[arg-type]
    required = {one.name for one in own if one.default is MISSING and one.default_factory is MISSING}
    return Annotated[Any, Table({one.name: hints[one.name] for one in own}, required, Any if form.LOOSE else None)]


@cache
def _reader(form: Any) -> Any:
    from pydantic import ConfigDict, TypeAdapter

    config = ConfigDict(strict=True, allow_inf_nan=False)
    return TypeAdapter(_type_of(form) if _is_form(form) else form, config=config)


def _is_form(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Form)


def read(form: Any, values: Any, kind: type[GpruneError] = SettingsError, where: str = "") -> Any:
    """The fields of a form that an object of JSON has, by name, or a value of another type with its rules.

    `where` stands before the names of fields. Raises an error of the class `kind`, with every fault.
    """
    reader = _reader(form)
    from pydantic import ValidationError

    try:
        return reader.validate_python(values)
    except ValidationError as error:
        found = _told(error, form, where)
        more = [f"{len(found) - MOST_TOLD} more"] if len(found) > MOST_TOLD else []
        raise _refusal(kind, "; also: ".join(found[:MOST_TOLD] + more), tuple(found)) from error


def _refusal(kind: type[GpruneError], words: str, faults: tuple[str, ...]) -> GpruneError:
    refused = kind(words)
    refused.faults = faults
    return refused


def _told(error: ValidationError, form: Any, where: str) -> list[str]:
    """What pydantic refuses, in our words: the parameter, the value and what it must be, fault by fault."""
    what, names = (form.WHAT, names_of(form)) if _is_form(form) else ("the file", ())
    listed = error.errors(include_url=False)
    lacking = [_place(one["loc"], where) for one in listed if one["type"] == "missing"]
    found = [f"{what} lacks {', '.join(lacking)}"] if lacking else []
    return found + [_fault(one, what, where, names) for one in listed if one["type"] != "missing"]


def _fault(one: Any, what: str, where: str, names: tuple[str, ...]) -> str:
    kind, place, context = one["type"], _place(one["loc"], where), one.get("ctx", {})
    if kind == "extra_forbidden":
        section = place.removeprefix(where).rpartition(".")[0]
        known = [where + name for name in names if name.rpartition(".")[0] == section]
        return f"{what} has no field {quoted(place)}" + (f"; {suggestion(place, known)}" if known else "")
    if kind == "value_error":
        # a form names its own fields, but not which of several it is
        return f"{place}: {context['error']}" if "[" in place else str(context["error"])
    rule = context.get("words") or _WORDS.get(kind)
    if kind == "literal_error":
        words = context["expected"].replace(" or ", ", ").replace("'", "")
        if isinstance(one["input"], str):
            return not_one_of(place or what, one["input"], words.split(", "))
        rule = f"one of {words}"
    return f"{place or what} must be {rule or one['msg']} (got {quoted(one['input'])})"


def _place(parts: Iterable[str | int], where: str) -> str:
    # the name of a field may be anything where a table is keyed by names
    named = (f"[{part}]" if isinstance(part, int) else f".{part[:_LONGEST]}" for part in parts)
    return where + "".join(named).removeprefix(".")


@cache
def names_of(form: Any) -> tuple[str, ...]:
    """Every field of a form; those of a form within it as dotted names."""
    hints, names = typing.get_type_hints(form), list[str]()
    for field in fields(form):
        hint = hints[field.name]
        inner = [f"{field.name}.{name}" for name in names_of(hint)] if _is_form(hint) else [field.name]
        names += inner
    return tuple(names)


def suggestion(name: str, known: Iterable[str]) -> str:
    """What was probably meant, or what there is."""
    near = closest(name, names := list(known))
    return f"did you mean {near!r}?" if near else f"known fields: {', '.join(names)}"
