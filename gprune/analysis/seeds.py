"""The spread of the results of one study over its seeds."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

MEASURED = ("retention", "perplexity", "accuracy")
"""what of a run's result is compared over seeds"""
_NO_MEASURE = ("samples", "chance", "version")
"""what an accuracy says of its task, and what is no result"""


def summarize_seeds(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return mean and deviation over seeds of every final result of runs of one study.

    Nested like a result: where a number stood, its `mean`, its `deviation` (divided by the number of seeds,
    as in the paper's table of seeds) and the `seeds` that have it. A number that is not finite counts as
    measured, and makes mean and deviation so.
    """
    measures = {name: _gathered([result[name] for result in results if name in result]) for name in MEASURED}
    return {name: value for name, value in measures.items() if value}


def _gathered(values: Sequence[Any]) -> dict[str, Any]:
    if all(isinstance(value, Mapping) for value in values):
        names = dict.fromkeys(name for value in values for name in value if name not in _NO_MEASURE)
        inner = {name: _gathered([value[name] for value in values if name in value]) for name in names}
        return {name: value for name, value in inner.items() if value}
    numbers = [float(value) for value in values if value is not None]
    if not numbers:
        return {}
    if not all(map(math.isfinite, numbers)):
        return {"mean": math.inf, "deviation": math.nan, "seeds": len(numbers)}
    return {"mean": float(np.mean(numbers)), "deviation": float(np.std(numbers)), "seeds": len(numbers)}
