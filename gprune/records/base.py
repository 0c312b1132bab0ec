"""Base class of records, which validates the shapes and values of arrays and makes the arrays read-only."""

import typing
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from gprune.system.errors import NumericsError

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Axes:
    """Declaration of an array field; dimensions with the same name have the same length in a record."""

    names: tuple[str | int, ...]
    """names of the dimensions in order; a number is a fixed length"""
    kinds: str
    """allowed values of numpy's `dtype.kind`"""
    finite: bool = False
    """whether NaN and infinity are rejected"""
    within: tuple[int, int] | None = None
    """allowed range of values, or None"""
    optional: bool = False
    """whether None is allowed"""


def real(*names: str | int, finite: bool = False, within: tuple[int, int] | None = None) -> Axes:
    """Declare an array of numbers with these dimensions."""
    return Axes(names, "fiu", finite, within)


def integers(*names: str | int, within: tuple[int, int] | None = None) -> Axes:
    """Declare an array of integers with these dimensions."""
    return Axes(names, "iu", within=within)


def booleans(*names: str | int, optional: bool = False) -> Axes:
    """Declare an array of booleans with these dimensions."""
    return Axes(names, "b", optional=optional)


MOST_UNITS = 2**24
"""maximum number of layers, neurons, heads, channels or modules of a model"""
MOST_SEQUENCES = 2**31 - 1
"""maximum number of sequences of a calibration set"""


class Record:
    """A frozen dataclass of plain values and read-only arrays that match the declarations of their fields."""

    __slots__ = ()

    def __post_init__(self) -> None:
        """Validate the fields and make the arrays read-only.

        Raises ValueError if a shape or value is not allowed, NumericsError if a required finite value is not finite.
        """
        require_axes(self)
        for name, axes in axes_of(type(self)).items():
            if axes.within is not None:
                require_range(self, *axes.within, name)
            if axes.finite:
                require_finite(self, name)
        self.check()
        freeze(self)

    def check(self) -> None:
        """Raise ValueError if fields are inconsistent with each other; subclasses override this."""


def freeze(record: object) -> None:
    """Replace every array field by a read-only copy."""
    for field in fields(record):  # type: ignore[arg-type]
        value = getattr(record, field.name)
        if isinstance(value, np.ndarray):
            # a read-only memory map cannot change, but the base of a read-only view can
            safe = isinstance(value, np.memmap) and not value.flags.writeable
            copy = value if safe else np.array(value, copy=True)
            copy.flags.writeable = False
            object.__setattr__(record, field.name, copy)


_axes: dict[type, dict[str, Axes]] = {}


def axes_of(kind: type) -> dict[str, Axes]:
    """Return the declarations of all array fields of a record class by name."""
    if kind not in _axes:
        hints = typing.get_type_hints(kind, include_extras=True)
        declared = {name: getattr(hint, "__metadata__", (None,))[0] for name, hint in hints.items()}
        _axes[kind] = {name: axes for name, axes in declared.items() if isinstance(axes, Axes)}
    return _axes[kind]


def require_axes(record: object) -> None:
    """Raise ValueError if array fields do not have the declared dimensions, or dimensions of one name differ."""
    kind, lengths = type(record), dict[str, int]()
    for name, axes in axes_of(kind).items():
        if axes.optional and getattr(record, name) is None:
            continue
        shape = np.shape(getattr(record, name))
        if len(shape) != len(axes.names):
            raise ValueError(f"{kind.__name__}.{name} has shape {shape}, expected ({', '.join(map(str, axes.names))})")
        expected = tuple(
            lengths.setdefault(axis, length) if isinstance(axis, str) else axis
            for axis, length in zip(axes.names, shape, strict=True)
        )
        if shape != expected:
            raise ValueError(f"{kind.__name__}.{name} has shape {shape}, expected {expected}")


def require_range(record: object, lowest: int, highest: int, *names: str) -> None:
    """Raise ValueError if fields have values outside a range.

    Counts and indices must be bounded, because numpy may write out of bounds if their sum overflows.
    """
    for name in names:
        values = np.asarray(getattr(record, name))
        if values.size and not (values.min() >= lowest and values.max() <= highest):
            raise ValueError(f"{type(record).__name__}.{name} holds values outside {lowest} ... {highest}")


def require_finite(record: object, name: str) -> None:
    """Raise NumericsError if an array field holds NaN or infinity."""
    bad = ~np.isfinite(getattr(record, name))
    if bad.any():
        index = tuple(int(i) for i in np.argwhere(bad)[0])
        raise NumericsError(
            f"{type(record).__name__}.{name} holds {int(bad.sum())} values that are not finite "
            f"(the first at {index}): check the model's weights for NaN, or use float32 or bfloat16"
        )
