"""Small decoders of every family, also of those that hold a language model beside parts for images."""

from typing import Any

import torch

from gprune.models import tiny
from gprune.models.decoder import Decoder
from gprune.models.families import FAMILIES


def tiny_decoder(family: str = "llama", *, seed: int = 0, dtype: torch.dtype = torch.float32, **sizes: Any) -> Decoder:
    """As `gprune.models.tiny.tiny_decoder`; `text` names the model type inside a wrapper."""
    values, inside = tiny.sizes_of(**sizes), FAMILIES[family].inner_types
    if inside:
        values = _wrapped(family, {"model_type": inside[0]} | values)
    return tiny.random_decoder(family, values, seed, dtype)


def assert_close(actual: torch.Tensor, expected: torch.Tensor, relative: float = 1e-5) -> None:
    """Relative to the largest number: one that happens to be near zero carries the rounding of the others."""
    torch.testing.assert_close(actual, expected, rtol=0, atol=relative * float(expected.abs().max()))


def _wrapped(family: str, values: dict[str, Any]) -> dict[str, Any]:
    """The values of a wrapper's configuration about those of its language model."""
    values["model_type"] = values.pop("text", values["model_type"])
    hidden, tied = values["hidden_size"], values.pop("tie_word_embeddings")
    if family.startswith("qwen2"):
        sizes = {"depth": 1, "num_heads": 2, "in_channels": 3, "patch_size": 4, "spatial_merge_size": 1}
        sizes |= {"embed_dim": 8, "hidden_size": hidden, "mlp_ratio": 2}
        if family == "qwen2_5_vl":
            sizes |= {"hidden_size": 8, "out_hidden_size": hidden, "intermediate_size": 16}
        half = values["head_dim"] // 2
        section = [half - 2 * (half // 3), half // 3, half // 3]
        values["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": section}
        names = ("image", "video", "vision_start", "vision_end")
        special: dict[str, Any] = {f"{name}_token_id": values["vocab_size"] - 1 - i for i, name in enumerate(names)}
    else:
        sizes = {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 8, "intermediate_size": 16}
        sizes |= {"image_size": 16, "patch_size": 4}
        special = {"image_token_index": values["vocab_size"] - 1}
        special |= {"mm_tokens_per_image": 4} if family == "gemma3" else {}
    return {"text_config": values, "vision_config": sizes, "tie_word_embeddings": tied, **special}
