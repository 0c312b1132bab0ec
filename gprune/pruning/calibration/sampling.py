"""Sample calibration and evaluation texts from the dense model itself.

Each document starts with the token that begins a text and is sampled token by token with a key/value cache. Special
tokens are never sampled, so every document has the full length. Only the documents with the lowest perplexity are
kept, because sampling errors accumulate and degenerate documents have a high perplexity (Ji et al. 2025 drop the
highest fifth). Each document has its own random numbers.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gprune.data.texts import Recipe
from gprune.models.language_model import LanguageModel
from gprune.records import Array, SampledText
from gprune.system.errors import CorpusError, ModelError, NumericsError, SettingsError
from gprune.system.progress import Progress, silent

ROLES = {"calibration": 0, "evaluation": 1, "held_out": 2}
# documents and tokens per batch; not settings, because another batch size rounds differently and may change tokens
MOST_DOCUMENTS = 128
MOST_TOKENS = 2**13
PROGRESS_INTERVAL = 8
"""tokens per document between two progress reports"""


@torch.no_grad()
def sample(decoder: LanguageModel, recipe: Recipe, text: str, on_progress: Progress = silent) -> SampledText:
    """Sample a text from the model.

    Raises SettingsError if a document has more tokens than the model has positions, ModelError if the model has no
    start token, CorpusError if too few documents are distinct, NumericsError if the model's scores are not finite.
    """
    require_positions(decoder, recipe, text)
    start, prefix_length = _start_token(decoder, text)
    forbidden = forbidden_tokens(decoder)
    ids, losses = [], []
    size = max(1, min(MOST_DOCUMENTS, MOST_TOKENS // recipe.length))
    for offset in range(0, recipe.candidates, size):
        count = min(size, recipe.candidates - offset)
        # one random number in [0, 1) for each token that is drawn
        seeds = ([recipe.seed, ROLES[recipe.role], document] for document in range(offset, offset + count))
        uniforms = np.stack([np.random.default_rng(seed).random(recipe.length - prefix_length) for seed in seeds])
        on_step = partial(_report_progress, on_progress, recipe, offset, count)
        continuations, loss = _generate_documents(decoder, start, forbidden, uniforms, recipe.temperature, on_step)
        require_finite_scores(loss, text)
        ids.append(np.hstack([np.full((count, prefix_length), start, dtype=np.int32), continuations]))
        losses.append(loss)
    _report_progress(on_progress, recipe, recipe.candidates, 0, 0)
    documents, perplexity = np.concatenate(ids), np.exp(np.concatenate(losses))
    keep = _select_likeliest(documents, perplexity, recipe, text)
    return SampledText(text=text, ids=documents[keep], perplexity=perplexity, kept=keep)


def _report_progress(on_progress: Progress, recipe: Recipe, documents: int, unfinished: int, tokens: int) -> None:
    """Report the tokens of `documents` complete documents, and of `unfinished` ones with `tokens` tokens each."""
    done = documents * recipe.length + unfinished * tokens
    on_progress(done, recipe.candidates * recipe.length, "tokens written by the model")


def require_positions(decoder: LanguageModel, recipe: Recipe, text: str) -> None:
    """Raise SettingsError if a document has more tokens than the model has positions."""
    positions = getattr(decoder.config, "max_position_embeddings", None)
    if positions is not None and recipe.length > positions:
        raise SettingsError(
            f"documents of {recipe.length:,} tokens do not fit the model, which has {positions:,} positions: "
            f"give {text!r} the option length={positions} or less"
        )


def require_finite_scores(losses: Array, text: str) -> None:
    """Raise NumericsError if a loss of the text that the model writes is not finite."""
    if not np.isfinite(losses).all():
        raise NumericsError(
            f"the model's scores are not finite while it writes {text!r}: check its weights for NaN, or "
            "use float32 or bfloat16"
        )


def _start_token(decoder: LanguageModel, text: str) -> tuple[int, int]:
    """Return the start token of documents, and 1 if the tokenizer prepends it to texts, else 0."""
    tokenizer = decoder.tokenizer
    if tokenizer is None:
        raise CorpusError(
            f"the text {text!r} cannot be written: the model's folder has no tokenizer. Save the tokenizer's "
            "files beside the model"
        )
    config: Any = decoder.config
    eos_ids = config.eos_token_id
    candidates = (
        tokenizer.bos_token_id,
        config.bos_token_id,
        tokenizer.eos_token_id,
        eos_ids[0] if isinstance(eos_ids, list | tuple) and eos_ids else eos_ids,
    )
    size = decoder.num_embeddings
    start = next((token for token in candidates if isinstance(token, int) and 0 <= token < size), None)
    if start is None:
        raise ModelError(
            f"the text {text!r} cannot be written: the model has no token that begins or ends a text, from "
            "which sampling could start. Choose another text"
        )
    return start, int(tokenizer("a")["input_ids"][:1] == [start])


def forbidden_tokens(decoder: LanguageModel) -> Tensor:
    """Return (vocabulary,) bool, True for special tokens and for ids that the tokenizer does not know."""
    tokenizer: Any = decoder.tokenizer
    size = decoder.model.get_output_embeddings().weight.shape[0]  # type: ignore[operator]
    forbidden = torch.arange(size, device=decoder.device) >= len(tokenizer)
    special_tokens = [token for token in tokenizer.all_special_ids if 0 <= token < size]
    forbidden[special_tokens + named_tokens(decoder, "bos_token_id", "eos_token_id", "pad_token_id")] = True
    return forbidden


def named_tokens(decoder: LanguageModel, *names: str) -> list[int]:
    """Return the ids of special tokens, by the names of their fields, that have a score of the model.

    A field may hold several ids, and be in the configuration, the generation configuration and the tokenizer.
    """
    size = decoder.model.get_output_embeddings().weight.shape[0]  # type: ignore[operator]
    owners = (decoder.config, getattr(decoder.model, "generation_config", None), decoder.tokenizer)
    values = [getattr(owner, name, None) for owner in owners for name in names]
    ids = {token for value in values for token in (value if isinstance(value, list | tuple) else (value,))}
    return sorted(token for token in ids if isinstance(token, int) and 0 <= token < size)


def _generate_documents(
    decoder: LanguageModel,
    start: int,
    forbidden: Tensor,
    uniforms: Array,
    temperature: float,
    on_step: Callable[[int], None],
) -> tuple[Array, Array]:
    """Return (documents, tokens) int32 sampled ids without the start token, and (documents,) mean losses in nats."""
    model: Any = decoder.model
    device_uniforms = torch.from_numpy(uniforms).to(decoder.device)
    last = torch.full((len(device_uniforms), 1), start, device=decoder.device)
    cache, tokens, loss = None, [], device_uniforms.new_zeros(len(device_uniforms))
    for step in range(device_uniforms.shape[1]):
        if step % PROGRESS_INTERVAL == 0:
            on_step(step)
        result = model(input_ids=last, past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache = result.past_key_values
        scores = result.logits[:, -1].double()
        last = draw_tokens(scores, forbidden, device_uniforms[:, step : step + 1], temperature)
        loss -= scores.log_softmax(dim=-1).gather(1, last)[:, 0]
        tokens.append(last)
    decoder.count_forward(device_uniforms.numel())
    ids = torch.cat(tokens, dim=1).to(torch.int32)
    return ids.cpu().numpy(), (loss / device_uniforms.shape[1]).cpu().numpy()


def draw_tokens(scores: Tensor, forbidden: Tensor, uniform: Tensor, temperature: float) -> Tensor:
    """Return (documents, 1) tokens drawn by inverse transform from (documents, 1) uniforms in [0, 1).

    `scores` are (documents, vocabulary) float64; tokens that are `forbidden` (vocabulary,) have no probability.
    """
    allowed = (scores / temperature).masked_fill(forbidden, -torch.inf)
    summed = allowed.softmax(dim=-1).cumsum(dim=-1)
    total = summed[:, -1:].contiguous()
    # the threshold stays below the total: otherwise rounding could select an index past the last token
    threshold = torch.minimum(uniform * total, torch.nextafter(total, torch.zeros_like(total)))
    # NaN scores give an index past the last token; the index is clamped here, and the caller checks the loss
    return torch.searchsorted(summed, threshold, right=True).clamp(max=scores.shape[-1] - 1)


def _select_likeliest(ids: Array, perplexity: Array, recipe: Recipe, text: str) -> Array:
    """Return (candidates,) bool, True for the distinct documents with the lowest perplexity."""
    _, first_occurrences = np.unique(ids, axis=0, return_index=True)
    if len(first_occurrences) < recipe.documents:
        raise CorpusError(
            f"{text!r} gives only {len(first_occurrences):,} different documents in {len(ids):,} drawn, and "
            f"{recipe.documents:,} are needed: give it a higher temperature or longer documents, or ask for "
            "fewer sequences"
        )
    distinct = np.sort(first_occurrences)
    lowest = distinct[np.argsort(perplexity[distinct], kind="stable")[: recipe.documents]]
    keep = np.zeros(len(ids), dtype=bool)
    keep[lowest] = True
    return keep
