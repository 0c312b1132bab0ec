"""Losses of pruned models per token, compared with the dense model."""

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gprune.analysis.formatting import format_signed
from gprune.records import Array

LISTED = 12
"""maximum number of listed tokens per method"""
BEFORE, AFTER = 12, 5
"""tokens of context before and after a listed token"""
_SCALE_QUANTILE = 0.98
"""quantile of the absolute differences at the end of the colour scale"""
_MIN_SCALE = 0.1
"""smallest end of the colour scale in nats, so that noise does not get strong colours"""
_JOINERS = "\u200c\u200d"
"""zero-width (non-)joiners, which are part of words and emoji and therefore not replaced"""


@dataclass(frozen=True, slots=True, eq=False)
class Token:
    """A token as displayed."""

    text: str
    """text of the token; empty if an earlier token already shows the same character"""
    part: int = 1
    """position of the token, from 1, among the tokens of its character"""
    parts: int = 1
    """number of tokens of the character"""


@dataclass(frozen=True, slots=True)
class Change:
    """Loss of a pruned model on a passage compared with the dense model."""

    nats: float
    """mean loss difference per token; positive if the pruned model is worse"""
    perplexity: float
    """perplexity of the pruned model on the passage"""
    dense: float
    """perplexity of the dense model on the passage"""


def loss_change(dense: Array, pruned: Array) -> Change:
    """Return the change on a passage from (tokens,) losses in nats, NaN for the first token."""
    with np.errstate(over="ignore"):
        values = [float(np.exp(np.nanmean(losses))) for losses in (pruned, dense)]
    return Change(float(np.nanmean(pruned - dense)), *values)


def loss_title(changes: Mapping[str, Change]) -> str:
    """Describe the changes of the methods, keyed by label, in one sentence."""
    clauses = [
        f"{name} {format_signed(change.nats, '.2f')} nats/token (perplexity {change.perplexity:.1f})"
        for name, change in changes.items()
    ]
    dense = next(iter(changes.values())).dense
    return f"Compared with the dense model (perplexity {dense:.1f}): {', '.join(clauses)}"


def worst_window(dense: Array, pruned: Array) -> tuple[int, float]:
    """Return the window with the largest loss increase of a pruned model, and that increase in nats/token.

    `dense` and `pruned` are (windows,) losses of the same windows; at a tie the first window is returned.
    """
    change = pruned - dense
    window = int(np.argmax(change))
    return window, float(change[window])


def color_scale_limit(differences: Iterable[Array]) -> float:
    """Return the end of the colour scale in nats: the 98% quantile of the absolute differences, at least 0.1."""
    values = np.abs(np.concatenate(list(differences)))
    values = values[np.isfinite(values)]
    return max(float(np.quantile(values, _SCALE_QUANTILE)), _MIN_SCALE) if values.size else _MIN_SCALE


def visible(text: str) -> str:
    """Return text with symbols for spaces, line ends and control characters."""
    return readable(text).replace("\n", "↵\n").replace("\t", "⇥\t").replace(" ", "·")


def readable(text: str) -> str:
    """Return text with control and format characters replaced by symbols, except tabs, line feeds and joiners."""
    return "".join(map(_replace_control, text))


def mark_spaces(token: Token) -> str:
    """Return a token with visible spaces; the second of three tokens of one character is shown as ‹2/3›."""
    return visible(token.text) if token.part == 1 else f"‹{token.part}/{token.parts}›"


def worst_tokens(tokens: Sequence[Token], dense: Array, pruned: Mapping[str, Array], top: int = LISTED) -> pd.DataFrame:
    """Return a table of at most `top` tokens per pruned model, in descending order of the loss increase.

    Losses are (tokens,), NaN for the first token; `pruned` has the losses of the pruned models by label.
    """
    rows = [
        (name, index, dense[index], losses[index])
        for name, losses in pruned.items()
        for index in np.argsort(-np.nan_to_num(losses - dense, nan=-np.inf), kind="stable")[:top]
        if losses[index] > dense[index]
    ]
    # descending order of pruned loss minus dense loss
    rows.sort(key=lambda row: row[2] - row[3])
    return pd.DataFrame(
        {
            "method": [name for name, *_ in rows],
            "worse by (nats)": [pruned_loss - dense_loss for *_, dense_loss, pruned_loss in rows],
            "before": [_join_context(tokens[max(0, index - BEFORE) : index]) for _, index, *_ in rows],
            "token": [_label_token(tokens, index) for _, index, *_ in rows],
            "after": [_join_context(tokens[index + 1 : index + 1 + AFTER]) for _, index, *_ in rows],
            "p dense": np.exp([-dense_loss for *_, dense_loss, _ in rows]),
            "p pruned": np.exp([-pruned_loss for *_, pruned_loss in rows]),
            "position": [int(index) for _, index, *_ in rows],
        }
    )


def _join_context(tokens: Sequence[Token]) -> str:
    return readable("".join(token.text for token in tokens)).replace("\n", "↵")


def _label_token(tokens: Sequence[Token], index: int) -> str:
    """Return the label of a token in a table; for a split character, the character and the number of the token."""
    token = tokens[index]
    text = visible(tokens[index - token.part + 1].text).rstrip("\n")
    return text if token.parts == 1 else f"{text} {token.part}/{token.parts}"


def _replace_control(character: str) -> str:
    """Return a character, or the symbol of a control or format character or of a surrogate."""
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
