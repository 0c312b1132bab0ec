"""The layer-by-layer pass against full forwards with the prefix masked."""

from functools import partial

import numpy as np
import pytest
import torch
from calibration.texts_and_families import tokens

from gprune.models.tiny import tiny_decoder
from gprune.pruning.allocation import uniform
from gprune.pruning.calibration import sequential
from gprune.pruning.calibration.collection import observe_inputs
from gprune.pruning.scoring import wanda_sp

KINDS = {
    "llama": {"family": "llama", "layers": 3},
    "llama, grouped": {"family": "llama", "layers": 3, "kv_heads": 2, "neurons": 13},
    "mistral": {"family": "mistral", "layers": 2, "kv_heads": 1},
    "qwen2": {"family": "qwen2", "layers": 2, "kv_heads": 2},
    "windows of single layers": {
        "family": "qwen2",
        "layers": 3,
        "kv_heads": 2,
        "use_sliding_window": True,
        "sliding_window": 2,
        "max_window_layers": 1,
        "layer_types": ["full_attention", "sliding_attention", "full_attention"],
    },
    "qwen3": {"family": "qwen3", "layers": 2, "head_width": 6},
}


@torch.no_grad()
def naive(decoder, ids, decide):
    """For every layer one full forward of all sequences with the layers below masked."""
    shape, masks = decoder.shape, []
    ids = torch.tensor(ids.astype(np.int64))

    def multiply(mask):
        return lambda _, arguments: (arguments[0] * mask,)

    for layer in range(shape.layers):
        energies, handles = {}, []
        for below, (ffn, heads) in enumerate(masks):
            channels = torch.tensor(np.repeat(heads, shape.group_channels)).to(decoder.dtype)
            factor = torch.tensor(ffn).to(decoder.dtype)
            handles.append(decoder.down_proj(below).register_forward_pre_hook(multiply(factor)))
            handles.append(decoder.o_proj(below).register_forward_pre_hook(multiply(channels)))
        keep = [
            lambda _, x, part=part, energies=energies: energies.update({part: x.double().square().sum((0, 1)).numpy()})
            for part in ("ffn", "attention")
        ]
        with observe_inputs(decoder, range(layer, layer + 1), *keep):
            decoder.hidden_states(ids)
        for handle in handles:
            handle.remove()
        masks.append(decide(layer, energies["ffn"], energies["attention"], len(ids)))
    return np.stack([m[0] for m in masks]), np.stack([m[1] for m in masks])


@pytest.mark.parametrize("kind", KINDS)
def test_masks_are_those_of_full_forwards_with_a_masked_prefix(kind):
    decoder, calibration = tiny_decoder(**KINDS[kind]), tokens(7)
    score = partial(wanda_sp.layer_scores, decoder.weight_norms(), decoder.shape)
    decide = uniform.layer_decision(score, decoder.shape, 0.5)
    ffn, heads = sequential.prune_layerwise(decoder, calibration, 3, decide)
    assert (decoder.forward_tokens, decoder.backward_tokens) == (42, 0)
    expected = naive(decoder, calibration.ids, decide)
    np.testing.assert_array_equal(ffn, expected[0])
    np.testing.assert_array_equal(heads, expected[1])
    assert ffn.dtype == heads.dtype == bool
    assert 0 < ffn.sum() < ffn.size
