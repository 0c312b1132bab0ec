"""Answers: does a model that was loaded compute what its family's table says that it computes?

Names that fit are no proof: a family may scale its logits, or a model's own code do something else under
known names. A few tokens show it, before anything is made of the model.
"""

import copy
from typing import Any

import numpy as np
import torch
from torch import nn

from gprune.models.decoder import Decoder
from gprune.models.export.modeling_gprune import Kept, narrow
from gprune.models.masking import masked
from gprune.system.errors import ModelError

TOKENS = 8
"""tokens that go through the model"""
_SEED = 0
# largest difference of two ways to compute the same, relative to the largest number: float32 and 16 bits
_ROUNDING = (1e-3, 1e-1)


@torch.no_grad()
def require_sound(decoder: Decoder, name: str) -> None:
    """Holds a decoder against the model's own answers; `name` is what the model is called in errors.

    The logits of a few tokens are the model's own, and a layer without a random half of its units says what
    the dense one says while they are silent. Nothing is counted, and the decoder stays as it is. Raises
    ModelError where something differs by more than rounding.
    """
    model: Any = decoder.model
    calls: list[Any] = []

    def record(_: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        calls.append((arguments, keywords))

    vocabulary = model.get_input_embeddings().num_embeddings
    ids = torch.linspace(0, vocabulary - 1, TOKENS, device="cpu").long()[None].to(decoder.device)
    with decoder.layers[0].register_forward_pre_hook(record, with_kwargs=True), decoder.uncounted():
        own = model(input_ids=ids, use_cache=False).logits
        ours = decoder.logits(decoder.hidden_states(ids))
    _require_close(own, ours, f"{name} gives other logits than its parts do one after the other")
    _require_close(*_both_ways(decoder, *calls[0]), f"a layer of {name} without some units says something else")


def _both_ways(decoder: Decoder, arguments: Any, keywords: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """What the first layer says with half of its units silent, and what it says without them."""
    shape, generator, layer = decoder.shape, np.random.default_rng(_SEED), decoder.layers[0]
    kept = [np.zeros(count, dtype=bool) for count in (shape.neurons, shape.kv_heads)]
    for mask in kept:
        mask[generator.permutation(len(mask))[: -(-len(mask) // 2)]] = True
    neurons, groups = (torch.from_numpy(np.flatnonzero(mask)) for mask in kept)
    dense = shape.neurons, shape.kv_heads, shape.group_size, shape.head_width
    smaller = copy.deepcopy(layer, {id(weight): weight for weight in layer.parameters()})
    narrow(smaller, decoder.layout.table(), decoder.layout.numbers(), Kept(neurons, groups, dense))
    with masked(decoder, {0: (kept[0], kept[1])}):
        expected = layer(*arguments, **keywords)
    found = smaller(*arguments, **keywords)
    return _states(expected), _states(found)


def _states(output: Any) -> torch.Tensor:
    return output[0] if isinstance(output, tuple) else output


def _require_close(expected: torch.Tensor, found: torch.Tensor, what: str) -> None:
    largest = expected.abs().max().clamp(min=1e-30)
    difference = float((expected.float() - found.float().to(expected.device)).abs().max() / largest)
    # what overflows is told where it is measured
    if difference > _ROUNDING[expected.dtype != torch.float32]:
        raise ModelError(
            f"{what} (a difference of {difference:.1e} of the largest number): the model does not compute "
            "what its family computes, so it cannot be pruned here"
        )
