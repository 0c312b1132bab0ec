"""Tokens of a text by its name, or of documents in memory."""

import os
from collections.abc import Iterable, Sequence
from typing import Any

from gprune.data.texts.tokens import choose, draw, encode
from gprune.data.texts.tokens import stream as named_stream
from gprune.records import Array, Tokens
from gprune.store import Store
from gprune.system.errors import CorpusError, SettingsError
from gprune.system.safe_parsing import quoted

GIVEN = "given documents"
"""name of documents in memory"""
Words = str | os.PathLike[str] | Sequence[str]
"""a text by its name, a file, or documents"""


def calibration(text: Words, tokenizer: Any, samples: int, length: int, seed: int) -> Tokens:
    """Draw a calibration set of a name, a file, or documents; see `draw`.

    Raises CorpusError where the text cannot be read or is too short.
    """
    _require_tokenizer(tokenizer)
    if isinstance(text, str | os.PathLike):
        return draw(os.fspath(text), tokenizer, samples, length, seed, Store().texts)
    return choose(GIVEN, _token_stream(text, tokenizer), samples, length, seed)


def stream(text: Words, tokenizer: Any, limit: int | None = None) -> Array:
    """Return the (tokens,) stream of a name, a file, or documents; see `gprune.data.texts.stream`.

    Raises CorpusError where the text cannot be read or is empty.
    """
    _require_tokenizer(tokenizer)
    if isinstance(text, str | os.PathLike):
        return named_stream(os.fspath(text), tokenizer, Store().texts, limit)
    return _token_stream(text, tokenizer)[:limit]


def name_of(text: Words) -> str:
    """Return the name of a text."""
    return os.fspath(text) if isinstance(text, str | os.PathLike) else GIVEN


def _require_tokenizer(tokenizer: object) -> None:
    if not callable(tokenizer):
        raise SettingsError(f"tokenizer must be one of transformers (got {quoted(tokenizer)})")


def _token_stream(documents: Sequence[str], tokenizer: Any) -> Array:
    if isinstance(documents, bytes) or not isinstance(documents, Iterable):
        raise CorpusError(f"a text is a name, a file or a list of strings (got {quoted(documents)})")
    for document in documents:
        if not isinstance(document, str):
            raise CorpusError(f"documents are strings (got {quoted(document)}): decode them first")
    texts = [document for document in documents if document.strip()]
    if not texts:
        raise CorpusError(f"the text {GIVEN!r} is empty: give a text with words in it")
    return encode(texts, tokenizer)
