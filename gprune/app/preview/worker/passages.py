"""Losses of a passage token by token, and continuations of a prompt.

A window of an evaluation text is the run's own, tokens and all; what is typed is tokenised as the run
tokenises a document, with the special tokens that the tokenizer adds. Only the last text is kept.
"""

from typing import Any

import numpy as np
import torch

from gprune.app.preview.worker.masked_model import MaskedModel
from gprune.data.texts.tokens import encode, require_embedded
from gprune.evaluation.perplexity import token_losses
from gprune.records import Array
from gprune.system.errors import CorpusError, NumericsError, SettingsError

MOST_READ = 4096
"""tokens of a passage, where the model has places for more"""
LONGEST_CHARACTER = 8
"""tokens that one character is looked for in: a byte each, and emoji of several parts"""
_LOST = "\ufffd"


def read(masked: MaskedModel, question: dict[str, Any]) -> dict[str, Any]:
    """Reads a passage; see gprune.app.preview.worker.messages.

    Raises SettingsError where there is no such window or fewer than two tokens, CorpusError where the text
    has changed since the run or the model has no tokenizer, NumericsError where a loss is not finite.
    """
    ids = _passage(masked, question["read"])
    used = ids[: most_read(masked)]
    if len(used) < 2:
        raise SettingsError(
            "the text is empty: type some words"
            if not len(used)
            else "the text is one token, and nothing before it foretells it: type more words"
        )
    model = masked.decoder.model
    with masked.silenced(question):
        row = torch.as_tensor(used[None].astype(np.int64), device=_device(model))
        losses = token_losses(model, row)[0].double().cpu().numpy()
    if not np.isfinite(losses).all():
        raise NumericsError(
            f"the loss of token {int(np.flatnonzero(~np.isfinite(losses))[0]) + 1} is not finite: the model "
            "overflows in its number type, so run the study with float32 or bfloat16"
        )
    told = [[text, place, of] for text, place, of in pieces(used, masked.decoder.tokenizer)]
    return {"pieces": told, "losses": losses.tolist(), "total": len(ids), "places": _places(masked) or 0}


def write(masked: MaskedModel, question: dict[str, Any]) -> dict[str, Any]:
    """Goes on from a prompt and what was written already; see preview.worker.messages.

    Raises SettingsError where the prompt has no token, CorpusError where the model has no tokenizer.
    """
    asked, written = question["write"], [int(one) for one in question["ids"]]
    ids = _typed(masked, str(asked["prompt"]))
    if not len(ids):
        raise SettingsError("the prompt is empty: type some words")
    # the last tokens count, and the model needs places for what it is to write
    used = ids[-max(1, most_read(masked) - int(asked["most"])) :]
    with masked.silenced(question):
        new, ended = _continued(masked, used.tolist(), written, int(question["tokens"]), asked)
    text = _decoded(masked.decoder.tokenizer, [*written, *new], skip=True)
    return {"ids": new, "text": text, "ended": ended, "read": len(used), "total": len(ids)}


def most_read(masked: MaskedModel) -> int:
    """Tokens that are read at most: the model's own positions, where they are not too many to show."""
    return min(MOST_READ, _places(masked) or MOST_READ)


def _places(masked: MaskedModel) -> int | None:
    """Positions of the model; None where it does not say."""
    found = getattr(masked.decoder.config, "max_position_embeddings", None)
    return int(found) if found else None


def pieces(ids: Array, tokenizer: Any) -> list[tuple[str, int, int]]:
    """(tokens,) ids as text: what each adds, which of the tokens with that text it is, and how many they are.

    A character may be split over several tokens, none of which is text by itself: the first of them has the
    text and the others none.
    """
    found: list[tuple[str, int, int]] = []
    before: list[int] = []
    start = 0
    while start < len(ids):
        group, text = _character(ids[start : start + LONGEST_CHARACTER].tolist(), before, tokenizer)
        found.append((text, 1, len(group)))
        found += [("", place, len(group)) for place in range(2, len(group) + 1)]
        before, start = group, start + len(group)
    return found


def _character(ids: list[int], before: list[int], tokenizer: Any) -> tuple[list[int], str]:
    """The first tokens that are text together, and the text that they add to those before."""
    first = ""
    for size in range(1, len(ids) + 1):
        text = _added(ids[:size], before, tokenizer)
        if _LOST not in text:
            return ids[:size], text
        first = first or text
    # no whole character follows: the text was cut, or says so itself
    return ids[:1], first


def _added(ids: list[int], before: list[int], tokenizer: Any) -> str:
    # some tokenizers drop the space before the first token that they are shown
    known, both = _decoded(tokenizer, before), _decoded(tokenizer, [*before, *ids])
    return both[len(known) :] if before and both.startswith(known) else _decoded(tokenizer, ids)


def _decoded(tokenizer: Any, ids: list[int], skip: bool = False) -> str:
    if not ids:
        return ""
    return str(tokenizer.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False))


def tokenizer_of(masked: MaskedModel) -> Any:
    """The model's tokenizer; CorpusError where its folder has none."""
    if masked.decoder.tokenizer is None:
        raise CorpusError("the model's folder has no tokenizer: save the tokenizer's files beside the model")
    return masked.decoder.tokenizer


def alone(token: int, tokenizer: Any) -> str:
    """One token as text, the space before it included; its name where it is a part of a character."""
    text = _added([token], [token], tokenizer)
    return str(tokenizer.convert_ids_to_tokens(token)) if _LOST in text or not text else text


def _passage(masked: MaskedModel, asked: dict[str, Any]) -> Array:
    """(tokens,) ids of a window, or of what was typed."""
    if "typed" in asked:
        return _typed(masked, str(asked["typed"]))
    windows, number = masked.windows(asked["text"]), int(asked["number"])
    if not 0 <= number < len(windows):
        raise SettingsError(f"the text has the windows 0 to {len(windows) - 1} and not {number}: choose one of them")
    found: Array = windows[number]
    return found


def _typed(masked: MaskedModel, text: str) -> Array:
    """(tokens,) ids of a text, as the run tokenises a document."""
    if masked.typed[0] != text or not text:
        tokenizer = tokenizer_of(masked)
        ids = encode([text], tokenizer) if text.strip() else np.empty(0, dtype=np.int32)
        if len(ids):
            require_embedded(ids, "the text", masked.decoder.embeddings, tokenizer)
        masked.typed = text, ids
    return masked.typed[1]


@torch.inference_mode()
def _continued(
    masked: MaskedModel, prompt: list[int], written: list[int], count: int, asked: dict[str, Any]
) -> tuple[list[int], bool]:
    """The next tokens after prompt and what was written, and whether the model has ended the text."""
    model: Any = masked.decoder.model
    ends = _ends(masked)
    row, cache, new = torch.tensor([[*prompt, *written]], device=_device(model)), None, list[int]()
    for place in range(len(written), len(written) + count):
        result = model(input_ids=row, past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache = result.past_key_values
        token = drawn(result.logits[0, -1].double().cpu().numpy(), asked, place)
        if token in ends:
            return new, True
        new.append(token)
        row = torch.tensor([[token]], device=row.device)
    return new, False


def drawn(logits: Array, asked: dict[str, Any], place: int) -> int:
    """A token by its (vocabulary,) logits: drawn at a temperature, the likeliest at 0.

    By the Gumbel-max trick, with noise that follows from seed and place alone: however a continuation is cut
    into turns it is the same one, and models that say the same draw the same.
    """
    if not asked["temperature"]:
        return int(logits.argmax())
    noise = np.random.default_rng([int(asked["seed"]), place]).gumbel(size=len(logits))
    return int((logits / float(asked["temperature"]) + noise).argmax())


def _ends(masked: MaskedModel) -> set[int]:
    """Tokens that end a text."""
    settings = getattr(masked.decoder.model, "generation_config", None)
    found: list[Any] = [getattr(masked.decoder.tokenizer, "eos_token_id", None)]
    own = getattr(settings, "eos_token_id", None)
    found += own if isinstance(own, list) else [own]
    return {int(one) for one in found if one is not None}


def _device(model: Any) -> torch.device:
    found: torch.device = next(model.parameters()).device
    return found
