"""Measure how far modules agree when calibration texts change, next to FANG's groups.

Fig. 1b and the appendix (module agreement): mean and standard deviation over layers of every comparison, and the
controls that belong to them.
"""

import numpy as np
import pandas as pd

from gprune.pipeline.stages.comparisons import (
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
    """Return the comparisons drawn first: substitutions, FANG's groups of A against B, and the control of the seed.

    More lines than that hide each other. A swap of both texts says nothing if the drift profile is
    symmetric, so it is drawn at once for token-weighted FLAP only. The order stays.
    """

    def is_default(comparison: Comparison) -> bool:
        if comparison.kind == SWAP:
            return metric == "twflap"
        if comparison.kind == CONTROL:
            return comparison.second.variant == OTHER_SEED and not comparison.fang
        return comparison.kind != FANG or "substitute" not in comparison.texts

    return [name for name in comparisons if is_default(COMPARISONS[name])]


def spread(values: Array) -> tuple[float, float]:
    """Return mean and standard deviation (ddof 0) over layers; the deviation of one layer is 0."""
    return float(np.mean(values)), float(np.std(values))


def mean_of(agreement: Agreement, *kinds: str) -> tuple[float, float] | None:
    """Return the mean ARI over comparisons of some kinds and its deviation over layers; None without any."""
    selected = [row for comparison, row in _rows(agreement) if comparison.kind in kinds]
    return spread(np.mean(selected, axis=0)) if selected else None


def mean_substitution(agreement: Agreement) -> tuple[float, float] | None:
    """Return the mean ARI over substitutions and its deviation over layers; None without any."""
    return mean_of(agreement, SUBSTITUTION)


def controls(agreement: Agreement) -> tuple[float | None, float | None]:
    """Return the mean ARI of both controls: another seed alone, and the initialization alone.

    None for a control that was not measured.
    """
    means: dict[str, float] = {}
    for comparison, row in _rows(agreement):
        if comparison.kind == CONTROL and not comparison.fang:
            means[comparison.second.variant] = float(np.mean(row))
    return means.get(OTHER_SEED), means.get(INITIALIZATION)


def _rows(agreement: Agreement) -> list[tuple[Comparison, Array]]:
    return [(COMPARISONS[name], row) for name, row in zip(agreement.comparisons, agreement.ari, strict=True)]


def _titles(agreement: Agreement) -> list[str]:
    return [COMPARISONS[name].title for name in agreement.comparisons]


def agreement_by_layer(agreement: Agreement) -> pd.DataFrame:
    """Return ARI and overlap of every comparison, one row a layer and comparison."""
    layers = agreement.ari.shape[1]
    return pd.DataFrame(
        {
            "comparison": np.repeat(_titles(agreement), layers),
            "layer": np.tile(np.arange(layers), len(agreement.comparisons)),
            "ARI": agreement.ari.ravel(),
            "matched overlap": agreement.overlap.ravel(),
        }
    )


def widest_gap(first: Array, second: Array) -> tuple[float, int]:
    """Find the layer where the module counts of two partitions, (layers,) each, differ most.

    Gives the ratio of the larger to the smaller count, at least 1, and its layer.
    """
    ratios = np.maximum(first, second) / np.minimum(first, second)
    return float(ratios.max()), int(ratios.argmax())
