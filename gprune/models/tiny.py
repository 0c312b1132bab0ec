"""Small decoders of every family with random weights, for tests, benchmarks and the contract of plug-ins."""

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
    **fields: Any,
) -> Decoder:
    """Return a small decoder on the CPU, without tokenizer, with the same weights for the same arguments.

    `family` is a model type in ``gprune.models.families.FAMILIES``, `neurons` the FFN width, `kv_heads` a
    divisor of ``heads``, `head_width` even and ``hidden // heads`` by default. The global generators do not
    change; `fields` are further fields of the family's configuration. Norm weights and biases are random
    too, so that code which forgets one of them fails. Raises ModelError where the family is not supported.
    """
    import transformers

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
    layout = layout_of(family, f"a tiny {family}")
    values |= fields
    if layout.text:
        values = _wrapped(family, values | {"model_type": fields.get("text", layout.text[0])})
    config = transformers.AutoConfig.for_model(family, **values)
    with torch.random.fork_rng(devices=[]):
        model: Any = getattr(transformers, layout.loaders[-1]).from_config(config, dtype=dtype)
    _randomize(model, torch.Generator().manual_seed(seed))
    return Decoder.from_model(model)


def _wrapped(family: str, values: dict[str, Any]) -> dict[str, Any]:
    values = {name: value for name, value in values.items() if name != "text"}
    hidden, tied = values["hidden_size"], values.pop("tie_word_embeddings")
    if family.startswith("qwen2"):
        sizes = {"depth": 1, "num_heads": 2, "in_channels": 3, "patch_size": 4, "spatial_merge_size": 1}
        sizes |= {"embed_dim": 8, "hidden_size": hidden, "mlp_ratio": 2}
        if family == "qwen2_5_vl":
            sizes |= {"hidden_size": 8, "out_hidden_size": hidden, "intermediate_size": 16}
        half = values["head_dim"] // 2
        values["rope_parameters"] = {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "mrope_section": [half - 2 * (half // 3), half // 3, half // 3],
        }
        special: dict[str, Any] = {
            f"{name}_token_id": values["vocab_size"] - 1 - i
            for i, name in enumerate(("image", "video", "vision_start", "vision_end"))
        }
    else:
        sizes = {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 8, "intermediate_size": 16}
        sizes |= {"image_size": 16, "patch_size": 4}
        special = {"image_token_index": values["vocab_size"] - 1}
        special |= {"mm_tokens_per_image": 4} if family == "gemma3" else {}
    return {"text_config": values, "vision_config": sizes, "tie_word_embeddings": tied, **special}


@torch.no_grad()
def _randomize(model: nn.Module, generator: torch.Generator) -> None:
    for name, parameter in model.named_parameters():
        values = torch.randn(parameter.shape, generator=generator)
        if parameter.ndim > 1:
            parameter.copy_(values / parameter.shape[1] ** 0.5)
        else:
            parameter.copy_(_SPREAD * values + (1.0 if "norm" in name else 0.0))
