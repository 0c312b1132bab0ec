"""A text of random tokens, and small models of each family with what is odd about them."""

import numpy as np
import torch

from gprune.records import Tokens

FAMILIES = {
    "llama": {"family": "llama"},
    "llama, grouped": {"family": "llama", "kv_heads": 2, "neurons": 13, "layers": 3},
    "qwen3, wide heads": {"family": "qwen3", "kv_heads": 1, "head_width": 6},
    "qwen2": {"family": "qwen2", "neurons": 7, "kv_heads": 2},
    "mistral": {"family": "mistral", "heads": 6, "kv_heads": 2, "head_width": 4, "hidden": 12, "layers": 1},
}


def tokens(samples=10, length=6, seed=0, text="a text", first=0):
    ids = np.random.default_rng(seed).integers(first, 64, (samples, length)).astype(np.int32)
    return Tokens(text, "fingerprint", ids, samples)


def is_left_alone(decoder):
    """Return True if no hook is left and no weight has a gradient or learns."""
    modules, weights = decoder.model.modules(), list(decoder.model.parameters())
    hooks = any(module._forward_pre_hooks or module._forward_hooks for module in modules)
    hooks |= any(bool(weight._post_accumulate_grad_hooks) for weight in weights)
    return not hooks and not any(weight.requires_grad or weight.grad is not None for weight in weights)


def add_biases(decoder, *parts, seed=3):
    """Give linear maps of every layer a random bias."""
    generator = torch.Generator().manual_seed(seed)
    for layer in range(decoder.shape.layers):
        for part in parts:
            linear = getattr(decoder, part)(layer)
            bias = torch.randn(linear.out_features, generator=generator)
            linear.bias = torch.nn.Parameter(bias, requires_grad=False)
    return decoder
