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


def draw_alone(decoder, ids, chances, temperature, ends=()):
    """Ids with sampled ones after them, and the perplexity of these; a whole forward pass for every token.

    `chances` are the random numbers of the tokens. Of the special tokens 0 and 1, only `ends` are sampled.
    """
    row, losses = list(ids), []
    for chance in chances:
        scores = decoder.model(torch.tensor([row])).logits[0, -1].double().numpy()
        weights = np.exp((scores - scores.max()) / temperature)
        weights[[token for token in (0, 1) if token not in ends]] = 0
        token = int(np.argmax(np.cumsum(weights) > chance * weights.sum()))
        losses.append(np.log(np.exp(scores - scores.max()).sum()) - scores[token] + scores.max())
        row.append(token)
        if token in ends:
            break
    return row, np.exp(np.mean(losses))
