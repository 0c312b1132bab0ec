"""Uniform access to a decoder's parts."""

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from gprune.models.decoder import Decoder
from gprune.models.tiny import tiny_decoder
from gprune.study.settings import LINEAR_MAPS
from gprune.system.errors import ModelError

SIZES = {"layers": 3, "hidden": 12, "neurons": 13, "heads": 6, "kv_heads": 2, "head_width": 4}


def test_shape_prices_count_the_models_own_weights_and_model_is_frozen_and_gradients_flow_through_it():
    decoder = tiny_decoder("qwen3", **SIZES)
    parts = [getattr(decoder, name) for name in LINEAR_MAPS]
    weights = sum(part(layer).weight.numel() for part in parts for layer in range(decoder.shape.layers))
    assert decoder.shape.decoder_weights == weights
    decoder = tiny_decoder("llama", **SIZES)
    assert not decoder.model.training
    assert not any(parameter.requires_grad for parameter in decoder.model.parameters())
    factor = torch.ones(13, requires_grad=True)
    handle = decoder.down_proj(0).register_forward_pre_hook(lambda module, inputs: (inputs[0] * factor,))
    decoder.logits(decoder.hidden_states(torch.arange(5)[None])).square().sum().backward()
    handle.remove()
    assert factor.grad is not None and float(factor.grad.abs().min()) > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_weight_norms_are_those_of_the_columns(dtype):
    decoder = tiny_decoder("llama", **SIZES, dtype=dtype)
    norms = decoder.weight_norms()
    for layer in range(3):
        down, out = (part(layer).weight.double().numpy() for part in (decoder.down_proj, decoder.o_proj))
        np.testing.assert_allclose(norms.down_column_square[layer], (down**2).sum(axis=0), rtol=1e-12)
        np.testing.assert_allclose(norms.down_column_absolute[layer], np.abs(down).mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(norms.out_column_square[layer], (out**2).sum(axis=0), rtol=1e-12)
        np.testing.assert_allclose(norms.out_column_absolute[layer], np.abs(out).mean(axis=0), rtol=1e-12)
    assert norms.down_column_square.dtype == np.float64


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_neuron_parameters_are_unit_rows_of_gate_up_and_down(dtype):
    decoder = tiny_decoder("mistral", **SIZES, dtype=dtype)
    directions = decoder.neuron_parameters(1)
    assert directions.shape == (13, 36) and directions.dtype == torch.float32
    gate, up, down = (
        part(1).weight.double().numpy() for part in (decoder.gate_proj, decoder.up_proj, decoder.down_proj)
    )
    joined = np.concatenate([gate, up, down.T], axis=1)
    expected = joined / np.linalg.norm(joined, axis=1, keepdims=True)
    np.testing.assert_allclose(directions.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_a_neuron_of_zero_weights_has_a_zero_direction():
    decoder = tiny_decoder("llama", **SIZES)
    for part, index in ((decoder.gate_proj(0), 4), (decoder.up_proj(0), 4)):
        part.weight.data[index] = 0
    decoder.down_proj(0).weight.data[:, 4] = 0
    directions = decoder.neuron_parameters(0)
    assert float(directions[4].abs().max()) == 0
    assert bool(torch.isfinite(directions).all())


def test_a_model_of_odd_parts_is_refused_by_their_names():
    model = tiny_decoder("llama", **SIZES).model
    feed_forward = model.model.layers[1].mlp
    feed_forward.gate_proj = feed_forward.up_proj = torch.nn.Linear(12, 7, bias=False)
    feed_forward.down_proj = torch.nn.Linear(7, 12, bias=False)
    with pytest.raises(ModelError, match="layer 1 has 7 neurons .* layer 0 has 13"):
        Decoder.from_model(model)
    for path, module, words in (
        ("self_attn.q_proj", None, r"layer 1 has no self_attn\.q_proj.*fused"),
        ("mlp.up_proj", torch.nn.Identity(), "layer 1 has a Identity as mlp.up_proj"),
        ("self_attn.v_proj", torch.nn.Linear(12, 4, bias=False), r"v_proj has shape \(4, 12\), but the other maps"),
    ):
        model = tiny_decoder("llama", **SIZES).model
        parent, _, name = path.rpartition(".")
        part = model.model.layers[1].get_submodule(parent)
        delattr(part, name)
        if module is not None:
            setattr(part, name, module)
        with pytest.raises(ModelError, match=words):
            Decoder.from_model(model)
    with pytest.raises(ModelError, match="model type None"):
        Decoder.from_model(torch.nn.Linear(2, 2))
    config = AutoConfig.for_model("gpt2", hidden_size=8, num_hidden_layers=1, num_attention_heads=2, vocab_size=16)
    with pytest.raises(ModelError, match="'gpt2'.*FFNs without a gate are not.*gprune models"):
        Decoder.from_model(AutoModelForCausalLM.from_config(config))


def counts(decoder):
    return decoder.forward_tokens, decoder.backward_tokens


def test_hidden_states_count_every_token_and_a_pass_that_fails_is_not_counted():
    decoder = tiny_decoder()
    assert counts(decoder) == (0, 0)
    decoder.hidden_states(torch.zeros(3, 5, dtype=torch.int64))
    decoder.hidden_states(torch.zeros(1, 4, dtype=torch.int64))
    assert counts(decoder) == (19, 0)
    decoder.count_backward(15)
    decoder.count_forward(2)
    assert counts(decoder) == (21, 15)
    decoder = tiny_decoder()

    def fail(*_):
        raise RuntimeError("stopped")

    decoder.down_proj(1).register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="stopped"):
        decoder.hidden_states(torch.zeros(3, 5, dtype=torch.int64))
    assert counts(decoder) == (0, 0)
