"""Dataclasses that pydantic validates in strict mode, with one sentence for each invalid field.

Annotations declare the type of a field and its rules:

    @validate_form
    @dataclass(frozen=True, slots=True)
    class Corner(Form):
        width: Annotated[int, at_least(1)] = 4

    Corner.parse({"width": 0})    # SettingsError: width must be at least 1 (got 0)
    Corner(width=0)               # the same, because of @validate_form

`safe_parsing` limits size, depth and numbers beforehand. Pydantic is only imported when the first value is validated,
so that commands that only list fields start faster.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, TypeVar, cast

from gprune.system.errors import GpruneError, SettingsError
from gprune.system.safe_parsing import closest, not_one_of, quote

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")
MOST_LENGTH = 2**20
"""maximum number of tokens of a sequence or window; the longest context of any model"""
MOST_STUDIES = 1000
"""maximum number of studies of a sweep, which is also Slurm's usual limit for one array"""
LONGEST_NAME = 200
"""maximum number of characters in the name of a study"""
MOST_FAULTS = 8
"""maximum number of faults in one error message"""
_TYPES = {
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "an object with named fields",
    "dataclass_type": "an object with named fields",
    "finite_number": "a finite number",
}


@dataclass(frozen=True, slots=True)
class Before:
    """Convert a value before its type is checked."""

    convert: Callable[[Any], Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Build pydantic's schema."""
        from pydantic_core import core_schema

        return core_schema.no_info_before_validator_function(self.convert, handler(source))


@dataclass(frozen=True, slots=True)
class Rule:
    """A requirement on a value of the right type."""

    words: str
    """what the value must be, as the words after `must be` in an error"""
    holds: Callable[[Any], bool]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Build pydantic's schema."""
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(self._require, handler(source))

    def _require(self, value: Any) -> Any:
        if not self.holds(value):
            raise ValueError(self.words)
        return value


class _AnySequence:
    """Accepts a list for a tuple in strict mode."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return handler(source) | {"strict": False}


def at_least(lower: float, unit: str = "") -> Rule:
    """Require a number of at least `lower`."""
    return Rule(f"at least {lower} {unit}".rstrip(), lambda value: value >= lower)


def at_most(upper: float, unit: str = "") -> Rule:
    """Require a number of at most `upper`."""
    return Rule(f"at most {upper} {unit}".rstrip(), lambda value: value <= upper)


def max_length(upper: int, noun: str = "text", unit: str = "characters") -> Rule:
    """Require a text or a list of at most `upper` characters or entries; `noun` and `unit` are words of the error."""
    return Rule(f"{noun} of at most {upper} {unit}", lambda value: len(value) <= upper)


def between(lower: float, upper: float) -> Rule:
    """Require a number in [lower, upper]."""
    return Rule(f"{lower} to {upper}", lambda value: lower <= value <= upper)


def one_of(choices: tuple[str, ...]) -> Rule:
    """Require one of some words."""
    return Rule(f"one of {', '.join(choices)}", lambda value: value in choices)


NOT_NEGATIVE = Rule("0 or more", lambda value: value >= 0)
POSITIVE = Rule("positive", lambda value: value > 0)
SHARE = Rule("in [0, 1]", lambda value: 0 <= value <= 1)
Listed = Annotated[tuple[T, ...], _AnySequence()]
"""a list of JSON, as a tuple"""


class Form:
    """Base of a frozen dataclass that is read from a JSON object."""

    __slots__ = ()
    __pydantic_config__: ClassVar = {"strict": True, "extra": "forbid", "allow_inf_nan": False}
    WHAT: ClassVar[str] = "the file"
    """name of the form in an error message"""
    WHERE: ClassVar[str] = ""
    """prefix of field names in an error message"""

    @classmethod
    def parse(cls, values: Any, error: type[GpruneError] = SettingsError) -> Self:
        """Return a form built from a JSON object.

        Raises `error` with a sentence for every field that is unknown, missing, of another type or out of range.
        """
        from pydantic_core import ValidationError

        form: Any = cls
        try:
            return cast("Self", _adapter(form).validate_python(values))
        except ValidationError as invalid:
            raise _build_error(invalid, form, error, "") from invalid

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """Accept a JSON object for the dataclass in strict mode."""
        schema = handler(source)
        handler.resolve_ref_schema(schema)["strict"] = False
        return schema


class LooseForm(Form):
    """A form that ignores unknown fields."""

    __slots__ = ()
    __pydantic_config__: ClassVar = Form.__pydantic_config__ | {"extra": "ignore"}


def validate_form(form: type[T]) -> type[T]:
    """Make the constructor of a form validate its fields; it raises SettingsError with a sentence per invalid field."""
    kind: Any = form
    plain = kind.__init__
    signature = inspect.signature(plain)

    @functools.wraps(plain)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807  (it is the constructor)
        from pydantic_core import ArgsKwargs, ValidationError

        arguments = signature.bind(self, *args, **kwargs).arguments
        del arguments["self"]
        try:
            _adapter(kind).validator.validate_python(ArgsKwargs((), arguments), self_instance=self)
        except ValidationError as error:
            raise _build_error(error, kind, SettingsError, kind.WHERE) from error

    kind.__init__ = __init__
    return form


@functools.cache
def _adapter(form: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(form)


def _build_error(invalid: ValidationError, form: Any, error: type[GpruneError], where: str) -> GpruneError:
    """Return an error of class `error` with a sentence per fault; `where` is the prefix of field names."""
    subject, names = form.WHAT, names_of(form)
    errors: Any = invalid.errors(include_url=False)
    missing = [_join_field_path(entry["loc"], where) for entry in errors if entry["type"] == "missing"]
    faults = [f"{subject} lacks {', '.join(missing)}"] if missing else []
    faults += [_describe_fault(entry, subject, where, names) for entry in errors if entry["type"] != "missing"]
    omitted = [f"{len(faults) - MOST_FAULTS} more"] if len(faults) > MOST_FAULTS else []
    combined = error("; also: ".join(faults[:MOST_FAULTS] + omitted))
    combined.faults = tuple(faults)
    return combined


def _describe_fault(entry: Any, subject: str, where: str, names: tuple[str, ...]) -> str:
    """Return the sentence for one of pydantic's errors; `names` are the fields of the form."""
    kind, field, context = entry["type"], _join_field_path(entry["loc"], where), entry.get("ctx", {})
    if kind == "unexpected_keyword_argument":
        section = field.removeprefix(where).rpartition(".")[0]
        siblings = [where + name for name in names if name.rpartition(".")[0] == section]
        return f"{subject} has no field {quote(field)}" + (f"; {suggestion(field, siblings)}" if siblings else "")
    rule = _TYPES.get(kind, entry["msg"])
    if kind == "value_error":
        if isinstance(context["error"], GpruneError):
            # such a message names the field within its form, but not the position of the form in a list
            return f"{field}: {context['error']}" if "[" in field else str(context["error"])
        rule = str(context["error"])
    if kind == "literal_error":
        words = context["expected"].replace(" or ", ", ").replace("'", "")
        if isinstance(entry["input"], str):
            return not_one_of(field or subject, entry["input"], words.split(", "))
        rule = f"one of {words}"
    return f"{field or subject} must be {rule} (got {quote(entry['input'])})"


def _join_field_path(parts: Iterable[str | int], where: str) -> str:
    """Return a path of names and list positions as text, such as `where.runs[2].name`."""
    # keys of a mapping may have any length
    names = (f"[{part}]" if isinstance(part, int) else f".{part[:LONGEST_NAME]}" for part in parts)
    return where + "".join(names).removeprefix(".")


@functools.cache
def names_of(form: Any) -> tuple[str, ...]:
    """Return the field names of a form; fields of nested forms have dotted names."""
    hints, names = typing.get_type_hints(form), list[str]()
    for field in fields(form):
        hint = hints[field.name]
        is_form = isinstance(hint, type) and issubclass(hint, Form)
        names += [f"{field.name}.{name}" for name in names_of(hint)] if is_form else [field.name]
    return tuple(names)


def suggestion(name: str, known_names: Iterable[str]) -> str:
    """Return a suggestion of the nearest known field, or the list of all fields if none is near."""
    near = closest(name, names := list(known_names))
    return f"did you mean {near!r}?" if near else f"known fields: {', '.join(names)}"
