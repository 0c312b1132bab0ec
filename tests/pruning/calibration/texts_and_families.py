"""A text of random tokens, and small models of each family with what is odd about them."""

import numpy as np

from gprune.records import Tokens

FAMILIES = {
    "llama": {"family": "llama"},
    "llama, grouped": {"family": "llama", "kv_heads": 2, "neurons": 13, "layers": 3},
    "qwen3, wide heads": {"family": "qwen3", "kv_heads": 1, "head_width": 6},
    "qwen2": {"family": "qwen2", "neurons": 7, "kv_heads": 2},
    "mistral": {"family": "mistral", "heads": 6, "kv_heads": 2, "head_width": 4, "hidden": 12, "layers": 1},
}


def tokens(samples=10, length=6, seed=0, text="a text"):
    ids = np.random.default_rng(seed).integers(0, 64, (samples, length)).astype(np.int32)
    return Tokens(text, "fingerprint", ids, samples)
