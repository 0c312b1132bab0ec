"""Candidates for masks and repair, their figures, and the choice among them."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from gprune.records.base import Array, Record, real


@dataclass(frozen=True, slots=True, eq=False)
class CandidateFigures(Record):
    """Figures of one candidate on text that took part in nothing."""

    measures: tuple[str, ...]
    """what is measured: perplexity on the held-out sequences of A, of B or of a check text, or divergence"""
    nats: Annotated[Array, real("measures", "windows")]
    """(measures, windows) of each sequence: mean loss, or divergence from the dense model, nats per token"""


@dataclass(frozen=True, slots=True, eq=False)
class Choice(Record):
    """Every candidate with its figures, and the one that was chosen."""

    masks: tuple[str, ...]
    """of each candidate the masks, by name"""
    repairs: tuple[str, ...]
    """of each candidate the repair: none, own, or kind:texts as settings name it"""
    measures: tuple[str, ...]
    """what was measured, see CandidateFigures"""
    weights: Annotated[Array, real("measures")]
    """(measures,) weight of each measure in the number; they sum to 1"""
    figures: Annotated[Array, real("candidates", "measures")]
    """(candidates, measures) perplexities, and divergences in nats per token, or NaN if none could be had"""
    numbers: Annotated[Array, real("candidates")]
    """(candidates,) weighted geometric mean of the ratios to the reference; the lowest is chosen"""
    sequences: int
    """held-out sequences behind each figure"""
    reference: int
    """place of the candidate whose number is 1"""
    chosen: int
    """place of the candidate that was chosen"""

    @property
    def repair(self) -> str:
        """The repair that was chosen."""
        return self.repairs[self.chosen]

    @property
    def order(self) -> list[int]:
        """Places of the candidates, the best first, those without a number last."""
        return [int(index) for index in np.argsort(self.numbers, kind="stable")]
