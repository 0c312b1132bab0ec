"""Tokens of a text, as calibration sequences or as one stream for perplexity.

Calibration sequences never overlap (section 4: 2048 sequences of 128 tokens): the stream is cut into
consecutive blocks and a seeded permutation chooses among them. Documents are tokenised one by one with
the special tokens that the tokenizer adds by itself; texts that the literature reads as one string are
tokenised once.

LLM-Pruner's released code instead cuts one window at a random position out of each of some random documents, without
replacement, and passes over documents shorter than a sequence (section 4, baselines).
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gprune.data.texts.source import BLANK_LINE, Source, read_documents, resolve
from gprune.records import Array, Tokens
from gprune.store import Store
from gprune.system.errors import CorpusError, SettingsError
from gprune.system.safe_parsing import quote

# documents of a hub text for each window: of BookCorpus about 1 in 100 is long enough
_DOCUMENTS_PER_WINDOW = 256
# special tokens that a tokenizer puts around a document; every other token has a byte at least
_SPECIAL = 3


def draw_windows(text: str, tokenizer: Any, samples: int, length: int, seed: int, cache: Path | None = None) -> Tokens:
    """Draw one window of each of some random documents; see `draw`.

    The seed decides documents and windows; ids are (samples, length). Raises SettingsError if the name is not
    valid, CorpusError if the text cannot be read, or too few of its documents are long enough.
    """
    source = resolve(text, "calibration", download=True, tokens=tokens_for_windows(samples, length), cache=cache)
    texts = list(read_documents(source))
    order = np.argsort(np.random.default_rng(seed).random(len(texts)))
    positions = np.random.default_rng((seed, 1))
    windows: list[Array] = []
    for document in (texts[i] for i in order):
        if len(windows) == samples:
            break
        if len(document.encode("utf-8", "replace")) < length - _SPECIAL:
            continue
        ids = encode([document], tokenizer)
        if len(ids) >= length:
            start = int(positions.integers(len(ids) - length + 1))
            windows.append(ids[start : start + length])
    if len(windows) < samples:
        raise CorpusError(
            f"the text {text!r} has {len(windows):,} of {len(texts):,} documents with {length} tokens or "
            f"more, and {samples:,} were asked for: ask for fewer or shorter sequences, or longer documents"
        )
    ids = np.stack(windows)
    return Tokens(text=text, fingerprint=token_fingerprint(ids), ids=ids, available=samples)


def tokens_for_windows(samples: int, length: int) -> int:
    """Return the tokens of a hub text among whose documents windows are cut."""
    return _DOCUMENTS_PER_WINDOW * samples * length


_BATCH_CHARACTERS = 1 << 20
_BATCH_DOCUMENTS = 1024
# of the documents of a hub text as many are read as give this many times the tokens asked for
_HUB_FACTOR = 4


def draw(
    text: str,
    tokenizer: Any,
    samples: int,
    length: int,
    seed: int,
    cache: Path | None = None,
    after: int = 0,
) -> Tokens:
    """Draw a calibration set: (samples, length) token-disjoint sequences.

    `seed` is of the permutation that chooses and orders the sequences; `cache` is the folder of the store's texts;
    `after` is the number of sequences of a calibration set under the same seed, with which these share none. Raises
    SettingsError if the name is not valid, CorpusError if the text cannot be read or is too short.
    """
    count = tokens_for_calibration(after or samples, length)
    source = resolve(text, "calibration", download=True, tokens=count, cache=cache)
    partial = source.kind == "hub" and not source.joined
    return choose(text, _token_stream(source, tokenizer, count if partial else None), samples, length, seed, after)


def tokens_for_calibration(samples: int, length: int) -> int:
    """Return the tokens of a hub text among which a calibration set is drawn."""
    return _HUB_FACTOR * samples * length


def choose(text: str, tokens: Array, samples: int, length: int, seed: int, after: int = 0) -> Tokens:
    """Cut a (tokens,) stream into blocks and draw a calibration set from them; see `draw`.

    Raises CorpusError if the text is too short.
    """
    available = len(tokens) // length
    if available < after + samples:
        raise CorpusError(
            f"the text {text!r} gives {available:,} sequences of {length} tokens ({len(tokens):,} tokens in "
            f"all) and {after + samples:,} were asked for: ask for fewer or shorter sequences, or give a "
            "longer text"
        )
    blocks = tokens[: available * length].reshape(available, length)
    ids = blocks[np.random.default_rng(seed).permutation(available)[after : after + samples]]
    return Tokens(text=text, fingerprint=token_fingerprint(ids), ids=ids, available=available)


def stream(text: str, tokenizer: Any, cache: Path | None = None, limit: int | None = None) -> Array:
    """Return the text as one (tokens,) int32 stream, for perplexity.

    `limit` is the most tokens to return, the same prefix read sooner; `cache` is the folder of the store's texts.
    Raises SettingsError if the name is not valid, CorpusError if the text cannot be read or is empty.
    """
    source = resolve(text, "evaluation", download=True, tokens=limit, cache=cache)
    return _token_stream(source, tokenizer, limit)


def require_embedded(ids: Array, text: str, embeddings: int, tokenizer: Any = None) -> None:
    """Raise CorpusError if one of the token ids (any shape) has no row among a model's `embeddings`.

    With the `tokenizer` that made the ids, the message names the token.
    """
    if ids.size == 0 or (ids.min() >= 0 and ids.max() < embeddings):
        return
    if hasattr(tokenizer, "convert_ids_to_tokens") and len(tokenizer) > embeddings:
        token = tokenizer.convert_ids_to_tokens(int(ids[ids >= embeddings][0]))
        raise CorpusError(
            f"the tokenizer has {len(tokenizer)} tokens, the model {embeddings}: token {token} of {text!r} has no "
            "embedding. Remove it from the text, or from what the tokenizer adds, or use the model whose embeddings "
            "were resized to the tokenizer"
        )
    raise CorpusError(
        f"{text!r} holds token ids from {ids.min()} to {ids.max()}, but the model knows 0 to "
        f"{embeddings - 1}: tokenize it with the model's own tokenizer"
    )


def token_fingerprint(ids: Array) -> str:
    """Return the SHA-256 of token ids: of their shape and of the int32 values in little-endian order."""
    digest = hashlib.sha256(repr(tuple(ids.shape)).encode())
    digest.update(np.ascontiguousarray(ids, dtype="<i4").tobytes())
    return digest.hexdigest()


def _token_stream(source: Source, tokenizer: Any, enough: int | None) -> Array:
    """(tokens,) of the whole text, or its first `enough` without reading further."""
    if tokenizer is None:
        raise CorpusError(
            f"the text {source.name.text!r} cannot be tokenised: the model's folder has no tokenizer. "
            "Save the tokenizer's files beside the model"
        )
    pieces: list[Array] = []
    count = 0
    for batch in _batches(_strings(source)):
        pieces.append(encode(batch, tokenizer))
        count += len(pieces[-1])
        if enough is not None and count >= enough:
            break
    if not count:
        raise CorpusError(f"the text {source.name.text!r} is empty: give a text with words in it")
    return np.concatenate(pieces)[:enough]


def _strings(source: Source) -> Iterator[str]:
    strings = [BLANK_LINE.join(read_documents(source))] if source.joined else read_documents(source)
    # a text of white space only counts as empty
    return (string for string in strings if string.strip())


def _batches(strings: Iterator[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    characters = 0
    for string in strings:
        batch.append(string)
        characters += len(string)
        if characters >= _BATCH_CHARACTERS or len(batch) >= _BATCH_DOCUMENTS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def encode(batch: list[str], tokenizer: Any) -> Array:
    """Return the (tokens,) int32 ids of strings, one after the other, with the special tokens the tokenizer adds."""
    encoded = tokenizer(
        [_without_surrogates(string) for string in batch],
        padding=False,
        truncation=False,
        return_attention_mask=False,
        return_token_type_ids=False,
        verbose=False,
    )["input_ids"]
    return np.concatenate([np.asarray(ids, dtype=np.int32) for ids in encoded])


def _without_surrogates(string: str) -> str:
    """JSON may hold half a surrogate pair, which no tokenizer takes."""
    try:
        string.encode("utf-8")
    except UnicodeEncodeError:
        return string.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return string


GIVEN = "given documents"
"""name of documents in memory"""
Words = str | os.PathLike[str] | Sequence[str]
"""a text by its name, a file, or documents"""


def calibration(text: Words, tokenizer: Any, samples: int, length: int, seed: int) -> Tokens:
    """Draw a calibration set of a name, a file, or documents; see `draw`.

    Raises CorpusError if the text cannot be read or is too short.
    """
    _require_tokenizer(tokenizer)
    if isinstance(text, str | os.PathLike):
        return draw(os.fspath(text), tokenizer, samples, length, seed, Store().texts)
    return choose(GIVEN, _document_stream(text, tokenizer), samples, length, seed)


def text_stream(text: Words, tokenizer: Any, limit: int | None = None) -> Array:
    """Return the (tokens,) stream of a name, a file, or documents; see `stream`.

    Raises CorpusError if the text cannot be read or is empty.
    """
    _require_tokenizer(tokenizer)
    if isinstance(text, str | os.PathLike):
        return stream(os.fspath(text), tokenizer, Store().texts, limit)
    return _document_stream(text, tokenizer)[:limit]


def name_of(text: Words) -> str:
    """Return the name of a text."""
    return os.fspath(text) if isinstance(text, str | os.PathLike) else GIVEN


def _require_tokenizer(tokenizer: object) -> None:
    if not callable(tokenizer):
        raise SettingsError(f"tokenizer must be one of transformers (got {quote(tokenizer)})")


def _document_stream(documents: Sequence[str], tokenizer: Any) -> Array:
    if isinstance(documents, bytes) or not isinstance(documents, Iterable):
        raise CorpusError(f"a text is a name, a file or a list of strings (got {quote(documents)})")
    for document in documents:
        if not isinstance(document, str):
            raise CorpusError(f"documents are strings (got {quote(document)}): decode them first")
    texts = [document for document in documents if document.strip()]
    if not texts:
        raise CorpusError(f"the text {GIVEN!r} is empty: give a text with words in it")
    return encode(texts, tokenizer)
