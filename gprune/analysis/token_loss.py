"""The tokens on which a pruned model does worse than the dense one."""

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gprune.analysis.formatting import format_signed
from gprune.records import Array

LISTED = 12
"""tokens of a method in the list of the largest losses"""
BEFORE, AFTER = 12, 5
"""tokens of context in that list"""
_STRONGEST = 0.98
"""share of the tokens whose differences the colours tell apart"""
_LEAST_SCALE = 0.1
_JOINERS = "\u200c\u200d"


@dataclass(frozen=True, slots=True, eq=False)
class Token:
    """A token as displayed."""

    text: str
    """what it adds to the text; empty if an earlier token of the same character has it"""
    place: int = 1
    """which of the tokens of one character it is, from 1"""
    of: int = 1
    """how many they are"""


@dataclass(frozen=True, slots=True)
class Change:
    """The losses of a pruned model on a passage next to those of the dense one."""

    nats: float
    """mean loss difference of a token; positive where the pruned model is worse"""
    perplexity: float
    """of the pruned model over the passage"""
    dense: float
    """of the dense model"""


def loss_change(dense: Array, pruned: Array) -> Change:
    """Return the difference over a passage from (tokens,) losses in nats; the first token has NaN."""
    with np.errstate(over="ignore"):
        values = [float(np.exp(np.nanmean(losses))) for losses in (pruned, dense)]
    return Change(float(np.nanmean(pruned - dense)), *values)


def loss_title(changes: Mapping[str, Change]) -> str:
    """Return the finding in a sentence, by the labels of the methods."""
    clauses = [
        f"{name} {format_signed(change.nats, '.2f')} nats/token (perplexity {change.perplexity:.1f})"
        for name, change in changes.items()
    ]
    dense = next(iter(changes.values())).dense
    return f"Beside the dense model (perplexity {dense:.1f}): {', '.join(clauses)}"


def worst_window(dense: Array, pruned: Array) -> tuple[int, float]:
    """Return the window with the largest loss increase of a pruned model, and that increase in nats/token.

    `dense` and `pruned` are (windows,) losses of the same windows; of equal differences the first.
    """
    change = pruned - dense
    window = int(np.argmax(change))
    return window, float(change[window])


def scale(differences: Iterable[Array]) -> float:
    """Return the end of the colour scale in nats; nearly all tokens of the passage differ by less."""
    values = np.abs(np.concatenate(list(differences)))
    values = values[np.isfinite(values)]
    return max(float(np.quantile(values, _STRONGEST)), _LEAST_SCALE) if values.size else _LEAST_SCALE


def visible(text: str) -> str:
    """Return text with visible spaces, line ends and control characters."""
    return readable(text).replace("\n", "↵\n").replace("\t", "⇥\t").replace(" ", "·")


def readable(text: str) -> str:
    """Return text with control and direction characters replaced by symbols; spaces stay."""
    return "".join(map(_sign, text))


def mark_spaces(token: Token) -> str:
    """Return a token with visible spaces; a character's later tokens show only their number."""
    return visible(token.text) if token.place == 1 else f"‹{token.place}/{token.of}›"


def worst(tokens: Sequence[Token], dense: Array, methods: Mapping[str, Array], count: int = LISTED) -> pd.DataFrame:
    """Return at most `count` tokens for each pruned model with the largest loss increase, worst first.

    Losses are (tokens,), NaN for the first, of pruned models by label.
    """
    rows = [
        (name, index, dense[index], losses[index])
        for name, losses in methods.items()
        for index in np.argsort(-np.nan_to_num(losses - dense, nan=-np.inf), kind="stable")[:count]
        if losses[index] > dense[index]
    ]
    rows.sort(key=lambda row: row[2] - row[3])
    return pd.DataFrame(
        {
            "method": [name for name, *_ in rows],
            "worse by (nats)": [pruned_loss - dense_loss for *_, dense_loss, pruned_loss in rows],
            "before": [_context(tokens[max(0, index - BEFORE) : index]) for _, index, *_ in rows],
            "token": [_named(tokens, index) for _, index, *_ in rows],
            "after": [_context(tokens[index + 1 : index + 1 + AFTER]) for _, index, *_ in rows],
            "p dense": np.exp([-dense_loss for *_, dense_loss, _ in rows]),
            "p pruned": np.exp([-pruned_loss for *_, pruned_loss in rows]),
            "position": [int(index) for _, index, *_ in rows],
        }
    )


def _context(tokens: Sequence[Token]) -> str:
    return readable("".join(token.text for token in tokens)).replace("\n", "↵")


def _named(tokens: Sequence[Token], index: int) -> str:
    """Return the label of a token in a table; a token of a split character shows the character and its part."""
    token = tokens[index]
    text = visible(tokens[index - token.place + 1].text).rstrip("\n")
    return text if token.of == 1 else f"{text} {token.place}/{token.of}"


def _sign(character: str) -> str:
    kind = unicodedata.category(character)
    if character in "\n\t" or character in _JOINERS:
        return character
    if kind in ("Zl", "Zp") or character == "\r":
        return "␍"
    if kind == "Cc":
        number = ord(character)
        return chr(0x2400 + number) if number < 0x20 else "␡" if number == 0x7F else f"‹U+{number:04X}›"
    if kind == "Cf":
        return f"‹U+{ord(character):04X}›"
    return "\ufffd" if kind == "Cs" else character
