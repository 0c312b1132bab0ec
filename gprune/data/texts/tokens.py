"""Tokenize texts into calibration sequences, or into one stream for perplexity.

Calibration sequences do not overlap (section 4: 2048 sequences of 128 tokens): the stream is cut into consecutive
blocks, from which a seeded permutation selects. Documents are tokenized separately with the tokenizer's default special
tokens; texts that the literature reads as one string are tokenized as one string.

LLM-Pruner's released code instead cuts one window at a random position from each of several random documents, without
replacement, and skips documents shorter than a sequence (section 4, baselines).
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from gprune.data.texts import chat, naming, sampled
from gprune.data.texts.naming import TextName
from gprune.data.texts.source import BLANK_LINE, Role, Source, fields_of, read_documents, resolve
from gprune.records import Array, SampledText, Tokens
from gprune.store import Store
from gprune.system.errors import CorpusError, SettingsError
from gprune.system.safe_parsing import quote, replace_surrogates

# amount of a hub text that is read per window, in lengths of a window; in BookCorpus about 1 document in 100 is long
# enough
_LENGTHS_PER_WINDOW = 256
# maximum number of special tokens that a tokenizer adds to a document; every other token has at least one byte
_SPECIAL_TOKENS = 3
_PROMPT = "prompt"
"""field of a record with a prompt"""
_ROLES: tuple[Role, Role] = ("evaluation", "calibration")


def draw_windows(text: str, tokenizer: Any, samples: int, length: int, seed: int, cache: Path | None = None) -> Tokens:
    """Draw (samples, length) windows, one from each of `samples` random documents, as LLM-Pruner's code does.

    Raises SettingsError if the name is not valid, CorpusError if the text cannot be read or too few of its documents
    are long enough. For the arguments see `draw`.
    """
    source = resolve(text, "calibration", download=True, tokens=tokens_for_windows(samples, length), cache=cache)
    texts = list(read_documents(source))
    order = np.argsort(np.random.default_rng(seed).random(len(texts)))
    position_generator = np.random.default_rng((seed, 1))
    windows: list[Array] = []
    for document in (texts[i] for i in order):
        if len(windows) == samples:
            break
        # such a document is too short in any case, so it is not tokenized
        if len(document.encode("utf-8", "replace")) < length - _SPECIAL_TOKENS:
            continue
        ids = _encode_documents([document], tokenizer, source.name)
        if len(ids) >= length:
            start = int(position_generator.integers(len(ids) - length + 1))
            windows.append(ids[start : start + length])
    if len(windows) < samples:
        raise CorpusError(
            f"the text {text!r} has {len(windows):,} of {len(texts):,} documents with {length} tokens or "
            f"more, but {samples:,} were requested: request fewer or shorter sequences, or longer documents"
        )
    ids = np.stack(windows)
    return Tokens(text=text, fingerprint=token_fingerprint(ids), ids=ids, available=samples)


def tokens_for_windows(samples: int, length: int) -> int:
    """Return the number of tokens of a hub text to download for `draw_windows`."""
    return _LENGTHS_PER_WINDOW * samples * length


_BATCH_CHARACTERS = 1 << 20
_BATCH_DOCUMENTS = 1024
# tokens read from a hub text, as a multiple of the requested tokens
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

    `seed` is the seed of the permutation that selects and orders the sequences, and `cache` is the folder of the
    store's texts. `after` skips the first sequences of the permutation, so that the result is disjoint from a
    calibration set of `after` sequences with the same seed. Raises SettingsError if the name is not valid, CorpusError
    if the text cannot be read or is too short.
    """
    # a held-out set must be drawn from as many tokens as the calibration set that it must not overlap
    count = tokens_for_calibration(after or samples, length)
    source = resolve(text, "calibration", download=True, tokens=count, cache=cache)
    documents = read_documents(source)
    first = next(documents, "")
    documents = chain([first], documents)
    if chat.is_conversation(first):
        return _draw_conversations(source.name, documents, tokenizer, samples, length, seed, after)
    limit = count if source.kind == "hub" and not source.joined else None
    return choose(text, _token_stream(source, documents, tokenizer, limit), samples, length, seed, after)


def _draw_conversations(
    name: TextName, documents: Iterable[str], tokenizer: Any, samples: int, length: int, seed: int, after: int
) -> Tokens:
    """Draw a calibration set of whole conversations, packed or one per sequence; see `draw`.

    Sequences are padded on the right. A conversation that is longer than a sequence is left out.
    """
    text, rendering = name.text, chat.Rendering.of(name)
    _require_tokenizer_files(tokenizer, text)
    conversations = list(map(chat.ChatEncoder(tokenizer, rendering, text).encode_with_roles, documents))
    padding = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id or 0
    return _draw_packs(text, conversations, rendering, padding, samples, length, seed, after)


def _draw_packs(
    text: str,
    conversations: Sequence[chat.RenderedChat],
    rendering: chat.Rendering,
    padding: int,
    samples: int,
    length: int,
    seed: int,
    after: int = 0,
) -> Tokens:
    """Draw a calibration set from conversations; `padding` is the id after the end of a sequence."""
    fitting = [conversation for conversation in conversations if len(conversation.ids) <= length]
    packs = pack([len(conversation.ids) for conversation in fitting], length, rendering.single)
    if len(packs) < after + samples:
        raise CorpusError(
            f"the text {text!r} gives {len(packs):,} sequences of at most {length} tokens from "
            f"{len(conversations):,} conversations, of which {len(conversations) - len(fitting):,} are longer, but "
            f"{after + samples:,} were requested: request fewer sequences, or a larger calibration.length"
        )
    order = np.random.default_rng(seed).permutation(len(packs))[after : after + samples]
    ids = np.full((samples, length), padding, np.int32)
    counted, content = (np.zeros(ids.shape, bool) for _ in range(2))
    for row, index in enumerate(order):
        members = [fitting[number] for number in packs[index]]
        width = sum(len(member.ids) for member in members)
        ids[row, :width] = np.concatenate([member.ids for member in members])
        content[row, :width] = np.concatenate([member.is_content for member in members])
        answers = np.concatenate([member.is_assistant for member in members])
        counted[row, :width] = answers if rendering.assistant_only else True
    tokens = Tokens(text, "", ids, len(packs), None if counted.all() else counted, content)
    return replace(tokens, fingerprint=token_fingerprint(tokens.signed_ids))


def pack(widths: Sequence[int], length: int, single: bool) -> list[list[int]]:
    """Return the indices of the conversations in each sequence of `length` tokens, in order.

    `widths` are the tokens of the conversations. A sequence has as many as fit, or one if `single`.
    """
    packs: list[list[int]] = []
    room = 0
    for index, width in enumerate(widths):
        if single or width > room:
            packs.append([])
            room = length
        packs[-1].append(index)
        room -= width
    return packs


def read_prompts(
    text: str, tokenizer: Any, is_calibration: bool, cache: Path | None = None
) -> Iterator[chat.RenderedChat]:
    """Yield the prompts of a text of the model's answers, in order; `is_calibration` determines the default split.

    Plain text is a message of the user if the tokenizer has a chat template. With the option prompt=, or without a
    template, the model continues it. Raises CorpusError if the prompts cannot be read or rendered.
    """
    name = naming.parse(text)
    size, role = sampled.sampling_of(name).prompt, _ROLES[is_calibration]
    source = resolve(sampled.prompts_of(name), role, download=True, cache=cache)
    if not source.name.fields and _PROMPT in fields_of(source):
        source = resolve(source.name.with_options(fields=_PROMPT), role, cache=cache)
    _require_tokenizer_files(tokenizer, text)
    is_chat = not size and bool(getattr(tokenizer, "chat_template", None))
    encoder: chat.ChatEncoder | None = None
    for document in read_documents(source):
        if is_chat or chat.is_conversation(document):
            encoder = encoder or chat.ChatEncoder(tokenizer, chat.Rendering.of(name), text)
            yield encoder.encode_prompt(chat.as_conversation(document))
        elif document.strip():
            ids = encode([document], tokenizer)[: size or None]
            yield chat.RenderedChat(ids, np.ones(len(ids), bool), np.zeros(len(ids), bool))


def choose_sampled(sampled_text: SampledText, samples: int, length: int, seed: int) -> Tokens:
    """Draw a calibration set from text that the model wrote; answers keep their prompts. See `draw`."""
    contents, answers = sampled_text.content, sampled_text.answer
    if contents is None or answers is None:
        return choose(sampled_text.text, sampled_text.stream, samples, length, seed)
    name, documents = naming.parse(sampled_text.text), []
    for ids, content, answer in zip(sampled_text.ids, contents, answers, strict=True):
        is_token = ids >= 0
        documents.append(chat.RenderedChat(ids[is_token], content[is_token], answer[is_token]))
    return _draw_packs(name.text, documents, chat.Rendering.of(name), 0, samples, length, seed)


def tokens_for_calibration(samples: int, length: int) -> int:
    """Return the number of tokens of a hub text to download for a calibration set."""
    return _HUB_FACTOR * samples * length


def choose(text: str, tokens: Array, samples: int, length: int, seed: int, after: int = 0) -> Tokens:
    """Cut a (tokens,) stream into blocks and draw a calibration set from them; see `draw`.

    Raises CorpusError if the text is too short.
    """
    available = len(tokens) // length
    if available < after + samples:
        raise CorpusError(
            f"the text {text!r} gives {available:,} sequences of {length} tokens ({len(tokens):,} tokens in "
            f"all), but {after + samples:,} were requested: request fewer or shorter sequences, or give a "
            "longer text"
        )
    blocks = tokens[: available * length].reshape(available, length)
    ids = blocks[np.random.default_rng(seed).permutation(available)[after : after + samples]]
    return Tokens(text=text, fingerprint=token_fingerprint(ids), ids=ids, available=available)


def stream(text: str, tokenizer: Any, cache: Path | None = None, limit: int | None = None) -> Array:
    """Return the text as one (tokens,) int32 stream, for perplexity.

    `limit` is the maximum number of tokens, or None for all; `cache` is the folder of the store's texts. Raises
    SettingsError if the name is not valid, CorpusError if the text cannot be read or is empty.
    """
    source = resolve(text, "evaluation", download=True, tokens=limit, cache=cache)
    return _token_stream(source, read_documents(source), tokenizer, limit)


def require_embedded(ids: Array, text: str, embeddings: int, tokenizer: Any = None) -> None:
    """Raise CorpusError if a token id of a text has none of the model's embeddings, whose number is `embeddings`.

    If the `tokenizer` of the ids is given, the message includes the token.
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
    """Return the SHA-256 of the shape of token ids and their little-endian int32 values."""
    digest = hashlib.sha256(repr(tuple(ids.shape)).encode())
    digest.update(np.ascontiguousarray(ids, dtype="<i4").tobytes())
    return digest.hexdigest()


def _token_stream(source: Source, documents: Iterable[str], tokenizer: Any, limit: int | None) -> Array:
    """Return the (tokens,) ids of a text's documents, or the first `limit` ids without reading further."""
    _require_tokenizer_files(tokenizer, source.name.text)
    pieces: list[Array] = []
    count = 0
    strings = [BLANK_LINE.join(documents)] if source.joined else documents
    for batch in _batches(string for string in strings if string.strip()):
        pieces.append(_encode_documents(batch, tokenizer, source.name))
        count += len(pieces[-1])
        if limit is not None and count >= limit:
            break
    if not count:
        raise CorpusError(f"the text {source.name.text!r} is empty: give a text with words in it")
    return np.concatenate(pieces)[:limit]


def _require_tokenizer_files(tokenizer: Any, text: str) -> None:
    if tokenizer is None:
        raise CorpusError(
            f"the text {text!r} cannot be tokenized: the model's folder has no tokenizer. "
            "Save the tokenizer's files in the model folder"
        )


def _encode_documents(documents: list[str], tokenizer: Any, name: TextName) -> Array:
    """Return the concatenated (tokens,) ids of documents, which are strings or conversations."""
    if not chat.is_conversation(documents[0]):
        return encode(documents, tokenizer)
    encoder = chat.ChatEncoder(tokenizer, chat.Rendering.of(name), name.text)
    return np.concatenate([encoder.encode(document) for document in documents])


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
    """Return the concatenated (tokens,) int32 ids of strings with the tokenizer's default special tokens."""
    encoded = tokenizer(
        [replace_surrogates(string) for string in batch],
        padding=False,
        truncation=False,
        return_attention_mask=False,
        return_token_type_ids=False,
        verbose=False,
    )["input_ids"]
    return np.concatenate([np.asarray(ids, dtype=np.int32) for ids in encoded])


GIVEN = "given documents"
"""display name of documents in memory"""
TextInput = str | os.PathLike[str] | Sequence[str] | Sequence[Mapping[str, Any]]
"""name of a text, path of a file, or documents or conversations (records with messages) in memory"""


def calibration(text: TextInput, tokenizer: Any, samples: int, length: int, seed: int) -> Tokens:
    """Draw a calibration set from a named text, a file, or documents in memory; see `draw`.

    Raises CorpusError if the text cannot be read or is too short.
    """
    _require_tokenizer(tokenizer)
    if isinstance(text, str | os.PathLike):
        return draw(os.fspath(text), tokenizer, samples, length, seed, Store().texts)
    if _holds_records(text):
        documents = _write_conversations(text)
        return _draw_conversations(naming.TextName(GIVEN, GIVEN), documents, tokenizer, samples, length, seed, 0)
    return choose(GIVEN, _document_stream(text, tokenizer), samples, length, seed)


def text_stream(text: TextInput, tokenizer: Any, limit: int | None = None) -> Array:
    """Return the (tokens,) stream of a named text, a file, or documents in memory; see `stream`.

    Raises CorpusError if the text cannot be read or is empty.
    """
    _require_tokenizer(tokenizer)
    if isinstance(text, str | os.PathLike):
        return stream(os.fspath(text), tokenizer, Store().texts, limit)
    return _document_stream(text, tokenizer)[:limit]


def name_of(text: TextInput) -> str:
    """Return the name of a text; that of documents in memory is `GIVEN`."""
    return os.fspath(text) if isinstance(text, str | os.PathLike) else GIVEN


def _require_tokenizer(tokenizer: object) -> None:
    if not callable(tokenizer):
        raise SettingsError(f"tokenizer must be a transformers tokenizer (got {quote(tokenizer)})")


def _holds_records(documents: Any) -> bool:
    return isinstance(documents, list | tuple) and isinstance(next(iter(documents), None), Mapping)


def _write_conversations(rows: Iterable[Any]) -> list[str]:
    """Return conversations in memory as documents. Raises CorpusError if a record has no messages."""
    documents = []
    for number, row in enumerate(rows, start=1):
        fields = chat.chat_fields(row) if isinstance(row, Mapping) else ()
        if not fields:
            raise CorpusError(f"record {number} has no messages: give strings, or records with messages in each")
        documents.append(chat.write_document({name: row[name] for name in fields}, f"record {number}"))
    return documents


def _document_stream(documents: Sequence[Any], tokenizer: Any) -> Array:
    if _holds_records(documents):
        return _encode_documents(_write_conversations(documents), tokenizer, naming.TextName(GIVEN, GIVEN))
    if isinstance(documents, bytes) or not isinstance(documents, Iterable):
        raise CorpusError(f"a text must be a name, a file or a list of strings (got {quote(documents)})")
    for document in documents:
        if not isinstance(document, str):
            raise CorpusError(f"documents must be strings (got {quote(document)}): decode them first")
    texts = [document for document in documents if document.strip()]
    if not texts:
        raise CorpusError(f"the text {GIVEN!r} is empty: give a text with words in it")
    return encode(texts, tokenizer)
