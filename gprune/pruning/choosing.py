"""Choose a combination of masks and repair by one selection score computed on held-out text.

Each candidate is measured on text that was not used for pruning: perplexity on held-out sequences of A and B, and
the mean divergence KL(dense | pruned) on text sampled from the dense model. The score is the weighted geometric
mean of the ratios of these measures to those of a reference candidate; lower is better. The reference is the unrepaired
model (of the first method in the recommended recipe) and does not affect the order of the candidates. If the user names
a check text, its perplexity replaces all three measures.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from gprune.records import Array, CandidateFigures, Choice
from gprune.system.errors import MethodError

DIVERGENCE = "divergence"
"""name of the measure KL(dense | pruned); all other measures are perplexities"""
WEIGHTS = {"A": 4 / 9, "B": 4 / 9, DIVERGENCE: 1 / 9}
"""weight of each measure, scaled to a sum of 1, as selected on the development models (docs/method.md): a larger weight
of the divergence favours repairs that are fitted to the model's own text"""
_LEAST = 1e-9
"""smallest divergence in nats per token, because 0 (of a model without removed units) has no logarithm"""


def choose(pairs: Sequence[tuple[str, str]], results: Mapping[int, CandidateFigures], reference: int = 0) -> Choice:
    """Choose the candidate with the lowest selection score; at a tie, the first of them.

    `pairs` are the names of the masks and the repair of every candidate, `results` the measures of the successful
    candidates by index. `reference` is the index of the candidate whose score is 1; if it failed, the first
    successful candidate replaces it. Raises MethodError if all candidates failed.
    """
    if not results:
        raise MethodError("all candidates of the choice failed: see the reasons given for their repairs")
    base = reference if reference in results else min(results)
    measures = results[base].measures
    means = np.full((len(pairs), len(measures)), np.nan)
    for index, candidate in results.items():
        means[index] = candidate.nats.mean(axis=1)
    weights = np.array([WEIGHTS.get(name, 1.0) for name in measures])
    weights /= weights.sum()
    logarithms = _logarithms(means, measures)
    scores = np.exp((logarithms - logarithms[base]) @ weights)
    is_divergence = np.array([name == DIVERGENCE for name in measures])
    # the perplexity of a useless model may overflow to infinity
    with np.errstate(over="ignore"):
        figures = np.where(is_divergence, means, np.exp(means))
    return Choice(
        masks=tuple(masks for masks, _ in pairs),
        repairs=tuple(repair for _, repair in pairs),
        measures=measures,
        weights=weights,
        figures=figures,
        numbers=scores,
        sequences=results[base].nats.shape[1],
        reference=base,
        chosen=int(np.nanargmin(scores)),
    )


def _logarithms(means: Array, measures: Sequence[str]) -> Array:
    """Return (candidates, measures) logarithms of perplexities and divergences, from mean losses and divergences."""
    # a mean loss is already the logarithm of its perplexity
    columns = [
        np.log(np.maximum(column, _LEAST)) if name == DIVERGENCE else column
        for name, column in zip(measures, means.T, strict=True)
    ]
    return np.stack(columns, axis=1)
