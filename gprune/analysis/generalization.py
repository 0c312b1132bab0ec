"""Answers: does a method that does well on the corpora of its calibration texts do well elsewhere?

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
    """Where a line stands."""

    line: Line
    home: Difference
    """to the dense model, the mean over the texts"""
    abroad: Difference

    @property
    def gap(self) -> float:
        """How much more it loses abroad than at home, in nats per token."""
        return self.abroad.nats - self.home.nats


def texts_of(standings: Callable[[str], HoldoutStatus | None], texts: Iterable[str]) -> tuple[list[str], list[str]]:
    """The texts of the corpora of A and B, and the unseen ones; others are neither."""
    known = {text: standings(text) for text in texts}
    home = [text for text, one in known.items() if one is not None and one.related]
    return home, [text for text, one in known.items() if one is not None and one.unseen]


def places(lines: Iterable[Line], home: list[str], abroad: list[str]) -> list[Place]:
    """Where every pruned line stands that was measured, beside its dense model, on all of these texts."""
    lines = list(lines)
    dense = [line for line in lines if line.method == DENSE]
    found = []
    for line in lines:
        if line.method != DENSE:
            changes = [against_dense(line, texts, dense) for texts in (home, abroad)]
            if changes[0] is not None and changes[1] is not None:
                found.append(Place(line, changes[0], changes[1]))
    return found


def against_dense(line: Line, texts: list[str], dense: list[Line]) -> Difference | None:
    """A line beside its dense model on the same windows, the mean over texts; None where a text lacks one."""
    known = []
    for text in texts:
        same = (one for one in dense if _models(one, text) == _models(line, text))
        changes = (change(line, other, text) for other in same)
        found = next((one for one in changes if isinstance(one, Difference)), None)
        if found is None or not np.isfinite(found.nats):
            return None
        known.append(found)
    return over_texts(known) if known else None


def _models(line: Line, text: str) -> set[str]:
    return {cell.model for cell in line.by_seed(text).values()}


def table(
    found: list[Place],
    names: dict[tuple[str, str], str],
    given: Mapping[tuple[str, str], tuple[str, str]] = MappingProxyType({}),
) -> pd.DataFrame:
    """One row a line, the one that loses least abroad first.

    `given` is of what texts its masks are and how it is repaired, by the line's name, where that is known.
    """
    unknown = ("", "")
    return pd.DataFrame(
        [
            {
                "method": names[one.line.name],
                "masks from": given.get(one.line.name, unknown)[0],
                "repair": given.get(one.line.name, unknown)[1],
                "at home, times dense": 1 + one.home.change,
                "± at home": one.home.margin,
                "abroad, times dense": 1 + one.abroad.change,
                "± abroad": one.abroad.margin,
                "abroad over home": float(np.exp(one.gap)),
            }
            for one in sorted(found, key=lambda one: one.abroad.nats)
        ]
    )
