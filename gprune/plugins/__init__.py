"""Metrics and methods of other packages (docs/plugins.md).

from gprune.plugins import Facts, Kept, LayerWeights, Measured, Method, Metric, Problem
"""

from gprune.plugins.interface import Facts, Kept, LayerWeights, Measured, Method, Metric, Problem

__all__ = ["Facts", "Kept", "LayerWeights", "Measured", "Method", "Metric", "Problem"]
