"""Read and write text with a model's tokenizer, without loading the model."""

from collections.abc import Sequence

from tokenizers import Tokenizer

from gprune.models import identity
from gprune.models.families import language_values
from gprune.records import Array
from gprune.system.errors import GpruneError, ModelError

_BROKEN = "\ufffd"
"""replacement character, to which the bytes of an incomplete character are decoded"""
_WIDEST = 3
"""maximum number of neighbouring tokens on each side that complete a character"""


def tokenizer(model: str) -> Tokenizer:
    """Return the tokenizer of a model. Raises ModelError if the model or tokenizer.json is missing."""
    path = identity.tokenizer_folder(identity.locate(model)) / "tokenizer.json"
    if not path.is_file():
        raise ModelError(
            f"the model {model!r} has no tokenizer.json, so its tokens cannot be counted here: save the text "
            "as a file and start a run with it on the page Runs & export"
        )
    try:
        reader: Tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises plain Exceptions
        raise ModelError(f"{str(path)!r} cannot be read ({error}): copy the model again") from error
    reader.no_padding()
    reader.no_truncation()
    return reader


def vocabulary_size(model: str) -> int | None:
    """Return the size of a model's vocabulary, or None if its folder can no longer be read."""
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
        f"the tokenizer has {tokens} tokens and the model {embeddings} embeddings: texts with a token that "
        "lacks one are refused, and such tasks are left out"
    )


def count_characters(model: str, ids: Array) -> int | None:
    """Return the number of characters of (samples, length) token ids, or None if the tokenizer cannot be read."""
    try:
        reader = tokenizer(model)
    except ModelError:
        return None
    return sum(map(len, reader.decode_batch(ids.tolist(), skip_special_tokens=True)))


def around(reader: Tokenizer, ids: Sequence[int], at: int) -> tuple[str, str, str]:
    """Return the text before the token at index `at`, the text of the token, and the text after it.

    The ids are decoded together, because a token decoded alone loses spaces and may be part of a character.
    """
    start, end = at, at + 1
    while start > max(at - _WIDEST, 0) and _decode(reader, ids[:start]).endswith(_BROKEN):
        start -= 1
    while end < min(at + 1 + _WIDEST, len(ids)) and _decode(reader, ids[:end]).endswith(_BROKEN):
        end += 1
    text_before, through, full = (_decode(reader, part) for part in (ids[:start], ids[:end], ids))
    if through.startswith(text_before) and full.startswith(through):
        token, text_after = through[len(text_before) :], full[len(through) :]
    else:
        token, text_after = _decode(reader, ids[start:end]), _decode(reader, ids[end:])
    return text_before, token or str(reader.id_to_token(ids[at]) or ""), text_after


def _decode(reader: Tokenizer, ids: Sequence[int]) -> str:
    return reader.decode(list(ids), skip_special_tokens=False)
