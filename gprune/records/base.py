"""How a record is kept as it was made: read-only arrays of the shapes and values that it says."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from gprune.errors import NumericsError

Array = np.ndarray[Any, Any]


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


def require_shape(record: object, shapes: dict[str, tuple[int, ...]]) -> None:
    """Checks that array fields have the shapes they should.

    Raises:
        ValueError: one has another shape.
    """
    for name, shape in shapes.items():
        actual = np.shape(getattr(record, name))
        if actual != shape:
            raise ValueError(f"{type(record).__name__}.{name} has shape {actual}, expected {shape}")


def require_finite(record: object, *names: str) -> None:
    """Checks that array fields hold finite numbers only.

    Raises:
        NumericsError: one holds NaN or infinity.
    """
    for name in names:
        array = getattr(record, name)
        bad = ~np.isfinite(array)
        if bad.any():
            where = tuple(int(i) for i in np.argwhere(bad)[0])
            raise NumericsError(
                f"{type(record).__name__}.{name} holds {int(bad.sum())} values that are not finite "
                f"(the first at {where}): check the model's weights for NaN, or use float32 or bfloat16"
            )
