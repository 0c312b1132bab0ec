"""Answers: which tokens do a text's name, or documents that somebody holds as strings, give?"""

import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from gprune.data.texts.tokens import choose, draw, encode
from gprune.data.texts.tokens import stream as named_stream
from gprune.records import Array, Tokens
from gprune.store import Store
from gprune.system.errors import CorpusError, SettingsError
from gprune.system.safe_parsing import quoted

GIVEN = "given documents"
"""what documents without a name are called"""


Words = str | os.PathLike[str] | Sequence[str]
"""a text by its name, a file, or documents"""


def calibration(text: Words, tokenizer: Any, samples: int, length: int, seed: int) -> Tokens:
    """A calibration set of a name, a file, or documents; see `draw`.

    Raises CorpusError where the text cannot be read or is too short.
    """
    _require_tokenizer(tokenizer)
    if isinstance(text, str | os.PathLike):
        return draw(os.fspath(text), tokenizer, samples, length, seed, Store().texts)
    return choose(GIVEN, _flow(text, tokenizer), samples, length, seed)


def stream(text: Words, tokenizer: Any, limit: int | None = None) -> Array:
    """(tokens,) one stream of a name, a file, or documents; see `gprune.data.texts.stream`.

    Raises CorpusError where the text cannot be read or is empty.
    """
    _require_tokenizer(tokenizer)
    if isinstance(text, str | os.PathLike):
        return named_stream(os.fspath(text), tokenizer, Store().texts, limit)
    return _flow(text, tokenizer)[:limit]


def name_of(text: Words) -> str:
    """What a text is called."""
    return os.fspath(text) if isinstance(text, str | os.PathLike) else GIVEN


def _require_tokenizer(tokenizer: object) -> None:
    """Raises SettingsError where something cannot be a tokenizer."""
    if not callable(tokenizer):
        raise SettingsError(f"tokenizer must be one of transformers (got {quoted(tokenizer)})")


def _flow(documents: Sequence[str], tokenizer: Any) -> Array:
    """The tokens of documents one after the other."""
    if isinstance(documents, bytes) or not isinstance(documents, Iterable):
        raise CorpusError(f"a text is a name, a file or a list of strings (got {quoted(documents)})")
    wrong = next((one for one in documents if not isinstance(one, str)), None)
    if wrong is not None:
        raise CorpusError(f"documents are strings (got {quoted(wrong)}): decode them first")
    kept = [one for one in documents if one.strip()]
    if not kept:
        raise CorpusError(f"the text {GIVEN!r} is empty: give a text with words in it")
    return np.asarray(encode(kept, tokenizer))
