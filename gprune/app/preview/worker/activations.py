"""Activations of a neuron on passages and texts, and the tokens that it promotes.

The passages stand in sequences that the run has drawn; each is read from its beginning, because a token is
answered by all before it, and no further than it is asked for. The model runs up to the neuron's layer.

What it promotes is the logit lens of its column of down_proj: the column times the scale of the final norm,
and that through the head. What later layers make of it is left out, and so is what norms divide by, which
depends on the token.
"""

from contextlib import suppress
from typing import Any

import numpy as np
import torch

from gprune.app.preview.histogram import histogram
from gprune.app.preview.worker.masked_model import MaskedModel
from gprune.app.preview.worker.passages import alone, pieces, tokenizer_of
from gprune.models.decoder import Decoder
from gprune.models.offloading import present
from gprune.pruning.repair.fitting import Reached, heard
from gprune.records import Array
from gprune.system.errors import NumericsError, SettingsError

TURN_TOKENS = 4096
"""that are counted in one turn, at least one sequence"""
MOST_TOKENS = 2**16
"""of a text that are counted, at least one sequence"""
SHOWN = 10
"""tokens on either side that a neuron promotes and suppresses"""


def fires(masked: MaskedModel, question: dict[str, Any]) -> dict[str, Any]:
    """The tokens of passages with the inputs of down_proj there; see gprune.app.preview.worker.messages.

    Raises StoreError where the tokens are gone, SettingsError where there is no such neuron or place,
    NumericsError where an activation is not finite.
    """
    asked = question["fires"]
    layer, neuron = place(masked, asked)
    ids = masked.drawn(asked["tokens"])
    return {"passages": [_passage(masked, ids, layer, neuron, *map(int, one)) for one in asked["places"]]}


def spread(masked: MaskedModel, question: dict[str, Any]) -> dict[str, Any]:
    """The histogram of the inputs of down_proj on the next sequences of a text; errors as `fires`."""
    asked, start = question["spread"], int(question["sequences"])
    layer, neuron = place(masked, asked)
    ids = masked.drawn(asked["tokens"])
    length = ids.shape[1]
    wanted = min(len(ids), max(MOST_TOKENS // length, 1))
    end = min(start + max(TURN_TOKENS // length, 1), wanted)
    found = histogram(_finite(_values(masked, ids[start:end], layer, neuron)))
    told = {"power": found.power, "first": found.first, "counts": found.counts.tolist()}
    return told | {"sequences": end, "wanted": wanted, "total": len(ids)}


def place(masked: MaskedModel, asked: dict[str, Any]) -> tuple[int, int]:
    """Layer and neuron that are asked for; SettingsError where the model has no such neuron."""
    layer, neuron, shape = int(asked["layer"]), int(asked["neuron"]), masked.decoder.shape
    if not (0 <= layer < shape.layers and 0 <= neuron < shape.neurons):
        raise SettingsError(f"the model has no neuron {neuron} of layer {layer}: choose another one")
    return layer, neuron


def _finite(values: Array) -> Array:
    if not np.isfinite(values).all():
        raise NumericsError(
            "an activation is not finite: the model overflows in its number type, so run the study with "
            "float32 or bfloat16"
        )
    return values


def _passage(
    masked: MaskedModel, ids: Array, layer: int, neuron: int, sequence: int, first: int, last: int
) -> dict[str, Any]:
    if not (0 <= sequence < len(ids) and 0 <= first <= last < ids.shape[1]):
        raise SettingsError(f"the run has drawn no tokens {first} to {last} of sequence {sequence}")
    values = _finite(_values(masked, ids[[sequence], : last + 1], layer, neuron)[0, first:])
    own = np.asarray(ids[sequence, first : last + 1])
    told = [[text, place, of] for text, place, of in pieces(own, masked.decoder.tokenizer)]
    return {"pieces": told, "values": values.tolist()}


@torch.inference_mode()
def _values(masked: MaskedModel, ids: Array, layer: int, neuron: int) -> Array:
    """(sequences, tokens) inputs of down_proj at a neuron."""
    model: Any = masked.decoder.model
    rows = torch.as_tensor(np.asarray(ids, dtype=np.int64), device=masked.decoder.device)
    # what is above the neuron's layer is not needed
    with heard(masked.decoder.down_proj(layer), stop=True) as here, suppress(Reached):
        model(input_ids=rows, use_cache=False, logits_to_keep=1)
    found: Array = here.x[..., neuron].double().cpu().view(*ids.shape).numpy()
    return found


def promoted(masked: MaskedModel, question: dict[str, Any]) -> dict[str, Any]:
    """The tokens with the highest and lowest logits; see gprune.app.preview.worker.messages.

    Raises SettingsError where there is no such neuron, CorpusError where the model has no tokenizer.
    """
    tokenizer = tokenizer_of(masked)
    found = logits(masked.decoder, *place(masked, question["direction"]))[: len(tokenizer)]
    count = min(SHOWN, len(found))

    def named(most: bool) -> list[list[Any]]:
        values, ids = found.topk(count, largest=most)
        return [[alone(token, tokenizer), value] for token, value in zip(ids.tolist(), values.tolist(), strict=True)]

    return {"promoted": named(True), "suppressed": named(False)}


@torch.inference_mode()
def logits(decoder: Decoder, layer: int, neuron: int) -> torch.Tensor:
    """(vocabulary,) float64 logits that an activation of 1 adds on the direct path, before norms divide."""
    down = decoder.down_proj(layer)
    with present(down):
        column = down.weight[:, neuron].clone()
    after = decoder.norm_after(layer)
    column = (column if after is None else _scaled(after, column)) * decoder.residual_scale
    column = _scaled(decoder.final_norm, column)
    # what the head adds or caps whatever comes is the same on both sides
    both = decoder.logits(torch.stack([column, -column])).double()
    return ((both[0] - both[1]) / 2).cpu()


def _scaled(norm: Any, column: torch.Tensor) -> torch.Tensor:
    """(hidden,) what the scale of a norm makes of a column, which keeps its own size."""
    weights = next(norm.parameters(), column)
    size = column.float().square().mean().sqrt().clamp_min(torch.finfo(torch.float32).tiny)
    unit = (column.float() / size).to(weights)
    # a bias is the same on both sides
    return ((norm(unit) - norm(-unit)).float() / 2 * size).to(column.dtype)
