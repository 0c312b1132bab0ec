"""Answers: which published models can be built with random weights, and from which configuration?

Needs no torch, so that `--help` can name them.
"""

from __future__ import annotations

from typing import Any


def _shape(family: str, sizes: tuple[int, ...], vocabulary: int, positions: int) -> dict[str, Any]:
    """A published model's configuration from (hidden, neurons, layers, heads, key/value heads)."""
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    values = dict(zip((*names, "num_key_value_heads"), sizes, strict=True))
    return {
        **values,
        "model_type": family,
        "vocab_size": vocabulary,
        "max_position_embeddings": positions,
        "tie_word_embeddings": False,
    }


SHAPES = {
    "llama2-7b": _shape("llama", (4096, 11008, 32, 32, 32), 32000, 4096),
    "llama2-13b": _shape("llama", (5120, 13824, 40, 40, 40), 32000, 4096),
    "llama3-8b": _shape("llama", (4096, 14336, 32, 32, 8), 128256, 8192),
    "mistral-7b": _shape("mistral", (4096, 14336, 32, 32, 8), 32768, 32768) | {"sliding_window": None},
    "qwen2.5-7b": _shape("qwen2", (3584, 18944, 28, 28, 4), 152064, 131072),
    "qwen3-8b": _shape("qwen3", (4096, 12288, 36, 32, 8), 151936, 40960) | {"head_dim": 128},
}
"""Configurations of published models that can be built with random weights."""
