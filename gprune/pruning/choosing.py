"""Choose one mask method and one repair among several, by one number that was fixed before any test.

Each candidate has figures on text that took part in nothing: perplexity on held-out sequences of A and of B,
and its mean divergence KL(dense | pruned) on fresh text that the dense model writes. The number is the
weighted geometric mean of their ratios to those of one reference: the same masks not repaired, or for the
recommended recipe the first method's masks not repaired. Which reference it is moves no candidate past
another. A check text that a user names takes the place of all three.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from gprune.records import Array, CandidateFigures, Choice
from gprune.system.errors import MethodError

DIVERGENCE = "divergence"
"""the measure that is not a perplexity"""
WEIGHTS = {"A": 4 / 9, "B": 4 / 9, DIVERGENCE: 1 / 9}
"""weight of each measure, scaled to a sum of 1; they won on the development models (docs/method.md):
with more on divergence a choice is drawn to what is fitted to the model's own text"""
_LEAST = 1e-9
"""nats per token under which divergences are one: a model from which nothing is removed has none"""


def choose(pairs: Sequence[tuple[str, str]], results: Mapping[int, CandidateFigures], reference: int = 0) -> Choice:
    """Choose the candidate with the lowest number; the first of equal ones.

    `pairs` are masks and repair of every candidate by name, `results` the figures of those that could be made
    by index. `reference` is the index of the candidate whose number is 1; if it could not be made, the first that could
    takes its place. Raises MethodError if none could be made.
    """
    if not results:
        raise MethodError("no candidate of a choice could be made: see why its repairs were left out")
    base = reference if reference in results else min(results)
    measures = results[base].measures
    means = np.full((len(pairs), len(measures)), np.nan)
    for index, candidate in results.items():
        means[index] = candidate.nats.mean(axis=1)
    weights = np.array([WEIGHTS.get(name, 1.0) for name in measures])
    weights /= weights.sum()
    logarithms = _logarithms(means, measures)
    numbers = np.exp((logarithms - logarithms[base]) @ weights)
    diverges = np.array([name == DIVERGENCE for name in measures])
    with np.errstate(over="ignore"):
        figures = np.where(diverges, means, np.exp(means))
    return Choice(
        masks=tuple(masks for masks, _ in pairs),
        repairs=tuple(repair for _, repair in pairs),
        measures=measures,
        weights=weights,
        figures=figures,
        numbers=numbers,
        sequences=results[base].nats.shape[1],
        reference=base,
        chosen=int(np.nanargmin(numbers)),
    )


def _logarithms(means: Array, measures: Sequence[str]) -> Array:
    """Return mean losses (log perplexities) as they are, and logarithms of divergences."""
    columns = [
        np.log(np.maximum(row, _LEAST)) if name == DIVERGENCE else row
        for name, row in zip(measures, means.T, strict=True)
    ]
    return np.stack(columns, axis=1)
