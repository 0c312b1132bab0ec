"""LLM-Pruner's scores and the gradient of the loss against autograd over the whole model."""

import numpy as np
import pytest
import torch
from calibration.texts_and_families import FAMILIES, tokens

from gprune.models.tiny import tiny_decoder
from gprune.pruning.calibration import gradients
from gprune.pruning.calibration.gradients import loss_gradient, taylor_scores
from gprune.study.settings import LINEAR_MAPS, BaselineSettings
from gprune.system.errors import MethodError

SETTINGS = BaselineSettings(taylor_samples=4, taylor_length=5)


def naive(decoder, ids):
    """(layers,) of |weight * gradient| of every projection, float64, by one plain backward pass."""
    ids = torch.tensor(ids.astype(np.int64))
    decoder.model.requires_grad_(True)
    decoder.model(input_ids=ids, labels=ids).loss.backward()
    weights = [{name: getattr(decoder, name)(i).weight for name in LINEAR_MAPS} for i in range(decoder.shape.layers)]
    return [
        {name: (w.double() * w.grad.double()).abs().detach().numpy() for name, w in layer.items()} for layer in weights
    ]


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_unit_sums_over_its_coupled_matrices(kind):
    decoder = tiny_decoder(**FAMILIES[kind])
    shape = decoder.shape
    scores = taylor_scores(decoder, tokens(6, 8), SETTINGS)
    for layer, part in enumerate(naive(decoder, tokens(6, 8).ids[:4, :5])):
        for neuron in range(shape.neurons):
            expected = part["gate_proj"][neuron].sum() + part["up_proj"][neuron].sum()
            expected += part["down_proj"][:, neuron].sum()
            assert scores.ffn[layer, neuron] == pytest.approx(expected, rel=1e-4)
        for group in range(shape.kv_heads):
            expected = 0.0
            for row in range(group * shape.group_channels, (group + 1) * shape.group_channels):
                expected += part["q_proj"][row].sum() + part["o_proj"][:, row].sum()
            for row in range(group * shape.head_width, (group + 1) * shape.head_width):
                expected += part["k_proj"][row].sum() + part["v_proj"][row].sum()
            assert scores.heads[layer, group] == pytest.approx(expected, rel=1e-4)
    assert (scores.metric, scores.text) == ("llm_pruner", "a text")


def test_tiny_gradients_survive_float16():
    scores = []
    for dtype in (torch.float16, torch.float32):
        decoder = tiny_decoder(dtype=dtype)
        decoder.model.get_output_embeddings().weight.mul_(1e-4)
        decoder.model.base_model.norm.weight.mul_(1e-3)
        scores.append(taylor_scores(decoder, tokens(6, 8), SETTINGS))
    assert scores[1].ffn.max() < 1e-6
    np.testing.assert_allclose(scores[0].ffn, scores[1].ffn, rtol=0.25)


@pytest.mark.parametrize("rows", [1, 3, 7, 1000])
def test_the_loss_gradient_is_that_of_the_summed_loss_for_any_chunk(monkeypatch, rows):
    decoder = tiny_decoder()
    ids = torch.tensor(tokens(3, 8).ids.astype(np.int64))
    hidden = decoder.hidden_states(ids).requires_grad_()
    logits = decoder.logits(hidden)[:, :-1].flatten(0, 1)
    loss = torch.nn.functional.cross_entropy(logits, ids[:, 1:].flatten(), reduction="sum")
    (expected,) = torch.autograd.grad(loss, hidden)
    monkeypatch.setattr(gradients, "_BLOCK_LOGITS", rows * 64)
    actual, scale = loss_gradient(decoder, hidden, ids)
    assert float(scale) == 1
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)
    assert not actual[:, -1].any()


@pytest.mark.parametrize(("samples", "length"), [(3, 8), (6, 4)])
def test_a_calibration_set_that_is_too_small_is_refused(samples, length):
    with pytest.raises(MethodError, match=rf"gives {samples} sequences of {length} tokens.*needs 4 of 5"):
        taylor_scores(tiny_decoder(), tokens(samples, length), SETTINGS)
