"""Answers: which tokens does a text give, as calibration sequences or as one stream for perplexity?

Calibration sequences never overlap (section 4: 2048 sequences of 128 tokens): the stream is cut into
consecutive blocks and a seeded permutation chooses among them. Documents are tokenised one by one with
the special tokens that the tokenizer adds by itself; texts that the literature reads as one string are
tokenised once.

LLM-Pruner's released code takes documents at random instead, passes over those that have fewer tokens than a
sequence, takes none twice, and cuts one window out of each at a random place (section 4, baselines): a
draw without replacement among the documents that are long enough, made here in one pass over the text: each
document gets a random number, and the smallest ones are looked at.
"""

import hashlib
import heapq
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gprune.data.texts.source import BLANK_LINE, Source, documents, resolve
from gprune.records import Array, Tokens
from gprune.system.errors import CorpusError, SettingsError

# documents that are kept for every sequence asked for, the first time; of BookCorpus about 1 in 100 is used
_KEPT = 256
_GROWTH = 16
# special tokens that a tokenizer puts around a document; every other token has a byte at least
_SPECIAL = 3


def draw_windows(text: str, tokenizer: Any, samples: int, length: int, seed: int, cache: Path | None = None) -> Tokens:
    """Draws one window of each of so many random documents; see `draw`.

    The seed is of the choice of documents and of the windows in them; ids are (samples, length). Raises
    SettingsError where the name is not valid, CorpusError where the text cannot be read, or too few of its
    documents are long enough.
    """
    source = resolve(text, "calibration", download=True, tokens=cut_from(samples, length), cache=cache)
    kept, whole = _KEPT * samples, False
    long_enough: list[Array] = []
    while len(long_enough) < samples and not whole:
        candidates, total = _candidates(source, seed, kept, length)
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


def _candidates(source: Source, seed: int, kept: int, length: int) -> tuple[list[str], int]:
    """The documents with the smallest random numbers, in their order, and how many documents there are."""
    generator, total = np.random.default_rng(seed), 0
    smallest: list[tuple[float, str]] = []
    for document in documents(source):
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
    """Draws a calibration set: (samples, length) token-disjoint sequences.

    `seed` is of the permutation that chooses and orders the sequences; `cache` is the folder of
    the store's texts; `after` is the number of sequences of a calibration set under the same seed, which none of these
    are then. Raises SettingsError where samples, length or seed is out of range or the name is not valid,
    CorpusError where the text cannot be read or is too short.
    """
    for setting, value, least in (("samples", samples, 1), ("length", length, 1), ("seed", seed, 0)):
        if value < least:
            raise SettingsError(f"{setting} must be at least {least} (got {value})")
    return choose(text, _drawable(text, tokenizer, after or samples, length, cache), samples, length, seed, after)


def _drawable(text: str, tokenizer: Any, samples: int, length: int, cache: Path | None) -> Array:
    """The tokens among which a calibration set of so many sequences is drawn."""
    wanted = drawn_from(samples, length)
    source = resolve(text, "calibration", download=True, tokens=wanted, cache=cache)
    partial = source.kind == "hub" and not source.joined
    return _flow(source, tokenizer, wanted if partial else None)


def missing(text: str, tokenizer: Any, samples: int, held_out: int, length: int, cache: Path | None) -> int:
    """How many sequences a text lacks to give a calibration set and so many held-out ones; 0 for none.

    `samples` is 0 where nothing is calibrated on it. Errors as `draw`.
    """
    flow = _drawable(text, tokenizer, samples or held_out, length, cache)
    return max(0, samples + held_out - len(flow) // length)


def drawn_from(samples: int, length: int) -> int:
    """Tokens of a hub text among which a calibration set is drawn."""
    return _HUB_FACTOR * samples * length


def choose(text: str, flow: Array, samples: int, length: int, seed: int, after: int = 0) -> Tokens:
    """Cuts a (tokens,) stream into blocks and draws a calibration set from them; see `draw`.

    Raises CorpusError where the text is too short.
    """
    available = len(flow) // length
    if available < after + samples:
        raise CorpusError(
            f"the text {text!r} gives {available:,} sequences of {length} tokens ({len(flow):,} tokens in "
            f"all) and {after + samples:,} were asked for: ask for fewer or shorter sequences, or give a "
            "longer text"
        )
    blocks = flow[: available * length].reshape(available, length)
    ids = blocks[np.random.default_rng(seed).permutation(available)[after : after + samples]]
    return Tokens(text=text, fingerprint=token_fingerprint(ids), ids=ids, available=available)


def stream(text: str, tokenizer: Any, cache: Path | None = None, limit: int | None = None) -> Array:
    """(tokens,) int32: the text as one token stream, for perplexity.

    `limit` is the tokens wanted at most, the same prefix read sooner; `cache` is the folder of the
    store's texts. Raises SettingsError where limit is out of range or the name is not valid, CorpusError where the
    text cannot be read or is empty.
    """
    if limit is not None and limit < 1:
        raise SettingsError(f"limit must be at least 1 (got {limit})")
    source = resolve(text, "evaluation", download=True, tokens=limit, cache=cache)
    return _flow(source, tokenizer, limit)


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
    """SHA-256 of token ids: of their shape and of the int32 values in little-endian order."""
    digest = hashlib.sha256(repr(tuple(ids.shape)).encode())
    digest.update(np.ascontiguousarray(ids, dtype="<i4").tobytes())
    return digest.hexdigest()


def _flow(source: Source, tokenizer: Any, enough: int | None) -> Array:
    """Tokens of the whole text, or its first `enough` where that is known after fewer documents."""
    if tokenizer is None:
        raise CorpusError(
            f"the text {source.name.asked!r} cannot be tokenised: the model's folder has no tokenizer. "
            "Save the tokenizer's files beside the model"
        )
    pieces: list[Array] = []
    found = 0
    for batch in _batches(_strings(source)):
        pieces.append(encode(batch, tokenizer))
        found += len(pieces[-1])
        if enough is not None and found >= enough:
            break
    if not found:
        raise CorpusError(f"the text {source.name.asked!r} is empty: give a text with words in it")
    return np.concatenate(pieces)[:enough]


def _strings(source: Source) -> Iterator[str]:
    """What is tokenised at a time; a text of white space only counts as empty."""
    if source.joined:
        whole = BLANK_LINE.join(documents(source))
        yield from [whole] if whole.strip() else []
        return
    for document in documents(source):
        if document.strip():
            yield document


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
    """(tokens,) int32 ids of strings, one after the other, with the special tokens the tokenizer adds."""
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
