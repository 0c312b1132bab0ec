"""Answers: which sequences does LLM-Pruner's released code cut from a text?

It takes documents at random, passes over those that have fewer tokens than a sequence, takes none twice, and
cuts one window out of each at a random place (section 4, baselines). That is a draw without replacement among
the documents that are long enough, made here in one pass over the text: every document gets a random number,
and the smallest ones are looked at.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gprune.data.texts.source import Source, documents, resolve
from gprune.data.texts.tokens import encode, token_fingerprint
from gprune.records import Array, Tokens
from gprune.system.errors import CorpusError

# documents that are kept for every sequence asked for, the first time; of BookCorpus about 1 in 100 is used
_KEPT = 256
_GROWTH = 16
# special tokens that a tokenizer puts around a document; every other token has a byte at least
_SPECIAL = 3


def draw_windows(
    text: str, tokenizer: Any, samples: int, length: int, seed: int, cache: Path | None = None
) -> Tokens:
    """Draws one window of each of so many random documents.

    Args:
        text: the text's name as typed.
        tokenizer: a Hugging Face tokenizer.
        samples: windows to draw, each from another document.
        length: tokens of each window.
        seed: seed of the choice of documents and of the windows in them.
        cache: folder that keeps embedded texts from call to call.

    Returns:
        Tokens with ids of shape (samples, length).

    Raises:
        SettingsError: the name is not valid.
        CorpusError: the text cannot be read, or too few of its documents are long enough.
    """
    source = resolve(text, "calibration", download=True, tokens=cut_from(samples, length))
    kept, whole = _KEPT * samples, False
    long_enough: list[Array] = []
    while len(long_enough) < samples and not whole:
        candidates, total = _candidates(source, cache, seed, kept, length)
        long_enough = list(_long_enough(candidates, tokenizer, samples, length))
        whole, kept = len(candidates) < kept, kept * _GROWTH
    if len(long_enough) < samples:
        raise CorpusError(
            f"the text {text!r} has {len(long_enough):,} of {total:,} documents with {length} tokens or "
            f"more, and {samples:,} were asked for: ask for fewer or shorter sequences, or longer documents"
        )
    places = np.random.default_rng((seed, 1))
    starts = [int(places.integers(len(ids) - length + 1)) for ids in long_enough]
    windows = [ids[start : start + length] for ids, start in zip(long_enough, starts, strict=True)]
    ids = np.stack(windows)
    return Tokens(text=text, fingerprint=token_fingerprint(ids), ids=ids, available=samples)


def cut_from(samples: int, length: int) -> int:
    """Tokens of a hub text among whose documents windows are cut."""
    return _KEPT * samples * length


def _candidates(
    source: Source, cache: Path | None, seed: int, kept: int, length: int
) -> tuple[list[str], int]:
    """The documents with the smallest random numbers, in their order, and how many documents there are."""
    generator, total = np.random.default_rng(seed), 0
    smallest: list[tuple[float, str]] = []
    for document in documents(source, cache):
        total += 1
        number = float(generator.random())
        if len(document.encode("utf-8", "replace")) < length - _SPECIAL:
            continue
        if len(smallest) < kept:
            heapq.heappush(smallest, (-number, document))
        elif number < -smallest[0][0]:
            heapq.heapreplace(smallest, (-number, document))
    return [document for _, document in sorted(smallest, reverse=True)], total


def _long_enough(candidates: list[str], tokenizer: Any, samples: int, length: int) -> Iterator[Array]:
    """The token ids of the first documents that have enough of them."""
    found = 0
    for document in candidates:
        ids = encode([document], tokenizer)
        if len(ids) >= length:
            found += 1
            yield ids
        if found == samples:
            return
