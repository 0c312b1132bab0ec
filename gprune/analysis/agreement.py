"""Agreement of the modules under a change of calibration texts, beside FANG's groups.

Fig. 1b and the appendix (module agreement): mean and standard deviation over layers of every comparison,
the controls that belong to them, and how the modules of two partitions share their neurons.
"""

from dataclasses import dataclass

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

MEASURES = {"ari": "Adjusted Rand Index", "overlap": "matched overlap"}


@dataclass(frozen=True, slots=True)
class Confusion:
    """The neurons that the modules of two partitions of one layer share, in matched order."""

    shares: Array
    """(rows, columns) share of the row's neurons, each row sums to 1; rows are modules of the first"""
    counts: Array
    """(rows, columns) int64 neurons"""
    rows: tuple[str, ...]
    """module numbers; the last entry may be +n, which gathers n others"""
    columns: tuple[str, ...]
    """module numbers of the second partition, likewise"""


def default_choice(comparisons: tuple[str, ...], metric: str) -> list[str]:
    """Return the comparisons drawn first: substitutions, FANG's groups of A against B, and the control of the seed.

    More lines than that hide each other. A swap of both texts says nothing where the drift profile is
    symmetric, so it is drawn at once for token-weighted FLAP only. The order stays.
    """

    def wanted(comparison: Comparison) -> bool:
        if comparison.kind == SWAP:
            return metric == "twflap"
        if comparison.kind == CONTROL:
            return comparison.second.variant == OTHER_SEED and not comparison.fang
        return comparison.kind != FANG or "substitute" not in comparison.texts

    return [name for name in comparisons if wanted(COMPARISONS[name])]


def spread(values: Array) -> tuple[float, float]:
    """Mean and standard deviation (ddof 0) over layers; the deviation of one layer is 0."""
    return float(np.mean(values)), float(np.std(values))


def mean_of(agreement: Agreement, *kinds: str) -> tuple[float, float] | None:
    """Mean ARI over layers and comparisons of some kinds, its deviation over layers; None without any."""
    chosen = [row for comparison, row in _rows(agreement) if comparison.kind in kinds]
    return spread(np.mean(chosen, axis=0)) if chosen else None


def mean_substitution(agreement: Agreement) -> tuple[float, float] | None:
    """Mean ARI over layers and substitutions, its deviation over layers; None without a substitution."""
    return mean_of(agreement, SUBSTITUTION)


def controls(agreement: Agreement) -> tuple[float | None, float | None]:
    """Mean ARI over layers of both controls of the modules: another seed alone, the initialization alone.

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


def summary(agreement: Agreement) -> pd.DataFrame:
    """One row a comparison: mean and standard deviation over layers of both measures."""
    rows = []
    for index, title in enumerate(_titles(agreement)):
        ari, overlap = spread(agreement.ari[index]), spread(agreement.overlap[index])
        rows.append((title, *ari, *overlap))
    columns = ["comparison", "mean ARI", "s.d. of ARI", "mean overlap", "s.d. of overlap"]
    return pd.DataFrame(rows, columns=columns)


def layer_table(agreement: Agreement) -> pd.DataFrame:
    """Both measures of every comparison and layer, one row a layer and comparison."""
    layers = agreement.ari.shape[1]
    return pd.DataFrame(
        {
            "comparison": np.repeat(_titles(agreement), layers),
            "layer": np.tile(np.arange(layers), len(agreement.comparisons)),
            "ARI": agreement.ari.ravel(),
            "matched overlap": agreement.overlap.ravel(),
        }
    )


def confusion(counts: Array, most: int) -> Confusion:
    """Orders two partitions by their best one-to-one match and gathers what does not fit.

    `counts` (modules of the first, modules of the second) are the neurons that each pair shares. The `most`
    modules with the largest matches are shown by themselves, matched ones on the diagonal; two or more others
    become one row or column more.
    """
    # takes a quarter of a second to import, before the first page of a new server could be drawn
    from scipy.optimize import linear_sum_assignment

    matched_rows, matched_columns = linear_sum_assignment(counts, maximize=True)
    order = np.argsort(-counts[matched_rows, matched_columns], kind="stable")
    rows = _with_unmatched(matched_rows[order], counts.shape[0])
    columns = _with_unmatched(matched_columns[order], counts.shape[1])
    ordered = np.asarray(counts, dtype=np.int64)[np.ix_(rows, columns)]
    gathered = _gathered(_gathered(ordered, most).T, most).T
    total = gathered.sum(axis=1, keepdims=True)
    return Confusion(gathered / np.maximum(total, 1), gathered, _names(rows, most), _names(columns, most))


def _with_unmatched(matched: Array, count: int) -> Array:
    """All modules, those without a partner last."""
    return np.concatenate([matched, np.setdiff1d(np.arange(count), matched)])


def _gathered(counts: Array, most: int) -> Array:
    """The first rows, and the sum of all others as one row where there are any."""
    if len(counts) <= most + 1:
        return counts
    return np.concatenate([counts[:most], counts[most:].sum(axis=0, keepdims=True)])


def _names(modules: Array, most: int) -> tuple[str, ...]:
    names = tuple(str(int(module)) for module in modules)
    return names if len(names) <= most + 1 else (*names[:most], f"+{len(names) - most}")


def widest_gap(first: Array, second: Array) -> tuple[float, int]:
    """Find the layer where the module counts of two partitions, (layers,) each, differ most.

    Gives the ratio of the larger to the smaller count, at least 1, and its layer.
    """
    ratios = np.maximum(first, second) / np.minimum(first, second)
    return float(ratios.max()), int(ratios.argmax())
