"""Metrics and methods of other packages (docs/plugins.md).

from gprune.plugins import Facts, Kept, LayerWeights, Measured, Method, Metric, Problem
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gprune.plugins.interface import Facts, Kept, LayerWeights, Measured, Method, Metric, Problem

__all__ = ["Facts", "Kept", "LayerWeights", "Measured", "Method", "Metric", "Problem"]


def __getattr__(name: str) -> Any:
    """Import the interface when it is used: it needs numpy, and a list of names does not."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gprune.plugins import interface

    return getattr(interface, name)
