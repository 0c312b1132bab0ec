"""Answers: does a method that does well on the corpora of its calibration texts do well elsewhere?

Each method's loss on the evaluated texts against the dense model's on the same windows: at home, where a text
is of the corpus of A or of B, and abroad, where it is unseen (gprune.evaluation.holdout).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gprune.analysis.comparison import DENSE, Line
from gprune.analysis.paired_test import Measurement, difference, same_windows
from gprune.evaluation.holdout import HoldoutStatus


@dataclass(frozen=True, slots=True)
class Change:
    """The mean change of the loss over some texts."""

    nats: float
    """against the dense model, per token; the texts count alike, whatever their length"""
    error: float
    """its standard error: over windows, and over seeds where there are several"""

    @property
    def ratio(self) -> float:
        """Geometric mean over the texts of perplexity, in those of the dense model."""
        return float(np.exp(self.nats))


@dataclass(frozen=True, slots=True)
class Place:
    """Where a line stands."""

    line: Line
    home: Change
    abroad: Change

    @property
    def gap(self) -> float:
        """How much more it loses abroad than at home, in nats per token."""
        return self.abroad.nats - self.home.nats


def texts_of(
    standings: Callable[[str], HoldoutStatus | None], texts: Iterable[str]
) -> tuple[list[str], list[str]]:
    """The texts of the corpora of A and B, and the unseen ones; others are neither."""
    known = {text: standings(text) for text in texts}
    home = [text for text, one in known.items() if one is not None and one.related]
    return home, [text for text, one in known.items() if one is not None and one.unseen]


def places(lines: Iterable[Line], home: list[str], abroad: list[str]) -> list[Place]:
    """Where every pruned line stands that was measured, beside its dense model, on all of these texts."""
    lines = list(lines)
    dense = [
        cell for line in lines if line.method == DENSE for row in line.rows for cell in row.cells.values()
    ]
    found = []
    for line in lines:
        if line.method != DENSE:
            changes = [_change(line, texts, dense) for texts in (home, abroad)]
            if changes[0] is not None and changes[1] is not None:
                found.append(Place(line, changes[0], changes[1]))
    return found


def _change(line: Line, texts: list[str], dense: list[Measurement]) -> Change | None:
    means, errors = [], []
    for text in texts:
        pairs = [
            (cell, next((one for one in dense if one.model == cell.model and same_windows(cell, one)), None))
            for cell in line.by_seed(text).values()
        ]
        known = [difference(cell, reference) for cell, reference in pairs if reference is not None]
        if not known or len(known) < len(pairs):
            return None
        nats = np.array([one.nats for one in known])
        spread = float(np.var(nats, ddof=1)) / len(nats) if len(nats) > 1 else 0.0
        means.append(float(nats.mean()))
        errors.append(sum(one.nats_error**2 for one in known) / len(known) ** 2 + spread)
    if not means or not np.isfinite(means).all():
        return None
    return Change(float(np.mean(means)), float(np.sqrt(np.sum(errors))) / len(means))


def table(found: list[Place], names: dict[tuple[str, str], str]) -> pd.DataFrame:
    """One row a line, the one that loses least abroad first."""
    return pd.DataFrame(
        [
            {
                "method": names[one.line.name],
                "at home, times dense": one.home.ratio,
                "± at home": one.home.ratio * one.home.error,
                "abroad, times dense": one.abroad.ratio,
                "± abroad": one.abroad.ratio * one.abroad.error,
                "abroad over home": float(np.exp(one.gap)),
            }
            for one in sorted(found, key=lambda one: one.abroad.nats)
        ]
    )
