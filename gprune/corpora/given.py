"""Answers: which tokens do a text's name, or documents that somebody holds as strings, give?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gprune.corpora.tokens import choose, draw, encode
from gprune.corpora.tokens import stream as named_stream
from gprune.errors import CorpusError
from gprune.records import Array, Tokens
from gprune.store import Store
from gprune.untrusted import quoted

GIVEN = "given documents"
"""what documents without a name are called"""


def calibration(text: str | Sequence[str], tokenizer: Any, samples: int, length: int, seed: int) -> Tokens:
    """A calibration set; see `draw`.

    Args:
        text: a name, or documents.
        tokenizer: a Hugging Face tokenizer.
        samples: sequences to draw.
        length: tokens of each sequence.
        seed: of the permutation that chooses the sequences.

    Raises:
        CorpusError: the text cannot be read or is too short.
    """
    if isinstance(text, str):
        return draw(text, tokenizer, samples, length, seed, Store().texts)
    return choose(GIVEN, _flow(text, tokenizer), samples, length, seed)


def stream(text: str | Sequence[str], tokenizer: Any, limit: int | None = None) -> Array:
    """(tokens,) one stream of a text; see `gprune.corpora.stream`.

    Args:
        text: a name, or documents.
        tokenizer: a Hugging Face tokenizer.
        limit: tokens wanted at most.

    Raises:
        CorpusError: the text cannot be read or is empty.
    """
    if isinstance(text, str):
        return named_stream(text, tokenizer, Store().texts, limit)
    return _flow(text, tokenizer)[:limit]


def _flow(documents: Sequence[str], tokenizer: Any) -> Array:
    """The tokens of documents one after the other."""
    wrong = next((one for one in documents if not isinstance(one, str)), None)
    if wrong is not None:
        raise CorpusError(f"documents are strings (got {quoted(wrong)}): decode them first")
    kept = [one for one in documents if one.strip()]
    if not kept:
        raise CorpusError(f"the text {GIVEN!r} is empty: give a text with words in it")
    return np.asarray(encode(kept, tokenizer))
