"""The layer-by-layer pass against full forwards with the prefix masked."""

from functools import partial

import numpy as np
import pytest
import torch
from calibration.texts_and_families import tokens

from gprune.models.tiny import tiny_decoder
from gprune.pruning.allocation import uniform
from gprune.pruning.calibration import sequential
from gprune.pruning.calibration.collection import observed
from gprune.pruning.scoring import wanda_sp

KINDS = {
    "llama": {"family": "llama", "layers": 3},
    "llama, grouped": {"family": "llama", "layers": 3, "kv_heads": 2, "neurons": 13},
    "mistral": {"family": "mistral", "layers": 2, "kv_heads": 1},
    "qwen2": {"family": "qwen2", "layers": 2, "kv_heads": 2},
    "qwen3": {"family": "qwen3", "layers": 2, "head_width": 6},
}


def halving(decoder):
    shape = decoder.shape
    score = partial(wanda_sp.layer_scores, decoder.weight_norms(), shape)
    return uniform.decision(score, shape, 0.5)


@torch.no_grad()
def naive(decoder, ids, decide):
    """For every layer one full forward of all sequences with the layers below masked."""
    shape, masks = decoder.shape, []
    ids = torch.tensor(ids.astype(np.int64))

    def multiply(mask):
        return lambda _, arguments: (arguments[0] * mask,)

    for layer in range(shape.layers):
        energy = {}
        handles = []
        for below, (ffn, heads) in enumerate(masks):
            channels = torch.tensor(np.repeat(heads, shape.group_channels)).to(decoder.dtype)
            factor = torch.tensor(ffn).to(decoder.dtype)
            handles.append(decoder.down_proj(below).register_forward_pre_hook(multiply(factor)))
            handles.append(decoder.o_proj(below).register_forward_pre_hook(multiply(channels)))
        with observed(
            decoder,
            range(layer, layer + 1),
            lambda _, x, e=energy: e.update(ffn=x.double().square().sum((0, 1)).numpy()),
            lambda _, x, e=energy: e.update(attention=x.double().square().sum((0, 1)).numpy()),
        ):
            decoder.hidden_states(ids)
        for handle in handles:
            handle.remove()
        masks.append(decide(layer, energy["ffn"], energy["attention"], len(ids)))
    return np.stack([m[0] for m in masks]), np.stack([m[1] for m in masks])


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_states_that_travel_are_the_backbones(kind):
    decoder, calibration = tiny_decoder(**KINDS[kind]), tokens(7)
    blocks = sequential.enter(decoder, calibration, 3)
    assert [len(block.states) for block in blocks] == [3, 3, 1]
    for layer in range(decoder.shape.layers):
        for block in blocks:
            block.states = block.run(decoder, layer)
    final = decoder.model.base_model.norm(torch.cat([block.states for block in blocks]))
    expected = decoder.hidden_states(torch.tensor(calibration.ids.astype(np.int64)))
    torch.testing.assert_close(final, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_masks_are_those_of_full_forwards_with_a_masked_prefix(kind):
    decoder, calibration = tiny_decoder(**KINDS[kind]), tokens(7)
    decide = halving(decoder)
    ffn, heads = sequential.walk(decoder, calibration, 3, decide)
    expected = naive(decoder, calibration.ids, decide)
    np.testing.assert_array_equal(ffn, expected[0])
    np.testing.assert_array_equal(heads, expected[1])
    assert ffn.dtype == heads.dtype == bool
    assert 0 < ffn.sum() < ffn.size


def test_sliding_windows_of_single_layers_are_kept():
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from gprune.models.decoder import Decoder

    config = Qwen2Config(
        hidden_size=8,
        intermediate_size=12,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=64,
        use_sliding_window=True,
        sliding_window=2,
        max_window_layers=1,
        layer_types=["full_attention", "sliding_attention", "full_attention"],
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        decoder = Decoder.from_model(Qwen2ForCausalLM(config))
    decide = halving(decoder)
    ffn, _ = sequential.walk(decoder, tokens(7), 3, decide)
    np.testing.assert_array_equal(ffn, naive(decoder, tokens(7).ids, decide)[0])
