"""Check the answers of a plug-in. Each check raises PluginError with one sentence that says what is wrong."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from gprune.plugins.interface import Facts, Kept
from gprune.records import Array, ModelShape, budget
from gprune.system.errors import PluginError
from gprune.system.safe_parsing import quoted

TOLERANCE = 0.005
"""fraction of the weights by which a method may miss its retention; one key/value group may weigh more"""


def require_numbers(values: Any, name: str, length: int) -> Array:
    """Return `length` finite numbers as float64."""
    if not isinstance(values, np.ndarray):
        raise PluginError(f"{name} must be a numpy array (got {type(values).__name__})")
    if values.dtype.kind not in "fiu":
        raise PluginError(f"{name} must be numbers (got an array of {values.dtype})")
    if values.shape != (length,):
        raise PluginError(f"{name} must have shape ({length},) (got {values.shape})")
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise PluginError(
            f"{name} must be finite: {bad.size} of {length} are not, the first at {int(bad[0])} is {values[bad[0]]}"
        )
    return values.astype(np.float64)


def require_scores(values: Any, name: str, length: int) -> Array:
    """Return `length` finite numbers from 0."""
    scores = require_numbers(values, name, length)
    if scores.size and scores.min() < 0:
        raise PluginError(
            f"{name} must be 0 or more, higher is more important: the lowest is {scores.min():.6g}; take the "
            "size, or add a constant"
        )
    return scores


def require_facts(facts: Any, shape: ModelShape) -> Facts:
    """Return facts of a layer as float64, one number a neuron or channel."""
    if not isinstance(facts, Facts):
        raise PluginError(f"weigh must return gprune.plugins.Facts (got {quoted(facts, 60)})")
    channels = shape.heads * shape.head_width
    return Facts(_named(facts.neurons, "neurons", shape.neurons), _named(facts.channels, "channels", channels))


def _named(arrays: Any, part: str, length: int) -> Mapping[str, Array]:
    if not isinstance(arrays, Mapping) or not all(isinstance(name, str) for name in arrays):
        raise PluginError(f"Facts.{part} must be arrays by name (got {quoted(arrays, 60)})")
    return {name: require_numbers(values, f"Facts.{part}[{name!r}]", length) for name, values in arrays.items()}


def require_kept(kept: Any, shape: ModelShape, retention: float) -> Kept:
    """Return a decision that has a unit of each kind in every layer and meets the retention."""
    if not isinstance(kept, Kept):
        raise PluginError(f"decide must return gprune.plugins.Kept (got {quoted(kept, 60)})")
    _require_mask(kept.neurons, "Kept.neurons", (shape.layers, shape.neurons))
    _require_mask(kept.groups, "Kept.groups", (shape.layers, shape.kv_heads))
    reached = budget.retention(shape, kept.neurons, kept.groups)
    allowed = max(TOLERANCE, shape.group_weights / shape.decoder_weights)
    if abs(reached - retention) > allowed:
        raise PluginError(
            f"what it keeps weighs {reached:.2%} of the decoder where {retention:.2%} were asked for, and "
            f"may miss that by {allowed:.2%}: methods are compared at one size"
        )
    return kept


def _require_mask(mask: Any, name: str, size: tuple[int, int]) -> None:
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != size:
        got = f"{mask.dtype} of {mask.shape}" if isinstance(mask, np.ndarray) else type(mask).__name__
        raise PluginError(f"{name} must be bool of shape {size}, True = kept (got {got})")
    empty = np.flatnonzero(~mask.any(axis=1))
    if empty.size:
        raise PluginError(f"{name} keeps nothing in layer {int(empty[0])}: at least one must stay in every layer")
