"""What a plug-in has answered, checked: one sentence says what is wrong with it, before anything uses it."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from gprune.plugins.interface import Facts, Kept
from gprune.records import Array, ModelShape, budget
from gprune.system import safe_parsing
from gprune.system.errors import PluginError

LEAST_MISS = 0.005
"""fraction of the weights by which any method may miss its retention; a key/value group may weigh more"""


def numbers(found: Any, what: str, length: int) -> Array:
    """Finite numbers of a length, as float64; `what` is for the message. PluginError where it is not that."""
    values = _array(found, what)
    if values.dtype.kind not in "fiu":
        raise PluginError(f"{what} must be numbers (got an array of {values.dtype})")
    if values.shape != (length,):
        raise PluginError(f"{what} must have shape ({length},) (got {values.shape})")
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise PluginError(
            f"{what} must be finite: {bad.size} of {length} are not, the first at {int(bad[0])} is {values[bad[0]]}"
        )
    return values.astype(np.float64)


def scores(found: Any, what: str, length: int) -> Array:
    """Numbers that can be scores: from 0, higher is more important. PluginError where they cannot."""
    values = numbers(found, what, length)
    if values.size and values.min() < 0:
        raise PluginError(
            f"{what} must be 0 or more, higher is more important: the lowest is {values.min():.6g}; take the "
            "size, or add a constant"
        )
    return values


def facts(found: Any, shape: ModelShape) -> Facts:
    """What a metric has found of a layer's weights, as float64.

    Raises PluginError where it is not one number a channel under plain names.
    """
    if not isinstance(found, Facts):
        raise PluginError(f"weigh must return gprune.plugins.Facts (got {safe_parsing.quoted(found, 60)})")
    channels = shape.heads * shape.head_width
    return Facts(_named(found.neurons, "neurons", shape.neurons), _named(found.channels, "channels", channels))


def _named(found: Any, part: str, length: int) -> Mapping[str, Array]:
    if not isinstance(found, Mapping) or not all(isinstance(name, str) for name in found):
        raise PluginError(f"Facts.{part} must be arrays by name (got {safe_parsing.quoted(found, 60)})")
    return {name: numbers(values, f"Facts.{part}[{name!r}]", length) for name, values in found.items()}


def kept(found: Any, shape: ModelShape, retention: float) -> Kept:
    """What a method keeps, as it was asked.

    Raises PluginError where it is of another shape or type, leaves a layer empty, or misses the retention.
    """
    if not isinstance(found, Kept):
        raise PluginError(f"decide must return gprune.plugins.Kept (got {safe_parsing.quoted(found, 60)})")
    neurons = _mask(found.neurons, "Kept.neurons", (shape.layers, shape.neurons))
    groups = _mask(found.groups, "Kept.groups", (shape.layers, shape.kv_heads))
    reached = budget.retention(shape, neurons, groups)
    allowed = max(LEAST_MISS, shape.group_weights / shape.decoder_weights)
    if abs(reached - retention) > allowed:
        raise PluginError(
            f"what it keeps weighs {reached:.2%} of the decoder where {retention:.2%} were asked for, and "
            f"may miss that by {allowed:.2%}: methods are compared at one size"
        )
    return Kept(neurons, groups)


def _mask(found: Any, what: str, size: tuple[int, int]) -> Array:
    values = _array(found, what)
    if values.dtype != np.bool_ or values.shape != size:
        raise PluginError(f"{what} must be bool of shape {size}, True = kept (got {values.dtype} of {values.shape})")
    empty = np.flatnonzero(~values.any(axis=1))
    if empty.size:
        raise PluginError(f"{what} keeps nothing in layer {int(empty[0])}: at least one must stay in every layer")
    return values


def _array(found: Any, what: str) -> Array:
    if not isinstance(found, np.ndarray):
        raise PluginError(f"{what} must be a numpy array (got {type(found).__name__})")
    return found
