"""The tables of a card: its size, the other texts beside it, and every number as one long table."""

from __future__ import annotations

import math
from dataclasses import asdict

import pandas as pd

from gprune.text_card.card import DEFAULT_SHARE, TextCard


def against(card: TextCard, share: float = DEFAULT_SHARE) -> pd.DataFrame:
    """The other texts, one row each; shares are in percent, NaN where something is not known."""
    rows = []
    for other in card.others:
        needed = card.needed(share, other)
        rows.append(
            {
                "text": other.letter,
                "name": other.name,
                "drift": other.drift,
                "drift, sampling": other.drift_sampling,
                "% decided differently": 100 * other.changed,
                "% by sampling": 100 * other.changed_sampling,
                "% of groups": 100 * other.groups_changed,
                "Jaccard": other.jaccard,
                "by chance": other.jaccard_chance,
                "by sampling": other.jaccard_sampling,
                "two halves": other.jaccard_halves,
                "half and half": other.jaccard_across,
                "token distance": other.token_distance,
                "% of runs shared": 100 * other.runs_shared,
                "sequences needed": float(math.ceil(needed)) if math.isfinite(needed) else float("nan"),
            }
        )
    return pd.DataFrame(rows)


def size(card: TextCard) -> list[tuple[str, str]]:
    """How much there is of the text, as words and numbers; a dash where it is not known."""
    known = card.size
    vocabulary = f" of {known.entries:,}" if known.entries else ""
    drawn = "–" if known.available is None else f"{known.sequences:,} of {known.available:,}"
    return [
        ("Sequences", drawn if known.available is not None else f"{known.sequences:,}"),
        ("Tokens", f"{known.tokens:,}"),
        ("Characters", _number(known.characters)),
        ("Distinct tokens", "–" if known.distinct is None else f"{known.distinct:,}{vocabulary}"),
        ("Ten most frequent", f"{known.frequent:.1%}" if math.isfinite(known.frequent) else "–"),
    ]


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def numbers(card: TextCard, share: float = DEFAULT_SHARE) -> pd.DataFrame:
    """Every number of a card, one a line: what it is, of which text or how many sequences, its value."""
    lines: list[tuple[str, str, float | None, float | None]] = []
    for name, value in {**asdict(card.size), "tokens": card.size.tokens}.items():
        lines.append((f"size: {name}", "", None, value))
    for name in ("drift", "changed"):
        drawn = getattr(card.resampled, name)
        for count, row in zip(card.resampled.sequences, drawn, strict=True):
            for kind, number in (("mean", row.mean()), ("lowest", row.min()), ("highest", row.max())):
                lines.append((f"two samples: {name}, {kind}", "", float(count), float(number)))
        law = getattr(card, name)
        lines.append((f"two samples: {name}, expected", "", card.size.sequences, law.at(card.size.sequences)))
        lines += [(f"law of {name}: {part}", "", None, value) for part, value in asdict(law).items()]
    for other in card.others:
        plain = {key: value for key, value in asdict(other).items() if key not in ("letter", "name")}
        lines += [(f"beside another text: {key}", other.letter, None, value) for key, value in plain.items()]
        lines.append((f"sequences for a share of {share:g}", other.letter, None, card.needed(share, other)))
    lines.append(("share of the decisions that depend on the text", "", None, card.undecided))
    return pd.DataFrame(lines, columns=["what", "other text", "sequences", "value"])
