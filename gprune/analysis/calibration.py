"""The calibration texts: their sizes, their distances, and the stability of the ranks that they give.

Describes the calibration sets of section 4 (2048 sequences of 128 tokens in the paper) and extends the
re-sampling control of Fig. 1a to other sample sizes, without another pass of the model.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gprune.analysis.drift import middle
from gprune.pipeline.stages.comparisons import COMPARISONS
from gprune.pruning.ranking import ranks, spearman
from gprune.records import Agreement, Array, RankDrift, Tokens

ROLES = {"primary": "A", "auxiliary": "B", "substitute": "C"}
"""Roles of the texts, and the letters that the pages call them by."""
MOST_FREQUENT = 10
"""tokens whose share tells how repetitive a text is"""

Score = Callable[[Sequence[int]], Array]
"""(layers, neurons) importance scores of some shards of a text"""


@dataclass(frozen=True, slots=True)
class Curve:
    """Agreement of the ranks of two parts of equal size, by the size of the parts."""

    name: str
    """which text, or which two"""
    sequences: Array
    """(sizes,) mean number of sequences in a part"""
    mean: Array
    """(sizes,) mean over draws of the Spearman correlation, median over layers"""
    lowest: Array
    """(sizes,) of any draw"""
    highest: Array
    """(sizes,) of any draw"""

    @property
    def crosses(self) -> bool:
        """True if the parts are of two texts."""
        return "|" in self.name


def token_counts(ids: Array, size: int) -> Array:
    """(size,) int64 how often each token occurs; `size` is more than any id."""
    return np.bincount(np.asarray(ids).ravel(), minlength=size)


def token_distance(first: Array, second: Array) -> float:
    """Jensen-Shannon distance of two token distributions: root of the divergence in bits, in [0, 1].

    Both are (tokens,) counts of one vocabulary, at least one above 0; 1 means no common token.
    """
    # a part of scipy that starts at once
    from scipy.special import rel_entr

    p, q = first / first.sum(), second / second.sum()
    mean = (p + q) / 2
    divergence = float((rel_entr(p, mean) + rel_entr(q, mean)).sum()) / (2 * np.log(2))
    return float(np.sqrt(min(max(divergence, 0.0), 1.0)))


def half_distance(ids: Array, size: int) -> float:
    """Token distance between the even and the odd sequences of one text: what sampling alone does.

    `ids` (samples, length) has at least two samples; `size` is more than any id.
    """
    return token_distance(token_counts(ids[::2], size), token_counts(ids[1::2], size))


def vocabulary(texts: Mapping[str, Tokens]) -> int:
    """One more than the largest token id of any text."""
    return 1 + max(int(tokens.ids.max()) for tokens in texts.values())


def text_table(texts: Mapping[str, Tokens], entries: int | None = None) -> pd.DataFrame:
    """The calibration sets side by side, one row each; shares in percent, NaN where nothing compares.

    `texts` are by letter; `entries` is the size of the tokenizer's vocabulary, where it is known.
    """
    size = vocabulary(texts)
    counts = {letter: token_counts(tokens.ids, size) for letter, tokens in texts.items()}
    return pd.DataFrame([_row(letter, texts[letter], counts, entries) for letter in texts])


def _row(letter: str, tokens: Tokens, counts_of: dict[str, Array], entries: int | None) -> dict[str, object]:
    counts = counts_of[letter]
    distinct = int((counts > 0).sum())
    samples, length = tokens.ids.shape
    row: dict[str, object] = {
        "text": letter,
        "name": tokens.text,
        "content": tokens.fingerprint[:8],
        "sequences": samples,
        "available": tokens.available,
        "tokens each": length,
        "tokens": int(tokens.ids.size),
        "distinct tokens": distinct,
        "% of vocabulary": 100.0 * distinct / entries if entries else float("nan"),
        f"% in {MOST_FREQUENT} most frequent": 100.0 * np.sort(counts)[-MOST_FREQUENT:].sum() / counts.sum(),
    }
    for other, other_counts in counts_of.items():
        shared = 100.0 * ((counts > 0) & (other_counts > 0)).sum() / distinct
        row[f"% of distinct also in {other}"] = float("nan") if other == letter else shared
    return row


def distances(texts: Mapping[str, Tokens]) -> pd.DataFrame:
    """Token distance of every pair of texts; on the diagonal two halves of one text."""
    size, letters = vocabulary(texts), list(texts)
    counts = {letter: token_counts(texts[letter].ids, size) for letter in letters}
    pairs = itertools.combinations(letters, 2)
    between = {(a, b): token_distance(counts[a], counts[b]) for a, b in pairs}
    return square(between | {(letter, letter): half_distance(texts[letter].ids, size) for letter in letters})


def rank_levels(first: Array, second: Array) -> tuple[float, float]:
    """Return the agreement of two sets of (layers, neurons) scores on the ranks.

    Gives the median over layers of the Spearman correlation, and the median rank drift of all neurons.
    """
    moved = np.abs(ranks(first) - ranks(second)) / max(np.shape(first)[1] - 1, 1)
    return middle(spearman(first, second)), float(np.median(moved))


def recorded_levels(first: str, second: str, drift: RankDrift) -> dict[tuple[str, str], tuple[float, float]]:
    """The same from a record, between two texts and within each: correlation and drift by pair of letters."""
    return {
        (first, second): (middle(drift.correlation), float(np.median(drift.magnitude))),
        (first, first): (middle(drift.correlation_primary), float(np.median(drift.resample_primary))),
        (second, second): (middle(drift.correlation_auxiliary), float(np.median(drift.resample_auxiliary))),
    }


def square(values: Mapping[tuple[str, str], float]) -> pd.DataFrame:
    """Values of pairs of letters as a symmetric table; NaN where there is none."""
    letters = sorted({letter for pair in values for letter in pair})
    table = pd.DataFrame(np.full((len(letters), len(letters)), np.nan), index=letters, columns=letters)
    for (first, second), value in values.items():
        table.loc[first, second] = table.loc[second, first] = value
    return table


def finding(table: pd.DataFrame) -> str:
    """The square in words: the range between texts and within one; empty where nothing is known."""
    values = table.to_numpy(dtype=np.float64)
    same = np.eye(len(values), dtype=bool)
    parts = [
        f"{_range(part)} {words}"
        for part, words in ((values[~same], "between texts"), (values[same], "within one"))
        if np.isfinite(part).any()
    ]
    return ", ".join(parts)


def _range(values: Array) -> str:
    lowest, highest = f"{np.nanmin(values):.2f}", f"{np.nanmax(values):.2f}"
    return lowest if lowest == highest else f"{lowest} to {highest}"


def agreements(agreement: Agreement, kind: str) -> pd.DataFrame:
    """Mean ARI over layers of the comparisons of a kind, by the letters of the texts that only one side has.

    Of SUBSTITUTION: of the modules when one text takes the place of another, the third staying; of FANG: of
    its groups of one text and of another.
    """
    means = {}
    for name, row in zip(agreement.comparisons, agreement.ari, strict=True):
        comparison = COMPARISONS[name]
        if comparison.kind == kind:
            differ = set(comparison.first.texts) ^ set(comparison.second.texts)
            first, second = sorted(ROLES[role] for role in differ)
            means[first, second] = float(np.mean(row))
    return square(means)


def stability(
    scores: Mapping[str, Score], sizes: Mapping[str, Array], cross: tuple[str, str] = ("A", "B")
) -> list[Curve]:
    """Return the agreement of two disjoint parts of a text on the ranks, by the size of the parts.

    A part is n neighbouring shards of the shards in a ring, the other the n that follow. All starting points
    are drawn, so every shard counts as often as every other. `scores` and (shards,) `sizes`, in sequences,
    are by letter of the text; the two texts of `cross` are also set against each other. One curve a text,
    then that of the two texts; none where there is only one shard.
    """
    shards = min(len(sizes[letter]) for letter in scores)
    pairs = [(letter, letter) for letter in scores]
    if set(cross) <= set(scores):
        pairs.append(cross)
    points: dict[tuple[str, str], list[tuple[float, ...]]] = {pair: [] for pair in pairs}
    # one size at a time: the ranks of all parts of all sizes would be half a gigabyte at 7B
    for count in range(1, shards // 2 + 1):
        parts = {letter: _parts(make, count, shards) for letter, make in scores.items()}
        for first, second in pairs:
            sequences = count * float(np.mean([sizes[first].mean(), sizes[second].mean()]))
            points[first, second].append((sequences, *_levels(parts[first], parts[second], count)))
    names = [first if first == second else f"{first} | {second}" for first, second in pairs]
    curves = zip(names, points.values(), strict=True)
    return [Curve(name, *np.array(rows).T) for name, rows in curves if rows]


def _parts(score: Score, count: int, shards: int) -> Array:
    """(starts, layers, neurons) standardised ranks of every part of `count` neighbouring shards."""
    chosen = ([(start + step) % shards for step in range(count)] for start in range(shards))
    return np.stack([_unit_ranks(score(part)) for part in chosen])


def _unit_ranks(scores: Array) -> Array:
    """(layers, neurons) float32 ranks of mean 0 and norm 1: their products are Spearman correlations."""
    centred = ranks(scores)
    centred = centred - centred.mean(axis=1, keepdims=True)
    norm = np.sqrt((centred**2).sum(axis=1, keepdims=True))
    unit: Array = np.divide(centred, norm, out=np.full_like(centred, np.nan), where=norm > 0)
    return unit.astype(np.float32)


def _levels(first: Array, second: Array, count: int) -> tuple[float, float, float]:
    """Mean, lowest and highest over starting points of the correlation of a part with the part after it."""
    partners = np.roll(second, -count, axis=0)
    values = [
        middle((part * partner).sum(axis=1, dtype=np.float64)) for part, partner in zip(first, partners, strict=True)
    ]
    return float(np.mean(values)), float(np.min(values)), float(np.max(values))


def projected(curve: Curve, sequences: float) -> float:
    """Correlation to be expected of larger parts, by the formula of Spearman and Brown.

    It is k r / (1 + (k - 1) r) of the largest measured r, with `sequences` k times its size; NaN where r is
    not positive.
    """
    correlation, times = float(curve.mean[-1]), sequences / float(curve.sequences[-1])
    return times * correlation / (1 + (times - 1) * correlation) if correlation > 0 else float("nan")


def stability_table(curves: list[Curve]) -> pd.DataFrame:
    """The curves as a table, one row a size."""
    rows = [
        (curve.name, *values)
        for curve in curves
        for values in zip(curve.sequences, curve.mean, curve.lowest, curve.highest, strict=True)
    ]
    return pd.DataFrame(rows, columns=["texts", "sequences per part", "mean Spearman", "lowest", "highest"])


def sampling_title(curves: list[Curve]) -> str:
    """The finding in one sentence: how stable the ranks are at the largest size, against the other text."""
    within = [curve for curve in curves if not curve.crosses]
    if not within or not all(np.isfinite(curve.mean[-1]) for curve in within):
        return "How many sequences are enough?"
    size, level = within[0].sequences[-1], min(float(curve.mean[-1]) for curve in within)
    across = next((float(curve.mean[-1]) for curve in curves if curve.crosses), None)
    between = f", A and B at {across:.2f}" if across is not None else ""
    return f"Two samples of {size:.0f} sequences of one text agree at {level:.2f} or more{between}"
