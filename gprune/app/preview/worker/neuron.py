"""Activations of a neuron on passages and texts, and the tokens that it promotes.

A passage is a part of a sequence that the run has drawn from a text. The model reads the sequence from its first token
to the end of the passage, because an activation depends on all tokens before it. It runs up to the neuron's layer.

The promoted tokens are the logit lens of the neuron's column of down_proj: the column is multiplied by the scale of the
final norm and passed through the head. Later layers are left out, and so is the divisor of the norms, which depends on
the token.
"""

from contextlib import suppress
from typing import Any

import numpy as np
import torch

from gprune.app.preview.questions import Neuron, PassageActivations, Piece, PromotedTokens, TextActivations
from gprune.app.preview.requests import ResultKey
from gprune.app.preview.worker.masked_model import MaskedModel
from gprune.app.preview.worker.passages import require_tokenizer, split_pieces, token_text
from gprune.models.decoder import Decoder
from gprune.models.devices import keep_present
from gprune.pruning.repair.fitting import StopForward, record_call
from gprune.records import Array
from gprune.system.errors import NumericsError, SettingsError

TURN_TOKENS = 4096
"""number of tokens that are read in one slice; at least one sequence is read"""
MOST_TOKENS = 2**16
"""maximum number of tokens of a text that are read; at least one sequence is read"""
TOP_TOKENS = 10
"""number of promoted tokens, and of suppressed tokens"""


def answer_neuron(
    model: MaskedModel, previous: TextActivations | None, question: Neuron, tokens: ResultKey | None
) -> PassageActivations | TextActivations | PromotedTokens:
    """Return the activations of a neuron on passages or on the next sequences of a text, or the promoted tokens.

    Raises SettingsError if there is no such neuron or passage, StoreError if the tokens of the text are missing,
    NumericsError if an activation is not finite, CorpusError if the model has no tokenizer.
    """
    layer, neuron, shape = question.layer, question.neuron, model.decoder.shape
    if not (0 <= layer < shape.layers and 0 <= neuron < shape.neurons):
        raise SettingsError(f"the model has no neuron {neuron} in layer {layer}: choose another one")
    if tokens is None:
        return promoted_tokens(model, question)
    ids = model.drawn_tokens(tokens)
    if question.passages:
        return PassageActivations(tuple(_read_passage(model, ids, question, *passage) for passage in question.passages))
    start, length = 0 if previous is None else previous.sequences, ids.shape[1]
    goal = min(len(ids), max(MOST_TOKENS // length, 1))
    end = min(start + max(TURN_TOKENS // length, 1), goal)
    values = _measure_activations(model, ids[start:end], question).ravel()
    if previous is not None:
        values = np.concatenate([previous.values, values])
    return TextActivations(values, end, goal, len(ids))


def _read_passage(
    model: MaskedModel, ids: Array, question: Neuron, sequence: int, first: int, last: int
) -> tuple[tuple[Piece, ...], Array]:
    if not (0 <= sequence < len(ids) and 0 <= first <= last < ids.shape[1]):
        raise SettingsError(f"the run has drawn no tokens {first} to {last} of sequence {sequence}")
    values = _measure_activations(model, ids[[sequence], : last + 1], question)[0, first:]
    return split_pieces(np.asarray(ids[sequence, first : last + 1]), model.decoder.tokenizer), values


@torch.inference_mode()
def _measure_activations(model: MaskedModel, ids: Array, question: Neuron) -> Array:
    """(sequences, tokens) float32 inputs of down_proj at a neuron."""
    network: Any = model.decoder.model
    rows = torch.as_tensor(np.asarray(ids, dtype=np.int64), device=model.decoder.device)
    # the layers above are not needed
    with record_call(model.decoder.down_proj(question.layer), stop=True) as call, suppress(StopForward):
        network(input_ids=rows, use_cache=False, logits_to_keep=1)
    values: Array = call.x[..., question.neuron].float().cpu().view(*ids.shape).numpy()
    if not np.isfinite(values).all():
        raise NumericsError(
            "an activation is not finite: the model overflows in its number type, so run the study with "
            "float32 or bfloat16"
        )
    return values


def promoted_tokens(model: MaskedModel, question: Neuron) -> PromotedTokens:
    """Return the tokens with the highest and lowest logits of a neuron."""
    tokenizer = require_tokenizer(model)
    logits = neuron_logits(model.decoder, question.layer, question.neuron)[: len(tokenizer)]
    count = min(TOP_TOKENS, len(logits))

    def top(largest: bool) -> tuple[tuple[str, float], ...]:
        values, ids = logits.topk(count, largest=largest)
        return tuple(
            (token_text(token, tokenizer), value) for token, value in zip(ids.tolist(), values.tolist(), strict=True)
        )

    return PromotedTokens(top(True), top(False))


@torch.inference_mode()
def neuron_logits(decoder: Decoder, layer: int, neuron: int) -> torch.Tensor:
    """(vocabulary,) float64 logits that an activation of 1 adds on the direct path, without the divisor of norms."""
    down = decoder.down_proj(layer)
    with keep_present(down):
        column = down.weight[:, neuron].clone()
    # some families have a norm between down_proj and the residual stream
    norm = decoder.norm_after(layer)
    column = (column if norm is None else _apply_scale(norm, column)) * decoder.residual_scale
    column = _apply_scale(decoder.final_norm, column)
    # a bias or a cap of the head acts alike on both signs, and the difference removes it
    positive, negative = decoder.logits(torch.stack([column, -column])).double()
    return ((positive - negative) / 2).cpu()


def _apply_scale(norm: Any, column: torch.Tensor) -> torch.Tensor:
    """(hidden,) column times the scale of a norm, without the division by the size of the column."""
    weights = next(norm.parameters(), column)
    size = column.float().square().mean().sqrt().clamp_min(torch.finfo(torch.float32).tiny)
    # the norm of a column of size 1 is the column times the scale; the difference of both signs removes a bias
    unit = (column.float() / size).to(weights)
    return ((norm(unit) - norm(-unit)).float() / 2 * size).to(column.dtype)
