"""Encode and decode text with a model's tokenizer, without loading the model."""

from collections.abc import Sequence

from tokenizers import Tokenizer

from gprune.models import identity
from gprune.models.families import language_values
from gprune.records import Array
from gprune.system.errors import GpruneError, ModelError

_BROKEN = "\ufffd"
"""replacement character, to which the bytes of an incomplete character are decoded"""
_MOST_NEIGHBOURS = 3
"""maximum number of neighbouring tokens on each side that complete a character, which has at most four bytes"""


def tokenizer(model: str) -> Tokenizer:
    """Return the tokenizer of a model. Raises ModelError if the model or tokenizer.json is missing."""
    path = identity.tokenizer_folder(identity.locate(model)) / "tokenizer.json"
    if not path.is_file():
        raise ModelError(
            f"the model {model!r} has no tokenizer.json, without which text cannot be tokenized here: save the text "
            "as a file and start a run with it on the page Runs & export"
        )
    try:
        fast_tokenizer: Tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises plain Exceptions
        raise ModelError(f"{str(path)!r} cannot be read ({error}): copy the model again") from error
    fast_tokenizer.no_padding()
    fast_tokenizer.no_truncation()
    return fast_tokenizer


def vocabulary_size(model: str) -> int | None:
    """Return the vocabulary size in a model's configuration; None if it is missing or cannot be read."""
    try:
        size = language_values(identity.configuration(identity.locate(model))).get("vocab_size")
    except GpruneError:
        return None
    return size if isinstance(size, int) and size > 0 else None


def embedding_notice(model: str) -> str:
    """Return a notice if a model's tokenizer has tokens without an embedding, else ``""``."""
    try:
        tokens, embeddings = tokenizer(model).get_vocab_size(), vocabulary_size(model)
    except ModelError:
        return ""
    if embeddings is None or tokens <= embeddings:
        return ""
    return (
        f"the tokenizer has {tokens} tokens and the model {embeddings} embeddings: texts with a token that has no "
        "embedding are refused, and tasks with one are left out"
    )


def count_characters(model: str, ids: Array) -> int | None:
    """Return the number of characters of (samples, length) token ids, or None if the tokenizer cannot be read."""
    try:
        fast_tokenizer = tokenizer(model)
    except ModelError:
        return None
    return sum(map(len, fast_tokenizer.decode_batch(ids.tolist(), skip_special_tokens=True)))


def decode(model: str, ids: Sequence[int]) -> str:
    """Return the text of token ids with special tokens; empty if the tokenizer cannot be read."""
    try:
        return _decode(tokenizer(model), [int(token) for token in ids])
    except ModelError:
        return ""


def text_around(tokenizer: Tokenizer, ids: Sequence[int], index: int) -> tuple[str, str, str]:
    """Return the text before the token at `index`, the text of the token, and the text after it.

    If the token has only a part of the bytes of a character, its text includes the neighbouring tokens that complete
    the character. The ids are decoded together, because a token decoded alone loses spaces.
    """
    start, end = index, index + 1
    while start > max(index - _MOST_NEIGHBOURS, 0) and _decode(tokenizer, ids[:start]).endswith(_BROKEN):
        start -= 1
    while end < min(index + 1 + _MOST_NEIGHBOURS, len(ids)) and _decode(tokenizer, ids[:end]).endswith(_BROKEN):
        end += 1
    text_before, text_to_end, full_text = (_decode(tokenizer, part) for part in (ids[:start], ids[:end], ids))
    # some decoders change earlier text when tokens are added; the parts are then decoded separately
    if text_to_end.startswith(text_before) and full_text.startswith(text_to_end):
        token, text_after = text_to_end[len(text_before) :], full_text[len(text_to_end) :]
    else:
        token, text_after = _decode(tokenizer, ids[start:end]), _decode(tokenizer, ids[end:])
    return text_before, token or str(tokenizer.id_to_token(ids[index]) or ""), text_after


def _decode(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    return tokenizer.decode(list(ids), skip_special_tokens=False)
