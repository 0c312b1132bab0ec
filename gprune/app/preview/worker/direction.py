"""Answers: which tokens does a neuron promote, and which suppress, straight through the unembedding?

The logit lens of its column of down_proj: the column times the scale of the final norm, and that through the
head. What later layers make of it is left out, and so is what norms divide by, which depends on the token.
"""

from typing import Any

import torch

from gprune.app.preview.worker.activations import place
from gprune.app.preview.worker.masked_model import MaskedModel
from gprune.app.preview.worker.passages import alone, tokenizer_of
from gprune.models.decoder import Decoder
from gprune.models.offloading import present

SHOWN = 10
"""tokens on either side"""


def promoted(masked: MaskedModel, question: dict[str, Any]) -> dict[str, Any]:
    """The tokens with the highest and lowest logits; see gprune.app.preview.worker.messages.

    Raises SettingsError where there is no such neuron, CorpusError where the model has no tokenizer.
    """
    tokenizer = tokenizer_of(masked)
    found = logits(masked.decoder, *place(masked, question["direction"]))[: len(tokenizer)]
    count = min(SHOWN, len(found))

    def named(most: bool) -> list[list[Any]]:
        values, ids = found.topk(count, largest=most)
        return [
            [alone(token, tokenizer), value]
            for token, value in zip(ids.tolist(), values.tolist(), strict=True)
        ]

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
