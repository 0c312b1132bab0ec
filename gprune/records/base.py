"""How a record is kept as it was made: read-only arrays of the shapes and values that it says."""

import typing
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from gprune.system.errors import NumericsError

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Axes:
    """Meaning of the dimensions of an array field; one name means one length throughout a record."""

    names: tuple[str | int, ...]
    """names of the dimensions in order; a number is a length that never changes"""
    kinds: str
    """numpy's letters of the number types that it may hold"""
    finite: bool = False
    """whether NaN and infinity are refused"""
    within: tuple[int, int] | None = None
    """the least and the most that it may hold, or None if there is no bound"""


def real(*names: str | int, finite: bool = False, within: tuple[int, int] | None = None) -> Axes:
    """Dimensions of an array of numbers."""
    return Axes(names, "fiu", finite, within)


def integers(*names: str | int, within: tuple[int, int] | None = None) -> Axes:
    """Dimensions of an array of whole numbers."""
    return Axes(names, "iu", within=within)


def truth(*names: str | int) -> Axes:
    """Dimensions of an array of booleans."""
    return Axes(names, "b")


MOST_UNITS = 2**24
"""layers, neurons, heads, channels or modules that a model can have"""
MOST_SEQUENCES = 2**31 - 1
"""sequences that a calibration set can have"""


class Record:
    """A frozen dataclass of plain values and of read-only arrays, which are as their fields declare."""

    __slots__ = ()

    def __post_init__(self) -> None:
        """Checks what the fields declare and what `check` asks for, and freezes the arrays.

        Raises ValueError if something does not fit, NumericsError if a number has to be finite.
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
        """Raises ValueError if fields do not fit each other in ways that no single one can declare."""


def freeze(record: object) -> None:
    """Replaces every array field by a read-only copy."""
    for field in fields(record):  # type: ignore[arg-type]
        value = getattr(record, field.name)
        if isinstance(value, np.ndarray):
            # a memory map cannot change; a read-only view of an array that can is not safe to keep
            safe = isinstance(value, np.memmap) and not value.flags.writeable
            copy = value if safe else np.array(value, copy=True)
            copy.flags.writeable = False
            object.__setattr__(record, field.name, copy)


_axes: dict[type, dict[str, Axes]] = {}


def axes_of(kind: type) -> dict[str, Axes]:
    """The dimensions of every array field of a kind of record."""
    if kind not in _axes:
        hints = typing.get_type_hints(kind, include_extras=True)
        declared = {name: getattr(hint, "__metadata__", (None,))[0] for name, hint in hints.items()}
        _axes[kind] = {name: axes for name, axes in declared.items() if isinstance(axes, Axes)}
    return _axes[kind]


def require_axes(record: object) -> None:
    """Raise ValueError if array fields do not have the declared dimensions, or do not fit each other."""
    kind, lengths = type(record), dict[str, int]()
    for name, axes in axes_of(kind).items():
        shape = np.shape(getattr(record, name))
        if len(shape) != len(axes.names):
            raise ValueError(f"{kind.__name__}.{name} has shape {shape}, expected ({', '.join(map(str, axes.names))})")
        expected = tuple(
            lengths.setdefault(axis, length) if isinstance(axis, str) else axis
            for axis, length in zip(axes.names, shape, strict=True)
        )
        if shape != expected:
            raise ValueError(f"{kind.__name__}.{name} has shape {shape}, expected {expected}")


def require_range(record: object, least: int, largest: int, *names: str) -> None:
    """Raises ValueError if fields hold something outside a range.

    Numbers that numpy takes as counts or places have to be small: it writes outside of its memory where their
    sum overflows.
    """
    for name in names:
        values = np.asarray(getattr(record, name))
        if values.size and not (values.min() >= least and values.max() <= largest):
            raise ValueError(f"{type(record).__name__}.{name} holds values outside {least} ... {largest}")


def require_finite(record: object, name: str) -> None:
    """Raise NumericsError if an array field holds NaN or infinity."""
    bad = ~np.isfinite(getattr(record, name))
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise NumericsError(
            f"{type(record).__name__}.{name} holds {int(bad.sum())} values that are not finite "
            f"(the first at {where}): check the model's weights for NaN, or use float32 or bfloat16"
        )
