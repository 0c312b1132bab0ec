"""Create small decoders with random weights, for tests, benchmarks and the checks of plug-ins."""

from typing import Any

import torch
from torch import nn

from gprune.models.decoder import Decoder
from gprune.models.families import layout_of

_POSITIONS = 512  # maximum length of a sequence
# standard deviation of the random norm weights about 1 and of the random biases about 0
_SPREAD = 0.1


def tiny_decoder(family: str = "llama", *, seed: int = 0, dtype: torch.dtype = torch.float32, **sizes: Any) -> Decoder:
    """Return a small decoder on the CPU, without tokenizer, with the same weights for the same arguments.

    `family` is a model type in ``gprune.models.families.FAMILIES`` without parts for images; `sizes` are the arguments
    of `sizes_of`. Raises ModelError if the family is not supported.
    """
    return random_decoder(family, sizes_of(**sizes), seed, dtype)


def sizes_of(
    *,
    layers: int = 2,
    hidden: int = 8,
    neurons: int = 12,
    heads: int = 4,
    kv_heads: int = 4,
    head_width: int | None = None,
    vocabulary: int = 64,
    **fields: Any,
) -> dict[str, Any]:
    """Return the values of a small language model's configuration.

    `neurons` is the FFN width, `kv_heads` a divisor of ``heads``, `head_width` even and ``hidden // heads`` by
    default; `fields` are further fields of the family.
    """
    return {
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
    } | fields


def random_decoder(family: str, values: dict[str, Any], seed: int, dtype: torch.dtype) -> Decoder:
    """Return a decoder with random weights from configuration values; the global random state does not change.

    Norm weights and biases are random too, so that tests detect code that ignores one of them.
    """
    import transformers

    layout = layout_of(family, f"a tiny {family}")
    config = transformers.AutoConfig.for_model(family, **values)
    with torch.random.fork_rng(devices=[]):
        model: Any = getattr(transformers, layout.loaders[-1]).from_config(config, dtype=dtype)
    _randomize(model, torch.Generator().manual_seed(seed))
    return Decoder.from_model(model)


@torch.no_grad()
def _randomize(model: nn.Module, generator: torch.Generator) -> None:
    for name, parameter in model.named_parameters():
        values = torch.randn(parameter.shape, generator=generator)
        if parameter.ndim > 1:
            # outputs of a map have about the variance of its inputs
            parameter.copy_(values / parameter.shape[1] ** 0.5)
        else:
            parameter.copy_(_SPREAD * values + (1.0 if "norm" in name else 0.0))
