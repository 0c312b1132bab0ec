"""Summarize the results of one study over several seeds."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

MEASURED = ("retention", "perplexity", "accuracy")
"""parts of a run's result that are summarized"""
_TASK_PROPERTIES = ("samples", "chance", "version")
"""entries of an accuracy that describe the task, so that they are not averaged over seeds"""


def summarize_seeds(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return mean and standard deviation over seeds of the results of runs that differ only in their seed.

    The return value is nested like a result. Each number is replaced by `mean`, `deviation` (divisor n, as in the
    paper's table of seeds) and the number of `seeds`. If a value is not finite, mean and deviation are not finite.
    """
    measures = {name: _summarize_values([result[name] for result in results if name in result]) for name in MEASURED}
    return {name: value for name, value in measures.items() if value}


def _summarize_values(values: Sequence[Any]) -> dict[str, Any]:
    """Summarize numbers, or nested mappings of numbers by key; empty if all numbers are None."""
    if all(isinstance(value, Mapping) for value in values):
        names = dict.fromkeys(name for value in values for name in value if name not in _TASK_PROPERTIES)
        inner = {name: _summarize_values([value[name] for value in values if name in value]) for name in names}
        return {name: value for name, value in inner.items() if value}
    numbers = [float(value) for value in values if value is not None]
    if not numbers:
        return {}
    if not all(map(math.isfinite, numbers)):
        return {"mean": math.inf, "deviation": math.nan, "seeds": len(numbers)}
    return {"mean": float(np.mean(numbers)), "deviation": float(np.std(numbers)), "seeds": len(numbers)}
