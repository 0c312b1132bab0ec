"""The tables of a card: its size, the other texts beside it, and every number as one long table."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict

import pandas as pd

from gprune.analysis.calibration_report.card import DEFAULT_SHARE, Against, TextCard


def against(card: TextCard, share: float = DEFAULT_SHARE) -> pd.DataFrame:
    """The other texts side by side: one row a measure, one column a text; values are words, as they are read.

    Args:
        card: of one text.
        share: part of the drift between texts that sampling alone may move ranks by.
    """
    run = card.others[0].run if card.others else 0
    rows: list[tuple[str, Callable[[Against], str]]] = [
        ("Median rank drift", lambda other: _decimal(other.drift)),
        ("– of two samples of one text", lambda other: _decimal(other.drift_sampling)),
        ("Neurons decided differently", lambda other: _percent(other.changed)),
        ("– by two samples of one text", lambda other: _percent(other.changed_sampling)),
        ("Key/value groups decided differently", lambda other: _percent(other.groups_changed)),
        ("Jaccard index of the neurons kept", lambda other: _decimal(other.jaccard)),
        ("– by chance", lambda other: _decimal(other.jaccard_chance)),
        ("– of two samples of one text, expected", lambda other: _decimal(other.jaccard_sampling)),
        (f"– of two halves of {card.letter}", lambda other: _decimal(other.jaccard_halves)),
        (
            f"– of a half of {card.letter} and a half of the other",
            lambda other: _decimal(other.jaccard_across),
        ),
        ("Token distance", lambda other: _decimal(other.token_distance)),
        (f"Distinct tokens of {card.letter} that it has too", lambda other: _percent(other.distinct_shared)),
        (f"Runs of {run} tokens of {card.letter} that it has too", lambda other: _percent(other.runs_shared)),
        (
            f"Sequences that bring sampling to {share:.0%}",
            lambda other: _count(card.recommended(share, other)),
        ),
    ]
    table = {"measure": [words for words, _ in rows]}
    for other in card.others:
        table[f"{other.letter}: {other.name}"] = [read(other) for _, read in rows]
    return pd.DataFrame(table)


def _decimal(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else "–"


def _percent(value: float) -> str:
    return f"{value:.1%}" if math.isfinite(value) else "–"


def _count(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def size(card: TextCard) -> list[tuple[str, str]]:
    """How much there is of the text, as words and numbers; a dash where it is not known."""
    known = card.size
    vocabulary = f" of {known.entries:,}" if known.entries else ""
    drawn = f"{known.sequences:,}" + ("" if known.available is None else f" of {known.available:,}")
    return [
        ("Sequences", drawn),
        ("Tokens", f"{known.tokens:,}"),
        ("Characters", _count(known.characters)),
        ("Distinct tokens", "–" if known.distinct is None else f"{known.distinct:,}{vocabulary}"),
        ("Ten most frequent", f"{known.frequent:.1%}" if math.isfinite(known.frequent) else "–"),
    ]


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
