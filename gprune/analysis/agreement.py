"""Answers: do the modules survive a change of calibration texts, and better than FANG's groups?

Fig. 1b and the appendix (module agreement): mean and standard deviation over layers of every comparison,
the controls that belong to them, and how the modules of two partitions share their neurons.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.optimize import linear_sum_assignment

from gprune.records import Agreement, Array

SUBSTITUTION, SWAP, FANG, CONTROL = "substitution", "swap", "FANG", "control"
"""Kinds of comparisons; all but substitutions of a text are named at the beginning of their title."""
MEASURES = {"ari": "Adjusted Rand Index", "overlap": "matched overlap"}
FANG_OTHER_SEED = "control: FANG, another seed"
PAIRS = {
    "A-B against A-C": ("partition", "partition_ac"),
    "A-B against B-C": ("partition", "partition_bc"),
    "A-C against B-C": ("partition_ac", "partition_bc"),
    "swap: A-B against B-A": ("partition", "partition_ba"),
    "FANG: A against B": ("groups_primary", "groups_auxiliary"),
    "FANG: A against C": ("groups_primary", "groups_substitute"),
    "FANG: B against C": ("groups_auxiliary", "groups_substitute"),
    "control: A-B, another seed": ("partition", "partition_ab_other_seed"),
    "control: initialization only, A-B against A-C": (
        "partition_ab_initialization",
        "partition_ac_initialization",
    ),
    FANG_OTHER_SEED: ("groups_primary", "groups_primary_other_seed"),
}
"""The two results behind every comparison."""
SIDES = {
    "partition": "A-B",
    "partition_ac": "A-C",
    "partition_bc": "B-C",
    "partition_ba": "B-A",
    "partition_ab_other_seed": "A-B, another seed",
    "partition_ab_initialization": "A-B, initialization",
    "partition_ac_initialization": "A-C, initialization",
    "groups_primary": "FANG on A",
    "groups_auxiliary": "FANG on B",
    "groups_substitute": "FANG on C",
    "groups_primary_other_seed": "FANG on A, another seed",
}
"""Short names of these results."""


@dataclass(frozen=True, slots=True)
class Confusion:
    """How the modules of two partitions of one layer share their neurons, in matched order."""

    shares: Array
    """(rows, columns) share of the row's neurons, each row sums to 1; rows are modules of the first"""
    counts: Array
    """(rows, columns) int64 neurons"""
    rows: tuple[str, ...]
    """module numbers; the last entry may be +n, which gathers n others"""
    columns: tuple[str, ...]
    """module numbers of the second partition, likewise"""


def kind(comparison: str) -> str:
    """What a comparison says, by the beginning of its title."""
    head = comparison.split(":")[0] if ":" in comparison else ""
    return head if head in (SWAP, FANG, CONTROL) else SUBSTITUTION


def is_control(comparison: str) -> bool:
    """Whether a comparison is a control, not a substitution of a text."""
    return kind(comparison) == CONTROL


def default_choice(comparisons: tuple[str, ...], metric: str) -> list[str]:
    """What is drawn first: substitutions, FANG's groups of A against B, and the controls.

    A swap of both texts says nothing where the drift profile is symmetric, so it is drawn at once for
    token-weighted FLAP only.
    """

    def wanted(name: str) -> bool:
        if kind(name) == SWAP:
            return metric == "twflap"
        return kind(name) != FANG or "A against B" in name

    return [name for name in comparisons if wanted(name)]


def spread(values: Array) -> tuple[float, float]:
    """Mean and standard deviation (ddof 0) over layers; the deviation of one layer is 0."""
    return float(np.mean(values)), float(np.std(values))


def mean_of(agreement: Agreement, *kinds: str) -> tuple[float, float] | None:
    """Mean ARI over layers and comparisons of some kinds, and its standard deviation over layers.

    Returns:
        None where the record has no such comparison.
    """
    chosen = [row for name, row in _rows(agreement) if kind(name) in kinds]
    return spread(np.mean(chosen, axis=0)) if chosen else None


def mean_substitution(agreement: Agreement) -> tuple[float, float] | None:
    """Mean ARI over layers and substitutions, and its standard deviation over layers.

    Returns:
        None where the record has no substitution.
    """
    return mean_of(agreement, SUBSTITUTION)


def controls(agreement: Agreement) -> tuple[float | None, float | None]:
    """Mean ARI over layers of the modules' two controls: another seed alone, the initialization alone.

    Returns:
        Both means; None for a control that was not measured.
    """
    found: dict[str, list[float]] = {"seed": [], "initialization": []}
    for name, row in _rows(agreement):
        for word, values in found.items():
            if is_control(name) and word in name and name != FANG_OTHER_SEED:
                values.append(float(np.mean(row)))
    seed, start = (float(np.mean(values)) if values else None for values in found.values())
    return seed, start


def _rows(agreement: Agreement) -> list[tuple[str, Array]]:
    return list(zip(agreement.comparisons, agreement.ari, strict=True))


def summary(agreement: Agreement) -> pd.DataFrame:
    """One row a comparison: mean and standard deviation over layers of both measures."""
    rows = []
    for index, name in enumerate(agreement.comparisons):
        ari, overlap = spread(agreement.ari[index]), spread(agreement.overlap[index])
        rows.append((name, *ari, *overlap))
    columns = ["comparison", "mean ARI", "s.d. of ARI", "mean overlap", "s.d. of overlap"]
    return pd.DataFrame(rows, columns=columns)


def layer_table(agreement: Agreement) -> pd.DataFrame:
    """Both measures of every comparison and layer, one row a layer and comparison."""
    layers = agreement.ari.shape[1]
    return pd.DataFrame(
        {
            "comparison": np.repeat(agreement.comparisons, layers),
            "layer": np.tile(np.arange(layers), len(agreement.comparisons)),
            "ARI": agreement.ari.ravel(),
            "matched overlap": agreement.overlap.ravel(),
        }
    )


def headline(agreement: Agreement) -> str:
    """The finding in one sentence, with the control that a shared seed alone would give."""
    found, groups = mean_substitution(agreement), mean_of(agreement, FANG)
    if found is None:
        alone = f"FANG's groups of two texts agree at a mean ARI of {groups[0]:.2f}" if groups else ""
        return alone or "Agreement of the modules, layer by layer"
    seed, _ = controls(agreement)
    control = f", and of {seed:.2f} when only the seed changes" if seed is not None else ""
    beside = f"; FANG's groups of one text alone agree with another's at {groups[0]:.2f}" if groups else ""
    level = f"Modules agree at a mean ARI of {found[0]:.2f} when one calibration text is replaced"
    return level + control + beside


def confusion(counts: Array, most: int) -> Confusion:
    """Orders two partitions by their best one-to-one match and gathers what does not fit.

    Args:
        counts: (modules of the first, modules of the second) neurons that each pair shares.
        most: modules shown by themselves, those with the largest matches first; two or more others become
            one.

    Returns:
        At most `most` + 1 rows and columns; matched modules stand on the diagonal.
    """
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
    everything: Array = np.concatenate([matched, np.setdiff1d(np.arange(count), matched)])
    return everything


def _gathered(counts: Array, most: int) -> Array:
    """The first rows, and the sum of all others as one row where there are any."""
    if len(counts) <= most + 1:
        return counts
    rest: Array = np.concatenate([counts[:most], counts[most:].sum(axis=0, keepdims=True)])
    return rest


def _names(modules: Array, most: int) -> tuple[str, ...]:
    names = tuple(str(int(module)) for module in modules)
    return names if len(names) <= most + 1 else (*names[:most], f"+{len(names) - most}")


def widest_gap(first: Array, second: Array) -> tuple[float, int]:
    """Where the module counts of two partitions differ most.

    Args:
        first: (layers,) modules of each layer, at least 1.
        second: (layers,) the same of the other partition.

    Returns:
        Ratio of the larger to the smaller count, at least 1, and its layer.
    """
    ratios = np.maximum(first, second) / np.minimum(first, second)
    return float(ratios.max()), int(ratios.argmax())
