"""Losses of a passage token by token, and continuations of a prompt with their divergence from the dense model.

A window of an evaluation text has the token ids of the run. A typed text is tokenised like a document of the run, with
the special tokens that the tokenizer adds.
"""

from typing import Any

import numpy as np
import torch

from gprune.app.preview.questions import Continuation, Passage, Piece, Prompt, TokenLosses
from gprune.app.preview.requests import Pruning, Text
from gprune.app.preview.worker.masked_model import MaskedModel
from gprune.data.texts.tokens import encode, require_embedded
from gprune.evaluation.perplexity import token_losses
from gprune.records import Array
from gprune.system import safe_parsing
from gprune.system.errors import CorpusError, NumericsError, SettingsError
from gprune.system.progress import Progress, silent

MOST_READ = 4096
"""maximum number of tokens of a passage, even if the model has more positions"""
TURN_TOKENS = 4
"""tokens of a continuation in one slice. The number is fixed: rounding depends on how many tokens a model reads at
once, so a variable number could change near ties."""
LONGEST_CHARACTER = 8
"""maximum number of tokens of one character: emoji of several parts can have one token per byte"""
_LOST = "\ufffd"
"""replacement character, which stands for bytes that are no complete character"""


def read_passage(model: MaskedModel, _: object, passage: Passage, text: Text | None) -> TokenLosses:
    """Measure the loss of each token of a passage; `text` is the text of a window, None if the passage was typed.

    Raises SettingsError if there is no such window or fewer than two tokens, CorpusError if the text
    has changed since the run or the model has no tokenizer, NumericsError if a loss is not finite.
    """
    ids = encode_typed(model, passage.typed) if text is None else _load_window(model, text, passage.window)
    used = ids[: most_read(model)]
    if len(used) < 2:
        raise SettingsError(
            "the text is empty: type some words" if not len(used) else "the text has only one token: type more words"
        )
    row = torch.as_tensor(used[None].astype(np.int64), device=model.decoder.device)
    losses = token_losses(model.decoder.model, row)[0].double().cpu().numpy()
    if not np.isfinite(losses).all():
        raise NumericsError(
            f"the loss of token {int(np.flatnonzero(~np.isfinite(losses))[0]) + 1} is not finite: the model "
            "overflows in its number type, so run the study with float32 or bfloat16"
        )
    pieces = split_pieces(used, model.decoder.tokenizer)
    return TokenLosses(pieces, np.array([np.nan, *losses]), len(ids), _context_length(model) or 0)


def extend_continuation(
    model: MaskedModel,
    previous: Continuation | None,
    prompt: Prompt,
    pruning: Pruning | None = None,
    on_progress: Progress = silent,
) -> Continuation:
    """Extend the continuation of a prompt by a few tokens; `previous` is the continuation so far.

    `pruning` is None for the dense model. Fits of its weights call `on_progress`. Raises SettingsError if the prompt
    has no token or a message is longer than the context, CorpusError if the model has no tokenizer or no chat template,
    NumericsError if a logit is not finite.
    """
    ids_before = () if previous is None else previous.ids
    ids = _encode_message(model, prompt.typed) if prompt.is_chat else encode_typed(model, prompt.typed)
    if not len(ids):
        raise SettingsError("the prompt is empty: type some words")
    length = min(prompt.most, max(1, most_read(model) // 2))
    # keep the last tokens, and leave positions for the tokens to generate
    used = ids[-max(1, most_read(model) - length) :]
    if prompt.is_chat and len(used) < len(ids):
        raise SettingsError(
            f"the message has {len(ids):,} tokens with its template, and the model reads at most {len(used):,} before "
            f"{length:,} new ones: shorten the message"
        )
    count = min(TURN_TOKENS, length - len(ids_before))
    with model.silenced(pruning, on_progress):
        new, logits, ended = _generate(model, used.tolist(), ids_before, count, prompt)
    divergences = np.zeros(len(new))
    if new and pruning is not None:
        divergences = _divergences(model, [*used.tolist(), *ids_before, *new[:-1]], np.stack(logits))
    generated = (*ids_before, *new)
    return Continuation(
        _decode(model.decoder.tokenizer, list(generated), skip=True),
        generated,
        ended or len(generated) >= length,
        len(used),
        len(ids),
        split_pieces(np.array(generated, dtype=np.int64), model.decoder.tokenizer),
        divergences if previous is None else np.concatenate([previous.divergences, divergences]),
    )


def most_read(model: MaskedModel) -> int:
    """Return the maximum number of tokens of a passage: the context length of the model, at most MOST_READ."""
    return min(MOST_READ, _context_length(model) or MOST_READ)


def _context_length(model: MaskedModel) -> int | None:
    length = getattr(model.decoder.config, "max_position_embeddings", None)
    return int(length) if length else None


def split_pieces(ids: Array, tokenizer: Any) -> tuple[Piece, ...]:
    """Return (tokens,) ids as text.

    If a character is encoded by several tokens, the first has the text of the character and the others have none.
    """
    pieces: list[Piece] = []
    before: list[int] = []
    start = 0
    while start < len(ids):
        group, text = _first_character(ids[start : start + LONGEST_CHARACTER].tolist(), before, tokenizer)
        pieces.append(Piece(text, 1, len(group)))
        pieces += [Piece("", index, len(group)) for index in range(2, len(group) + 1)]
        before, start = group, start + len(group)
    return tuple(pieces)


def _first_character(ids: list[int], before: list[int], tokenizer: Any) -> tuple[list[int], str]:
    """Return the fewest first tokens that are complete characters, and their text; `before` are the tokens before."""
    first = ""
    for size in range(1, len(ids) + 1):
        text = _added_text(ids[:size], before, tokenizer)
        if _LOST not in text:
            return ids[:size], text
        first = first or text
    # no whole character follows: the text was cut, or contains the replacement character
    return ids[:1], first


def _added_text(ids: list[int], before: list[int], tokenizer: Any) -> str:
    """Return the text that tokens add to the text of the tokens before."""
    # some tokenizers drop the space before the first token of a text
    decoded_before, both = _decode(tokenizer, before), _decode(tokenizer, [*before, *ids])
    return both[len(decoded_before) :] if before and both.startswith(decoded_before) else _decode(tokenizer, ids)


def _decode(tokenizer: Any, ids: list[int], skip: bool = False) -> str:
    if not ids:
        return ""
    return str(tokenizer.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False))


def require_tokenizer(model: MaskedModel) -> Any:
    """Return the model's tokenizer; raise CorpusError if its folder has none."""
    if model.decoder.tokenizer is None:
        raise CorpusError("the model's folder has no tokenizer: save the tokenizer's files in the model folder")
    return model.decoder.tokenizer


def token_text(token: int, tokenizer: Any) -> str:
    """Return a token as text with its leading space, or its vocabulary entry if it is part of a character."""
    # decoded after itself, because some tokenizers drop the space before the first token
    text = _added_text([token], [token], tokenizer)
    return str(tokenizer.convert_ids_to_tokens(token)) if _LOST in text or not text else text


def _load_window(model: MaskedModel, text: Text, number: int) -> Array:
    windows = model.windows(text)
    if not 0 <= number < len(windows):
        raise SettingsError(f"the text has no window {number}: choose 0 to {len(windows) - 1}")
    ids: Array = windows[number]
    return ids


def encode_typed(model: MaskedModel, text: str) -> Array:
    """(tokens,) ids of a text, as the run tokenises a document."""
    tokenizer = require_tokenizer(model)
    ids = encode([text], tokenizer) if text.strip() else np.empty(0, dtype=np.int32)
    if len(ids):
        require_embedded(ids, "the text", model.decoder.num_embeddings, tokenizer)
    return ids


def _encode_message(model: MaskedModel, text: str) -> Array:
    """(tokens,) ids of a user message in the default chat template, up to the beginning of the answer."""
    tokenizer = require_tokenizer(model)
    if not getattr(tokenizer, "chat_template", None):
        raise CorpusError("the model's tokenizer has no chat template: switch off “Chat message”")
    if not text.strip():
        return np.empty(0, dtype=np.int32)
    message = {"role": "user", "content": safe_parsing.replace_surrogates(text)}
    rendered = tokenizer.apply_chat_template([message], tokenize=False, add_generation_prompt=True)
    ids = np.asarray(tokenizer(rendered, add_special_tokens=False, verbose=False)["input_ids"], dtype=np.int32)
    require_embedded(ids, "the message", model.decoder.num_embeddings, tokenizer)
    return ids


@torch.inference_mode()
def _divergences(model: MaskedModel, ids: list[int], logits: Array) -> Array:
    """(new,) KL(pruned || dense) in nats at the last positions of `ids`.

    `logits` are (new, vocabulary) float64 logits of the pruned model. Runs the dense model once.
    """
    network: Any = model.decoder.model
    row = torch.tensor([ids], device=model.decoder.device)
    result = network(input_ids=row, use_cache=False, logits_to_keep=len(logits))
    dense = result.logits[0].double().cpu().log_softmax(-1)
    pruned = torch.from_numpy(logits).log_softmax(-1)
    # a token without probability adds nothing
    terms = (pruned.exp() * (pruned - dense)).masked_fill(pruned == -torch.inf, 0.0)
    values: Array = terms.sum(-1).clamp_min(0.0).numpy()
    if not np.isfinite(values).all():
        raise NumericsError(
            "a logit is not finite: the model overflows in its number type, so run the study with float32 or bfloat16"
        )
    return values


@torch.inference_mode()
def _generate(
    model: MaskedModel, ids: list[int], ids_before: tuple[int, ...], count: int, prompt: Prompt
) -> tuple[list[int], list[Array], bool]:
    """Return the next tokens, their (vocabulary,) logits, and True if the model has generated an end token."""
    network: Any = model.decoder.model
    ends = _end_tokens(model)
    row, cache = torch.tensor([[*ids, *ids_before]], device=model.decoder.device), None
    new: list[int] = []
    logits: list[Array] = []
    for index in range(len(ids_before), len(ids_before) + count):
        result = network(input_ids=row, past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache = result.past_key_values
        scores = result.logits[0, -1].double().cpu().numpy()
        token = sample_token(scores, prompt, index)
        if token in ends:
            return new, logits, True
        new.append(token)
        logits.append(scores)
        row = torch.tensor([[token]], device=row.device)
    return new, logits, False


def sample_token(logits: Array, prompt: Prompt, index: int) -> int:
    """Return a token sampled from (vocabulary,) logits at the prompt's temperature; at 0, the most likely token.

    Uses the Gumbel-max trick with noise that depends only on seed and index. A continuation is therefore the same
    for any slices, and models with the same logits sample the same tokens.
    """
    if not prompt.temperature:
        return int(logits.argmax())
    noise = np.random.default_rng([prompt.seed, index]).gumbel(size=len(logits))
    return int((logits / prompt.temperature + noise).argmax())


def _end_tokens(model: MaskedModel) -> set[int]:
    settings = getattr(model.decoder.model, "generation_config", None)
    tokens: list[Any] = [getattr(model.decoder.tokenizer, "eos_token_id", None)]
    configured = getattr(settings, "eos_token_id", None)
    tokens += configured if isinstance(configured, list) else [configured]
    return {int(token) for token in tokens if token is not None}
