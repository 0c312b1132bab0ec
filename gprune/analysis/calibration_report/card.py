"""The numbers of the card of one calibration text; all of them are measured."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from gprune.analysis.formatting import finite_values
from gprune.analysis.resampling import Law, Resampled

DEFAULT_SHARE = 0.25
"""part of the drift between texts that sampling alone may shift ranks by"""


@dataclass(frozen=True, slots=True)
class Origin:
    """The run behind a card, and how decisions are made on it."""

    run: str
    model: str
    metric: str
    """what units are scored by"""
    retention: float
    """of the decoder's linear weights, at which one ratio in every layer decides"""


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a text; NaN or None if its tokens are not there."""

    sequences: int
    length: int
    """tokens of a sequence"""
    available: int | None
    """disjoint sequences that the text would give, or None if that is not known, or without end"""
    characters: int | None
    """that the drawn tokens represent"""
    distinct: int | None
    """tokens that occur"""
    entries: int | None
    """of the vocabulary"""
    frequent: float
    """share of all tokens that falls on the ten most frequent ones"""
    halves: float
    """token distance between two halves of the text: what sampling does"""

    @property
    def tokens(self) -> int:
        """Return the number of tokens drawn."""
        return self.sequences * self.length


@dataclass(frozen=True, slots=True)
class Against:
    """A text compared with another of its run; sampling is the difference of two samples of one text."""

    letter: str
    name: str
    drift: float
    """median rank drift between the two"""
    drift_sampling: float
    """of two samples of one text, on average over both texts, or NaN if no law was found"""
    drift_beyond: float
    """what sampling does not explain of the drift"""
    changed: float
    """share of the neurons that the two texts decide differently"""
    changed_sampling: float
    """that two samples of one text do"""
    groups_changed: float
    """share of the key/value groups that the two texts decide differently"""
    jaccard: float
    """of the neurons that the two texts keep"""
    jaccard_chance: float
    """of independent choices of as many in every layer"""
    jaccard_sampling: float
    """of two samples of one text"""
    jaccard_halves: float
    """measured between two halves of this text"""
    jaccard_across: float
    """measured between a half of this text and a half of the other"""
    token_distance: float
    """Jensen-Shannon distance of their token frequencies, or NaN if tokens are not there"""
    distinct_shared: float
    """share of this text's distinct tokens that the other has as well; NaN likewise"""
    runs_shared: float
    """share of this text's runs of `run` tokens that occur in the other; NaN likewise"""
    run: int
    """tokens of such a run"""


@dataclass(frozen=True, slots=True)
class TextCard:
    """One calibration text of a run."""

    letter: str
    """what the pages call it"""
    name: str
    """as typed"""
    described: str
    """what it is, as the run noted it"""
    origin: Origin
    size: Size
    resampled: Resampled
    """two samples of it against each other, by their size"""
    drift: Law
    """of the rank drift between two samples"""
    changed: Law
    """of the decisions that two samples make differently"""
    others: tuple[Against, ...]
    """the other texts of the run whose statistics are there"""
    undecided: float
    """share of the neurons that not all texts of the run decide alike, or NaN if there is one text"""

    @property
    def nearest(self) -> Against | None:
        """Return the other text from which it differs least beyond sampling."""
        return min(self.others, key=lambda other: other.drift_beyond, default=None)

    @property
    def farthest(self) -> Against | None:
        """Return the other text that decides most neurons differently."""
        return max(self.others, key=lambda other: other.changed, default=None)

    def needed(self, share: float, other_text: Against | None = None) -> float:
        """Return the sequences at which resampling shifts ranks by a share of the drift to another text.

        The nearest of `others` unless another is given. Infinite where the two texts differ by no more than
        sampling, NaN if it cannot be said.
        """
        other_text = other_text or self.nearest
        return self.drift.reaches(share * other_text.drift_beyond) if other_text else float("nan")

    def recommended(self, share: float, other_text: Against | None = None) -> int | None:
        """Return the needed sequences rounded up to two digits, at least 1; None if not known."""
        sequences = self.needed(share, other_text)
        if not math.isfinite(sequences):
            return None
        count = max(math.ceil(sequences), 1)
        # two digits, because the estimate is not more exact
        step = 10 ** max(len(str(count)) - 2, 0)
        return -(-count // step) * step

    def to_dict(self, share: float = DEFAULT_SHARE) -> dict[str, Any]:
        """Return every number as plain JSON values, with the sequences that a share needs."""
        plain = asdict(self) | {
            "share": share,
            "recommended": {other.letter: self.recommended(share, other) for other in self.others},
        }
        plain["size"]["tokens"] = self.size.tokens
        return dict(finite_values(plain))
