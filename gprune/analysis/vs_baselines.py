"""Answers: how does GPrune stand against the best baseline, and against controls that lack its parts?

The fair summary of a main table: of the methods that one would otherwise use the best on each text, chosen in
hindsight, and beside it one ratio for every layer with nothing learned, and one learned threshold a layer.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from gprune.analysis.formatting import percent
from gprune.analysis.studies import Setting, StudyRow, columns, is_perplexity, settings
from gprune.analysis.tables import PERPLEXITY
from gprune.study.methods import METHODS

OURS = "gprune:flap"
CONTROLS = ("flap_uniform", "msl_layers")
"""what has nothing learned, and what has no modules"""
_BESIDE = "(GPrune over it)"


def against(rows: Iterable[StudyRow]) -> pd.DataFrame:
    """GPrune on FLAP beside the best baseline and two controls, a line for each retention and text.

    Args:
        rows: of the main table, of one seed or several.

    Returns:
        Text cells: perplexities with their spread, and in brackets GPrune's over each, of several seeds the
        mean of their ratios with its deviation. What was not measured has a dash.
    """
    table = settings(rows)
    found = []
    for ours in (one for one in table if one.method == OURS and one.filled and not one.control):
        others = [one for one in table if one.retention == ours.retention and one is not ours and one.filled]
        for column in filter(is_perplexity, columns([ours])):
            found.append(_line(ours, others, column))
    return pd.DataFrame(found)


def _line(ours: Setting, others: list[Setting], column: str) -> dict[str, str]:
    rivals = [one for one in others if _is_baseline(one) and one.values(column)]
    best = min(rivals, key=lambda one: one.mean(column), default=None)
    line = {"retention": percent(ours.retention), "text": column.removeprefix(PERPLEXITY)}
    line["GPrune (FLAP)"] = _figure(ours, column)
    name = METHODS[best.method].label if best is not None else ""
    line[f"best baseline {_BESIDE}"] = f"{name} {_beside(ours, best, column)}".strip()
    for method in CONTROLS:
        control = next((one for one in others if one.method == method and one.values(column)), None)
        line[f"control: {METHODS[method].label} {_BESIDE}"] = _beside(ours, control, column)
    return line


def _is_baseline(one: Setting) -> bool:
    return one.method in METHODS and METHODS[one.method].baseline and not one.control


def _figure(one: Setting, column: str) -> str:
    spread = one.spread(column)
    return f"{one.mean(column):,.2f}" + (f" ± {spread:,.2f}" if np.isfinite(spread) else "")


def _beside(ours: Setting, other: Setting | None, column: str) -> str:
    """Another method's figure and in brackets GPrune's over it, over the seeds that both have."""
    if other is None:
        return "–"
    mine, theirs = (
        {row.seed: row.values[column] for row in one.filled if column in row.values} for one in (ours, other)
    )
    each = [mine[seed] / theirs[seed] for seed in mine if seed in theirs]
    if not each:
        return f"{_figure(other, column)} (no seed in common)"
    spread = f" ± {np.std(each):.3f}" if len(each) > 1 else ""
    return f"{_figure(other, column)} ({np.mean(each):.3f}{spread})"
