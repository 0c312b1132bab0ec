"""Measured numbers of the calibration card of a text."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from gprune.analysis.formatting import finite_values
from gprune.analysis.resampling import Law, Resampled

DEFAULT_SHARE = 0.25
"""default limit of the rank drift by sampling, as a share of the drift between texts"""


@dataclass(frozen=True, slots=True)
class Origin:
    """Run of a card, and the settings of the masks that it compares."""

    run: str
    model: str
    metric: str
    """metric of the scores"""
    retention: float
    """retained share of the weights, the same in every layer"""


@dataclass(frozen=True, slots=True)
class Size:
    """Size of a text, and what a chat template adds; NaN or None if its tokens are not available."""

    sequences: int
    length: int
    """tokens of a sequence"""
    available: int | None
    """number of disjoint sequences in the text, or None if unknown or unlimited"""
    characters: int | None
    """number of characters of the drawn tokens"""
    distinct: int | None
    """number of distinct drawn tokens"""
    entries: int | None
    """number of entries of the vocabulary"""
    frequent: float
    """share of the ten most frequent tokens in all drawn tokens"""
    halves: float
    """token distance between two halves of the text, which is the effect of sampling"""
    template: float = math.nan
    """share of the tokens that a chat template adds; NaN for plain text"""
    rendered: str = ""
    """first sequence of conversations as the chat template writes it; empty for plain text"""

    @property
    def tokens(self) -> int:
        """Return the number of tokens drawn, with padding."""
        return self.sequences * self.length


@dataclass(frozen=True, slots=True)
class TextComparison:
    """Comparison of a text with another text of its run.

    Fields that end in `_sampling` have the values between two samples of one text, for comparison.
    """

    letter: str
    name: str
    label: str
    drift: float
    """median rank drift between the texts"""
    drift_sampling: float
    """median rank drift between two samples of one text, mean over both texts; NaN without a fitted law"""
    drift_beyond: float
    """part of the drift that sampling does not explain"""
    changed: float
    """share of neurons with different decisions"""
    changed_sampling: float
    """share of neurons with different decisions between two samples of one text"""
    groups_changed: float
    """share of key/value groups with different decisions"""
    jaccard: float
    """Jaccard index of the kept neurons"""
    jaccard_chance: float
    """expected Jaccard index of independent masks with the same counts per layer"""
    jaccard_sampling: float
    """expected Jaccard index of two samples of one text"""
    jaccard_halves: float
    """Jaccard index between two halves of this text"""
    jaccard_across: float
    """Jaccard index between a half of this text and a half of the other"""
    token_distance: float
    """Jensen-Shannon distance of the token frequencies; NaN without tokens"""
    half_distance: float
    """token distance between half of this text and half of the other; NaN without tokens"""
    distinct_shared: float
    """share of this text's distinct tokens that occur in the other text; NaN without tokens"""
    runs_shared: float
    """share of this text's sequences of `run` successive tokens that occur in the other text; NaN without tokens"""
    run: int
    """number of successive tokens that are compared"""


@dataclass(frozen=True, slots=True)
class TextCard:
    """Calibration card of one text of a run."""

    letter: str
    """A, B or C"""
    name: str
    """the text as the study names it"""
    label: str
    """name of the text in sentences and figures"""
    described: str
    """description of the text that the run recorded; empty if none"""
    origin: Origin
    size: Size
    resampled: Resampled
    """differences between two samples of the text by their size"""
    drift: Law
    """fitted rank drift between two samples by their size"""
    changed: Law
    """fitted share of decisions that differ between two samples by their size"""
    others: tuple[TextComparison, ...]
    """comparisons with the other measured texts of the run"""
    undecided: float
    """share of neurons on which the decisions of all measured texts of the run do not agree, or NaN for one text"""

    @property
    def nearest(self) -> TextComparison | None:
        """Return the comparison with the text of the smallest drift beyond sampling; None without other texts."""
        return min(self.others, key=lambda other: other.drift_beyond, default=None)

    @property
    def farthest(self) -> TextComparison | None:
        """Return the comparison with the most different neuron decisions; None without other texts."""
        return max(self.others, key=lambda other: other.changed, default=None)

    def needed(self, share: float, comparison: TextComparison | None = None) -> float:
        """Return the number of sequences at which resampling shifts ranks by `share` of the drift to another text.

        `comparison` is that with the other text, by default the nearest one. The result is infinite if the texts differ
        no more than two samples of one text, and NaN without a fitted law or another text.
        """
        comparison = comparison or self.nearest
        return self.drift.sequences_for(share * comparison.drift_beyond) if comparison else float("nan")

    def recommended(self, share: float, comparison: TextComparison | None = None) -> int | None:
        """Return the needed sequences, rounded up to two significant digits, at least 1; None if not finite."""
        sequences = self.needed(share, comparison)
        if not math.isfinite(sequences):
            return None
        count = max(math.ceil(sequences), 1)
        # the estimate is not more accurate than two digits
        step = 10 ** max(len(str(count)) - 2, 0)
        # rounded up
        return -(-count // step) * step

    def to_dict(self, share: float = DEFAULT_SHARE) -> dict[str, Any]:
        """Return all numbers as plain JSON values, with the recommended number of sequences for `share`."""
        plain = asdict(self) | {
            "share": share,
            "recommended": {other.letter: self.recommended(share, other) for other in self.others},
        }
        plain["size"]["tokens"] = self.size.tokens
        return dict(finite_values(plain))
