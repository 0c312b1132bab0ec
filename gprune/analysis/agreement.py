"""Summarize the agreement of modules under other calibration texts, compared with FANG's groups.

Fig. 1b and the appendix (module agreement): mean and standard deviation over layers of every comparison, and controls.
"""

import numpy as np
import pandas as pd

from gprune.pipeline.stages.rasa import (
    COMPARISONS,
    CONTROL,
    FANG,
    INITIALIZATION,
    OTHER_SEED,
    SUBSTITUTION,
    SWAP,
    Comparison,
)
from gprune.records import Agreement, Array


def default_choice(comparisons: tuple[str, ...], metric: str) -> list[str]:
    """Return the comparisons that a chart shows by default: substitutions, FANG's groups of A and B, and another seed.

    Swaps are shown for token-weighted FLAP only, whose contexts come from the first text. For other metrics, the
    magnitude of the drift is the same in both orders.
    """

    def is_default(comparison: Comparison) -> bool:
        if comparison.kind == SWAP:
            return metric == "twflap"
        if comparison.kind == CONTROL:
            return comparison.second.variant == OTHER_SEED and not comparison.fang
        return comparison.kind != FANG or "substitute" not in comparison.texts

    return [name for name in comparisons if is_default(COMPARISONS[name])]


def mean_std(values: Array) -> tuple[float, float]:
    """Return mean and standard deviation (ddof 0) over layers; the deviation of one layer is 0."""
    return float(np.mean(values)), float(np.std(values))


def mean_ari(agreement: Agreement, *kinds: str) -> tuple[float, float] | None:
    """Return the mean ARI over comparisons of these kinds and its standard deviation over layers.

    Returns None if no comparison of these kinds was measured.
    """
    selected = [row for comparison, row in _ari_by_comparison(agreement) if comparison.kind in kinds]
    return mean_std(np.mean(selected, axis=0)) if selected else None


def mean_substitution(agreement: Agreement) -> tuple[float, float] | None:
    """Return the mean ARI over substitutions and its standard deviation over layers; None if there are none."""
    return mean_ari(agreement, SUBSTITUTION)


def controls(agreement: Agreement) -> tuple[float | None, float | None]:
    """Return the mean ARI of the two controls (another seed, the initialization); None for one not measured."""
    means: dict[str, float] = {}
    for comparison, row in _ari_by_comparison(agreement):
        if comparison.kind == CONTROL and not comparison.fang:
            means[comparison.second.variant] = float(np.mean(row))
    return means.get(OTHER_SEED), means.get(INITIALIZATION)


def _ari_by_comparison(agreement: Agreement) -> list[tuple[Comparison, Array]]:
    """Return every comparison with its (layers,) ARI."""
    return [(COMPARISONS[name], row) for name, row in zip(agreement.comparisons, agreement.ari, strict=True)]


def agreement_by_layer(agreement: Agreement) -> pd.DataFrame:
    """Return a table of ARI and overlap with one row per comparison and layer."""
    layers = agreement.ari.shape[1]
    return pd.DataFrame(
        {
            "comparison": np.repeat([COMPARISONS[name].title for name in agreement.comparisons], layers),
            "layer": np.tile(np.arange(layers), len(agreement.comparisons)),
            "ARI": agreement.ari.ravel(),
            "matched overlap": agreement.overlap.ravel(),
        }
    )


def largest_count_ratio(first: Array, second: Array) -> tuple[float, int]:
    """Return the largest ratio of the (layers,) module counts of two partitions, at least 1, and its layer.

    The larger count of a layer is divided by the smaller one.
    """
    ratios = np.maximum(first, second) / np.minimum(first, second)
    return float(ratios.max()), int(ratios.argmax())
