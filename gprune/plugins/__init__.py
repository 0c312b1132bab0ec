"""Metrics and methods of other packages: what their authors write (docs/plugins.md), and what runs it.

from gprune.plugins import Facts, Kept, LayerWeights, Measured, Method, Metric, Problem
"""

from gprune.plugins.interface import Facts, Kept, LayerWeights, Measured, Method, Metric, Problem

__all__ = ["Facts", "Kept", "LayerWeights", "Measured", "Method", "Metric", "Problem"]
