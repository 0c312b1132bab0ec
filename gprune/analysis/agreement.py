"""Answers: do the modules survive a change of calibration texts, and better than their controls do?

Figure 1b and the appendix on module agreement: mean and standard deviation over layers of every comparison.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from gprune.records import Agreement, Array

CONTROL = "control"
"""How the names of control comparisons begin."""
MEASURES = {"ari": "Adjusted Rand Index", "overlap": "matched overlap"}


def is_control(comparison: str) -> bool:
    """Whether a comparison is a control, not a substitution of a text."""
    return comparison.startswith(CONTROL)


def spread(values: Array) -> tuple[float, float]:
    """Mean and standard deviation (ddof 0) over layers; the deviation of one layer is 0."""
    return float(np.mean(values)), float(np.std(values))


def mean_substitution(agreement: Agreement) -> tuple[float, float] | None:
    """Mean ARI over layers and substitutions, and its standard deviation over layers.

    Returns:
        None where the record has no substitution.
    """
    chosen = [
        row for name, row in zip(agreement.comparisons, agreement.ari, strict=True) if not is_control(name)
    ]
    return spread(np.mean(chosen, axis=0)) if chosen else None


def controls(agreement: Agreement) -> tuple[float | None, float | None]:
    """Mean ARI over layers of the two controls: another seed alone, and the initialization alone.

    Returns:
        Both means; None for a control that was not measured.
    """
    found: dict[str, list[float]] = {"seed": [], "initialization": []}
    for name, row in zip(agreement.comparisons, agreement.ari, strict=True):
        for word, values in found.items():
            if is_control(name) and word in name:
                values.append(float(np.mean(row)))
    seed, start = (float(np.mean(values)) if values else None for values in found.values())
    return seed, start


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
    found = mean_substitution(agreement)
    if found is None:
        return "Agreement of the modules, layer by layer"
    seeds = [row for name, row in zip(agreement.comparisons, agreement.ari, strict=True) if "seed" in name]
    control = f", and of {np.mean(seeds):.2f} when only the seed changes" if seeds else ""
    return f"Modules agree at a mean ARI of {found[0]:.2f} when one calibration text is replaced{control}"
