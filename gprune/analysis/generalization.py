"""Losses on the corpora of the calibration texts beside those on unseen text.

Each method's loss on the evaluated texts against the dense model's on the same windows: at home, where a text
is of the corpus of A or of B, and abroad, where it is unseen (gprune.evaluation.holdout).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pandas as pd

from gprune.analysis.comparison import DENSE, Line, change
from gprune.analysis.paired_test import Difference, over_texts
from gprune.evaluation.holdout import HoldoutStatus


@dataclass(frozen=True, slots=True)
class Place:
    """The loss of a line at home and on unseen text."""

    line: Line
    home: Difference
    """to the dense model, the mean over the texts"""
    abroad: Difference

    @property
    def gap(self) -> float:
        """Loss on unseen text less that at home, in nats per token."""
        return self.abroad.nats - self.home.nats


def home_and_unseen(
    status_of: Callable[[str], HoldoutStatus | None], texts: Iterable[str]
) -> tuple[list[str], list[str]]:
    """Return the texts of the corpora of A and B, and the unseen ones; others are neither."""
    statuses = {text: status for text in texts if (status := status_of(text)) is not None}
    home = [text for text, status in statuses.items() if status.related]
    return home, [text for text, status in statuses.items() if status.unseen]


def places(lines: Iterable[Line], home: list[str], abroad: list[str]) -> list[Place]:
    """Return every pruned line that was measured, beside its dense model, on all of these texts."""
    lines = list(lines)
    dense = [line for line in lines if line.method == DENSE]
    rows = []
    for line in lines:
        if line.method != DENSE:
            changes = [against_dense(line, texts, dense) for texts in (home, abroad)]
            if changes[0] is not None and changes[1] is not None:
                rows.append(Place(line, changes[0], changes[1]))
    return rows


def against_dense(line: Line, texts: list[str], dense: list[Line]) -> Difference | None:
    """Return a line's loss over its dense model's on the same windows, the mean over texts; None where one lacks it."""
    differences = []
    for text in texts:
        references = (other for other in dense if _models(other, text) == _models(line, text))
        changes = (change(line, other, text) for other in references)
        gap = next((gap for gap in changes if isinstance(gap, Difference)), None)
        if gap is None or not np.isfinite(gap.nats):
            return None
        differences.append(gap)
    return over_texts(differences) if differences else None


def _models(line: Line, text: str) -> set[str]:
    return {cell.model for cell in line.by_seed(text).values()}


def generalization_table(
    rows: list[Place],
    names: dict[tuple[str, str], str],
    origins: Mapping[tuple[str, str], tuple[str, str]] = MappingProxyType({}),
) -> pd.DataFrame:
    """Return one row a line, the one that loses least on unseen text first.

    `origins` are the texts of its masks and its repair, by the line's name, where they are known.
    """
    return pd.DataFrame(
        [
            {
                "method": names[row.line.name],
                **dict(zip(("masks from", "repair"), origins.get(row.line.name, ("", "")), strict=True)),
                "at home, times dense": 1 + row.home.change,
                "± at home": row.home.margin,
                "abroad, times dense": 1 + row.abroad.change,
                "± abroad": row.abroad.margin,
                "abroad over home": float(np.exp(row.gap)),
            }
            for row in sorted(rows, key=lambda row: row.abroad.nats)
        ]
    )
