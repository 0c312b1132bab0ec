"""Answers: how much of an evaluated text stands word for word in a calibration text, and how is text cut?

Word for word means: a run of several tokens that occurs in both. Runs are compared exactly, without hashing:
every run of k tokens gets a number, those of 2k tokens the number of a pair of such runs, and so on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gprune.records import Array, TextOverlap, Tokens

_TOKENS, _VOCABULARY = 13, 32_000
"""13 tokens of a vocabulary of 32,000 rarely meet by chance; Brown et al. (2020) look for as many"""


def run_length(vocabulary: int) -> int:
    """Tokens of a run that is looked for: as many possible runs as 13 tokens of 32,000 have.

    Args:
        vocabulary: tokens that the tokenizer knows; a small one has short tokens, and needs longer runs.
    """
    return math.ceil(_TOKENS * math.log(_VOCABULARY) / math.log(max(vocabulary, 2)))


def cut(stream: Array, length: int, most: int | None = None) -> Array:
    """The windows that perplexity is measured on.

    Args:
        stream: (tokens,) a text's token ids.
        length: tokens of a window.
        most: windows wanted at most; None for all.

    Returns:
        (windows, length) consecutive windows from the start; what is left at the end is dropped.
    """
    count = len(stream) // length
    count = min(count, most or count)
    return np.asarray(stream)[: count * length].reshape(count, length)


def measured(text: str, windows: Array, calibration: Sequence[Tokens], vocabulary: int) -> TextOverlap:
    """How much of an evaluated text stands in calibration sets.

    Args:
        text: the evaluation text, as typed.
        windows: (windows, length) its token ids.
        calibration: the sets.
        vocabulary: tokens that the tokenizer knows.

    Returns:
        The shares; runs are no longer than the windows and sequences are.
    """
    lengths = [windows.shape[1], *(tokens.ids.shape[1] for tokens in calibration)]
    run = min(run_length(vocabulary), *lengths)
    share = [shared(windows, tokens.ids, run) for tokens in calibration]
    drawn = [min(1.0, len(tokens.ids) / max(tokens.available, 1)) for tokens in calibration]
    return TextOverlap(text, run, len(windows), np.array(share), np.array(drawn))


def shared(windows: Array, sequences: Array, run: int) -> float:
    """Share of the runs of some windows that occur in some sequences.

    Args:
        windows: (windows, length) token ids that are evaluated.
        sequences: (samples, length) token ids of a calibration set; lengths may differ.
        run: tokens of a run, at most the length of both.

    Returns:
        A share in [0, 1]; 0 where there is no window.
    """
    first, second = _numbered(windows, sequences, run)
    known = np.zeros(int(max(first.max(initial=-1), second.max(initial=-1))) + 1, dtype=bool)
    known[second] = True
    return float(known[first].mean()) if first.size else 0.0


def _numbered(windows: Array, sequences: Array, run: int) -> tuple[Array, Array]:
    """A number for every run of tokens of both; equal runs, and only they, have equal numbers."""
    parts = [np.asarray(windows, dtype=np.int64), np.asarray(sequences, dtype=np.int64)]
    done = 1
    while done < run:
        # two runs that overlap or touch make a longer one
        step = min(done, run - done)
        parts = _paired(parts, step)
        done += step
    return parts[0].ravel(), parts[1].ravel()


def _paired(parts: list[Array], step: int) -> list[Array]:
    """A number for every pair of numbers that stand `step` apart in a row."""
    base = int(max(part.max(initial=0) for part in parts)) + 1
    pairs = [part[:, :-step] * base + part[:, step:] for part in parts]
    _, numbers = np.unique(np.concatenate([pair.ravel() for pair in pairs]), return_inverse=True)
    first, second = np.split(numbers, [pairs[0].size])
    return [first.reshape(pairs[0].shape), second.reshape(pairs[1].shape)]
