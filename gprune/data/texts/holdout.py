"""Determine whether an evaluated text is unseen, from its relation to the calibration texts.

An unseen text is from a different corpus than A, B, the check text of a choice and LLM-Pruner's own text. It has almost
no verbatim overlap with the sequences drawn from A, B and the check text. Both the declared relation (corpus and split
by name, equal content) and the measured overlap are required and reported. The third text C is ignored, because no
pruning decision depends on it. A text that was sampled from the model is never unseen.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gprune.data.texts.corpus_relation import PART, SAME, Kinship
from gprune.data.texts.sampled import is_sampled
from gprune.records import TextOverlap

LETTERS = {"primary": "A", "auxiliary": "B", "check": "the check text", "gradient": "LLM-Pruner’s own text"}
"""display names, by role, of the texts that pruning or the choice of a repair or recipe depends on"""
MOST_SHARED = 0.01
"""largest share of an evaluated text's token runs that is attributed to chance or quotation"""
_COPY_DIVISOR = 4
"""a copy of a calibration text overlaps by the drawn share of that text, so the share is at most a quarter of that"""
UNSEEN = "unseen"


@dataclass(frozen=True, slots=True)
class HoldoutStatus:
    """Relation of an evaluated text to the calibration texts of a run."""

    text: str
    """the evaluation text, as typed"""
    kin: Mapping[str, Kinship]
    """declared relation to each calibration text, by its display name in `LETTERS`"""
    overlap: TextOverlap | None
    """measured overlap, or None before it is measured"""
    name: str = ""
    """name that the study gives the text"""

    @property
    def related(self) -> dict[Kinship, str]:
        """Return the display names of related calibration texts, joined by "and", for the kinds SAME and PART."""
        letters = {kind: [letter for letter, kin in self.kin.items() if kin == kind] for kind in (SAME, PART)}
        return {kind: " and ".join(names) for kind, names in letters.items() if names}

    @property
    def copied(self) -> str:
        """Return the display names of the calibration texts whose overlap exceeds the limit; empty if none does."""
        if self.overlap is None:
            return ""
        limits = np.minimum(MOST_SHARED, self.overlap.drawn / _COPY_DIVISOR)
        return " and ".join(
            letter for letter, exceeds in zip(self._letters, self.overlap.share > limits, strict=True) if exceeds
        )

    @property
    def is_other_corpus(self) -> bool:
        """Return True if the text is declared as another corpus and no measured overlap contradicts this."""
        return not (is_sampled(self.text) or self.related or self.copied)

    @property
    def unseen(self) -> bool:
        """Return True if the text is unseen, which requires a measured overlap."""
        return self.is_other_corpus and self.overlap is not None

    @property
    def brief(self) -> str:
        """Return the relation in a few words."""
        return self._descriptions[0]

    @property
    def _descriptions(self) -> tuple[str, str]:
        """Return the relation in a few words, and as a clause that also gives the reason."""
        if is_sampled(self.text):
            return "written by the model", "written by the model itself, so it is not unseen"
        if SAME in self.related:
            return f"same text as {self.related[SAME]}", f"the same text as {self.related[SAME]}"
        if PART in self.related:
            letters = self.related[PART]
            return f"other split of {letters}", f"another split of the corpus of {letters}, not unseen"
        if self.copied:
            reason = f"a different corpus by name, but its content occurs in {self.copied}, so it is not unseen"
            return f"overlaps {self.copied}", reason
        if self.unseen:
            return UNSEEN, "unseen, a different corpus than A and B"
        return "other corpus, overlap unknown", "a different corpus than A and B by name"

    @property
    def _letters(self) -> list[str]:
        # the overlap is not measured with LLM-Pruner's own text, which only one method reads and which may be missing
        return [letter for letter in self.kin if letter != LETTERS["gradient"]]

    @property
    def measured(self) -> str:
        """Describe the measured overlap; empty if it was not measured."""
        if self.overlap is None:
            return ""
        run_length, shares = self.overlap.run, self.overlap.share
        if not shares.any():
            return f"no {run_length}-token verbatim overlap with {' or '.join(self._letters)}"
        clauses = [f"{_percent(share)} in {letter}" for letter, share in zip(self._letters, shares, strict=True)]
        clauses[0] = clauses[0].replace(" in ", f" of its {run_length}-token runs occur verbatim in ")
        return ", ".join(clauses)

    @property
    def sentence(self) -> str:
        """Return the relation, the reason for it, and the measured overlap."""
        overlap = f"; {self.measured}" if self.measured else "; its overlap with A and B is not measured"
        return f"{self.name or self.text}: {self._descriptions[1]}{overlap}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        values = {"unseen": self.unseen, "is": self.brief, "sentence": self.sentence, "declared": dict(self.kin)}
        if self.overlap is not None:
            shares = dict(zip(self._letters, map(float, self.overlap.share), strict=True))
            values |= {"overlap": shares, "tokens of a run": self.overlap.run}
        return values


def unseen(statuses: Mapping[str, HoldoutStatus]) -> list[str]:
    """Return the names of the unseen texts; `statuses` is by text."""
    return [text for text, status in statuses.items() if status.unseen]


def _percent(share: float) -> str:
    """Format a share as a percentage, a small one with two decimals; only 0 itself is "none"."""
    if not share:
        return "none"
    return "< 0.01%" if share < 1e-4 else f"{100 * share:.{0 if share >= 0.1 else 2}f}%"
