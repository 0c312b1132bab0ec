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
    """A token as it is shown."""

    text: str
    """what it adds to the text; empty if an earlier token of the same character has it"""
    place: int = 1
    """which of the tokens of one character it is, from 1"""
    of: int = 1
    """how many they are"""


@dataclass(frozen=True, slots=True)
class Change:
    """The losses of a pruned model on a passage beside the dense one."""

    nats: float
    """mean loss difference of a token; positive where the pruned model is worse"""
    perplexity: float
    """of the pruned model over the passage"""
    dense: float
    """of the dense model"""


def loss_change(dense: Array, pruned: Array) -> Change:
    """The difference over a passage, from (tokens,) losses in nats, NaN for the first token."""
    with np.errstate(over="ignore"):
        values = [float(np.exp(np.nanmean(losses))) for losses in (pruned, dense)]
    return Change(float(np.nanmean(pruned - dense)), *values)


def loss_title(changes: Mapping[str, Change]) -> str:
    """The finding, by the labels of the methods."""
    parts = [
        f"{name} {format_signed(change.nats, '.2f')} nats/token (perplexity {change.perplexity:.1f})"
        for name, change in changes.items()
    ]
    dense = next(iter(changes.values())).dense
    return f"Beside the dense model (perplexity {dense:.1f}): {', '.join(parts)}"


def worst_window(dense: Array, pruned: Array) -> tuple[int, float]:
    """The window that a pruned model loses most on against the dense one, and how much, nats/token.

    `dense` and `pruned` are (windows,) losses of the same windows; of equal differences the first.
    """
    change = pruned - dense
    window = int(np.argmax(change))
    return window, float(change[window])


def scale(differences: Iterable[Array]) -> float:
    """Nats at which the colours end, on both sides: nearly all tokens of the passage differ by less."""
    values = np.abs(np.concatenate(list(differences)))
    values = values[np.isfinite(values)]
    return max(float(np.quantile(values, _STRONGEST)), _LEAST_SCALE) if values.size else _LEAST_SCALE


def visible(text: str) -> str:
    """Text in which spaces, ends of lines and control characters can be seen."""
    return readable(text).replace("\n", "↵\n").replace("\t", "⇥\t").replace(" ", "·")


def readable(text: str) -> str:
    """Text whose control and direction characters are signs, so that they do nothing; spaces stay."""
    return "".join(map(_sign, text))


def mark_spaces(token: Token) -> str:
    """A token with its spaces seen; of a character's later tokens only which they are."""
    return visible(token.text) if token.place == 1 else f"‹{token.place}/{token.of}›"


def worst(tokens: Sequence[Token], dense: Array, methods: Mapping[str, Array], count: int = LISTED) -> pd.DataFrame:
    """At most `count` tokens each that pruned models predict most worse than the dense one, worst first.

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
            "worse by (nats)": [after - before for *_, before, after in rows],
            "before": [_context(tokens[max(0, index - BEFORE) : index]) for _, index, *_ in rows],
            "token": [_named(tokens, index) for _, index, *_ in rows],
            "after": [_context(tokens[index + 1 : index + 1 + AFTER]) for _, index, *_ in rows],
            "p dense": np.exp([-before for *_, before, _ in rows]),
            "p pruned": np.exp([-after for *_, after in rows]),
            "position": [int(index) for _, index, *_ in rows],
        }
    )


def _context(tokens: Sequence[Token]) -> str:
    return readable("".join(token.text for token in tokens)).replace("\n", "↵")


def _named(tokens: Sequence[Token], index: int) -> str:
    """A token in a table; of a character of several tokens the character, and which of them it is."""
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
