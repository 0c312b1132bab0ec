"""Sizes of the calibration texts (section 4) and distances between them."""

import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from gprune.analysis.drift import finite_median
from gprune.pruning.ranking import ranks, spearman
from gprune.records import Array, RankDrift, Tokens

ROLES = {"primary": "A", "auxiliary": "B", "substitute": "C"}
"""letters of the calibration texts by their role in a study"""
MOST_FREQUENT = 10
"""number of the most frequent tokens, whose share of all tokens measures how repetitive a text is"""

Score = Callable[[Sequence[int]], Array]
"""(layers, neurons) importance scores of some shards of a text"""


def token_counts(ids: Array, size: int) -> Array:
    """Return the (size,) int64 counts of each token id but those of padding, -1; `size` is greater than any id."""
    flat = np.asarray(ids).ravel()
    return np.bincount(flat[flat >= 0], minlength=size)


def token_distance(first: Array, second: Array) -> float:
    """Return the Jensen-Shannon distance of two token distributions, in [0, 1].

    Both arguments are (tokens,) counts over one vocabulary with at least one count above 0. A distance of 1 means that
    no token is common.
    """
    # this part of scipy is fast to import
    from scipy.special import rel_entr

    p, q = first / first.sum(), second / second.sum()
    mean = (p + q) / 2
    divergence = float((rel_entr(p, mean) + rel_entr(q, mean)).sum()) / (2 * np.log(2))
    return float(np.sqrt(min(max(divergence, 0.0), 1.0)))


def half_distance(first: Array, second: Array, size: int) -> float:
    """Return the token distance between the even sequences of a text and the odd ones of a text.

    Within one text, it is the effect of sampling alone. Both are (samples, length) with at least two samples; `size` is
    greater than any id.
    """
    return token_distance(token_counts(first[::2], size), token_counts(second[1::2], size))


def id_bound(texts: Mapping[str, Tokens]) -> int:
    """Return one more than the largest token id of all texts, the length of arrays that are indexed by token id."""
    return 1 + max(int(tokens.ids.max()) for tokens in texts.values())


def text_table(texts: Mapping[str, Tokens], entries: int | None = None) -> pd.DataFrame:
    """Return a table with one row per calibration text; shares are in percent, NaN if not applicable.

    `texts` is keyed by letter; `entries` is the size of the tokenizer's vocabulary, or None if unknown.
    """
    size = id_bound(texts)
    counts_by_letter = {letter: token_counts(tokens.unpadded_ids, size) for letter, tokens in texts.items()}
    return pd.DataFrame([_build_row(letter, texts[letter], counts_by_letter, entries) for letter in texts])


def _build_row(letter: str, tokens: Tokens, counts_of: dict[str, Array], entries: int | None) -> dict[str, object]:
    """Return the row of one text; `counts_of` has the (size,) token counts of every text by letter."""
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
        "tokens": int(counts.sum()),
        "distinct tokens": distinct,
        "% of vocabulary": 100.0 * distinct / entries if entries else float("nan"),
        f"% in {MOST_FREQUENT} most frequent tokens": 100.0 * np.sort(counts)[-MOST_FREQUENT:].sum() / counts.sum(),
    }
    for other_letter, other_counts in counts_of.items():
        shared = 100.0 * ((counts > 0) & (other_counts > 0)).sum() / distinct
        row[f"% of distinct also in {other_letter}"] = float("nan") if other_letter == letter else shared
    return row


def distances(texts: Mapping[str, Tokens]) -> pd.DataFrame:
    """Return the token distance of every pair of texts, with the distance between a text's halves on the diagonal."""
    size, letters = id_bound(texts), list(texts)
    counts_by_letter = {letter: token_counts(texts[letter].unpadded_ids, size) for letter in letters}
    pairs = itertools.combinations(letters, 2)
    between = {(a, b): token_distance(counts_by_letter[a], counts_by_letter[b]) for a, b in pairs}
    ids = {letter: tokens.unpadded_ids for letter, tokens in texts.items()}
    return square(between | {(letter, letter): half_distance(rows, rows, size) for letter, rows in ids.items()})


def correlation_and_drift(first: Array, second: Array) -> tuple[float, float]:
    """Return the median Spearman correlation over layers of (layers, neurons) scores, and the median rank drift."""
    drift = np.abs(ranks(first) - ranks(second)) / max(np.shape(first)[1] - 1, 1)
    return finite_median(spearman(first, second)), float(np.median(drift))


def recorded_rank_shifts(first: str, second: str, drift: RankDrift) -> dict[tuple[str, str], tuple[float, float]]:
    """Return median correlation and median drift from a drift record, by pair of letters.

    A pair of equal letters has the values between two halves of one text.
    """
    return {
        (first, second): (finite_median(drift.correlation), float(np.median(drift.magnitude))),
        (first, first): (finite_median(drift.correlation_primary), float(np.median(drift.resample_primary))),
        (second, second): (finite_median(drift.correlation_auxiliary), float(np.median(drift.resample_auxiliary))),
    }


def square(values: Mapping[tuple[str, str], float]) -> pd.DataFrame:
    """Return values by pair of letters as a symmetric table, NaN for missing pairs."""
    letters = sorted({letter for pair in values for letter in pair})
    table = pd.DataFrame(np.full((len(letters), len(letters)), np.nan), index=letters, columns=letters)
    for (first, second), value in values.items():
        table.loc[first, second] = table.loc[second, first] = value
    return table


def finding(table: pd.DataFrame) -> str:
    """Describe a table of `square`: the range of its values between texts and within a text; empty if all are NaN."""
    values = table.to_numpy(dtype=np.float64)
    same = np.eye(len(values), dtype=bool)
    clauses = [
        f"{_format_range(cells)} {scope}"
        for cells, scope in ((values[~same], "between texts"), (values[same], "within one"))
        if np.isfinite(cells).any()
    ]
    return ", ".join(clauses)


def _format_range(values: Array) -> str:
    """Return the lowest and highest value, or one number if both are equal after rounding."""
    lowest, highest = f"{np.nanmin(values):.2f}", f"{np.nanmax(values):.2f}"
    return lowest if lowest == highest else f"{lowest} to {highest}"
