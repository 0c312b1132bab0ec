"""Candidates for masks and repair, their measures on held-out text, and the selection."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from gprune.records.base import Array, Record, real


@dataclass(frozen=True, slots=True, eq=False)
class CandidateFigures(Record):
    """Measures of one candidate on text that was not used for pruning."""

    measures: tuple[str, ...]
    """names: perplexity on held-out sequences of A, B or a check text, or divergence"""
    nats: Annotated[Array, real("measures", "windows")]
    """(measures, windows) mean loss, or divergence from the dense model, of each sequence in nats per token"""


@dataclass(frozen=True, slots=True, eq=False)
class Choice(Record):
    """All candidates with their measures, and the selected one."""

    masks: tuple[str, ...]
    """name of the masks of each candidate"""
    repairs: tuple[str, ...]
    """repair of each candidate: none, own, or kind:texts as in the settings"""
    measures: tuple[str, ...]
    """names of the measures, see CandidateFigures"""
    weights: Annotated[Array, real("measures")]
    """(measures,) weight of each measure in `numbers`; the weights sum to 1"""
    figures: Annotated[Array, real("candidates", "measures")]
    """(candidates, measures) perplexities, and divergences in nats per token; NaN for failed candidates"""
    numbers: Annotated[Array, real("candidates")]
    """(candidates,) weighted geometric mean of the ratios of the measures to those of the reference; the candidate with
    the lowest mean is selected"""
    sequences: int
    """held-out sequences per measure"""
    reference: int
    """index of the reference candidate"""
    chosen: int
    """index of the selected candidate"""

    @property
    def repair(self) -> str:
        """Return the selected repair."""
        return self.repairs[self.chosen]

    @property
    def order(self) -> list[int]:
        """Return the indices of the candidates, best first; failed candidates are last."""
        return [int(index) for index in np.argsort(self.numbers, kind="stable")]
