"""Answers: what does the smallest decoder of a family look like? Random weights, for tests and benchmarks."""

from typing import Any

import torch
from torch import nn

from gprune.models.decoder import Decoder
from gprune.models.families import layout_of

_POSITIONS = 512
# Spread of the random norm weights about 1 and of the random biases about 0.
_SPREAD = 0.1


def tiny_decoder(
    family: str = "llama",
    *,
    layers: int = 2,
    hidden: int = 8,
    neurons: int = 12,
    heads: int = 4,
    kv_heads: int = 4,
    head_width: int | None = None,
    vocabulary: int = 64,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    **others: Any,
) -> Decoder:
    """A small decoder with random weights, the same for the same arguments, without tokenizer on the CPU.

    `family` is a model type in ``gprune.models.families.FAMILIES``, `neurons` the FFN width, `kv_heads` a
    divisor of ``heads``, `head_width` even and ``hidden // heads`` by default. The global generators are left
    as they are; `others` are further fields of the family's configuration. Norm weights and biases are random
    too, so that code which forgets one of them fails. Raises ModelError where the family is not supported.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    layout_of(family, f"a tiny {family}")
    values = {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": neurons,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_width or hidden // heads,
        "vocab_size": vocabulary,
        "max_position_embeddings": _POSITIONS,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }
    config = AutoConfig.for_model(family, **(values | others))
    with torch.random.fork_rng(devices=[]):
        model: Any = AutoModelForCausalLM.from_config(config, dtype=dtype)
    _randomize(model, torch.Generator().manual_seed(seed))
    return Decoder.from_model(model)


@torch.no_grad()
def _randomize(model: nn.Module, generator: torch.Generator) -> None:
    for name, parameter in model.named_parameters():
        values = torch.randn(parameter.shape, generator=generator)
        if parameter.ndim > 1:
            parameter.copy_(values / parameter.shape[1] ** 0.5)
        else:
            parameter.copy_(_SPREAD * values + (1.0 if "norm" in name else 0.0))
