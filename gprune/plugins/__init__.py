"""Metrics and methods of other packages: what their authors write (docs/plugins.md), and what runs it.

from gprune.plugins import Facts, Kept, LayerWeights, Measured, Method, Metric, Problem
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gprune.plugins.interface import Facts as Facts
    from gprune.plugins.interface import Kept as Kept
    from gprune.plugins.interface import LayerWeights as LayerWeights
    from gprune.plugins.interface import Measured as Measured
    from gprune.plugins.interface import Method as Method
    from gprune.plugins.interface import Metric as Metric
    from gprune.plugins.interface import Problem as Problem

__all__ = ["Facts", "Kept", "LayerWeights", "Measured", "Method", "Metric", "Problem"]


def __getattr__(name: str) -> Any:
    """What their authors write, loaded when it is asked for: the queue of jobs asks for names alone."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # the contract holds arrays
    from gprune.plugins import interface

    return getattr(interface, name)
