"""What one neuron does, against naive computations: on passages, on whole texts, on tokens and on losses."""

import numpy as np
import pytest
import torch
from preview.conftest import answered
from preview.test_passages import answer_of, plain_losses

from gprune.app.preview import DENSE, Neuron, Question
from gprune.app.preview.requests import resolve
from gprune.app.preview.worker import neuron as module
from gprune.app.preview.worker.neuron import neuron_logits
from gprune.models.tiny import tiny_decoder
from gprune.pipeline import stages
from gprune.system.errors import SettingsError

pytestmark = pytest.mark.slow


def sequence_inputs(handler, ids, layer, neuron):
    """(tokens,) inputs of down_proj of a whole sequence, by a hook of the test's own."""
    decoder, result = handler.model.decoder, []
    location = decoder.down_proj(layer).register_forward_pre_hook(lambda _, inputs: result.append(inputs[0]))
    with torch.no_grad():
        decoder.model(torch.as_tensor(np.asarray(ids, dtype=np.int64)[None]))
    location.remove()
    return result[0][0, :, neuron].double().numpy()


def test_values_are_those_of_the_whole_sequence_and_the_peak_is_the_one_that_was_kept(handler, source):
    tokens = source.results.get(stages.tokens, "auxiliary")
    length, neuron = tokens.ids.shape[1], 5
    for layer in range(source.results.get(stages.shape).layers):
        request = Neuron(layer, neuron, "auxiliary", ((0, 0, length - 1), (3, 2, 6)))
        passages = answer_of(handler, source, request).passages
        values = [sequence_inputs(handler, tokens.ids[row], layer, neuron) for row in (0, 3)]
        np.testing.assert_allclose(passages[0][1], values[0], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(passages[1][1], values[1][2:7], rtol=1e-4, atol=1e-6)
        assert [len(pieces) for pieces, _ in passages] == [length, 5]
    assert not handler.model.decoder.down_proj(0)._forward_pre_hooks


def test_a_neuron_or_a_place_that_is_not_there_gets_a_sentence(handler, source):
    for request, sentence in (
        (Neuron(99, 0, "primary"), "the model has no neuron 0 in layer 99"),
        (Neuron(0, 0, "primary", ((0, 5, 4096),)), "the run has drawn no tokens 5 to 4096 of sequence 0"),
        (Neuron(0, 4096), "the model has no neuron 4096 in layer 0"),
    ):
        kind, problem, usable = answer_of(handler, source, request)
        assert kind == "problem" and sentence in problem and usable


def test_the_activations_of_a_text_are_those_of_its_sequences_however_they_are_cut(handler, source, monkeypatch):
    ids = source.results.get(stages.tokens, "primary").ids
    values = np.stack([sequence_inputs(handler, row, 1, 7) for row in ids])
    monkeypatch.setattr(module, "TURN_TOKENS", 3 * ids.shape[1])
    first = answer_of(handler, source, Neuron(1, 7, "primary"), turns=1)
    assert (first.sequences, first.goal, first.total) == (3, len(ids), len(ids)) and not first.complete
    counts = answer_of(handler, source, Neuron(1, 7, "primary"))
    np.testing.assert_allclose(counts.values, values.ravel(), rtol=1e-4, atol=1e-6)
    monkeypatch.setattr(module, "MOST_TOKENS", 5 * ids.shape[1])
    counts = answer_of(handler, source, Neuron(1, 7, "primary"))
    assert (counts.sequences, counts.goal, counts.total) == (5, 5, len(ids))
    assert len(counts.values) == 5 * ids.shape[1]


FAMILIES = {
    "llama": lambda norm: norm.weight,
    "gemma": lambda norm: 1 + norm.weight,
    "granite": lambda norm: norm.weight,
    "olmo2": lambda norm: norm.weight,
}


@pytest.mark.parametrize("family", FAMILIES)
def test_promoted_tokens_are_the_head_times_the_norms_scale_times_the_column(family):
    rest = {"logits_scaling": 2.0, "residual_multiplier": 0.5} if family == "granite" else {}
    decoder = tiny_decoder(family, hidden=12, neurons=7, kv_heads=2, **rest)
    model = decoder.model
    column = decoder.down_proj(1).weight[:, 5]
    if family == "olmo2":
        column = decoder.layers[1].post_feedforward_layernorm.weight * column
    expected = model.lm_head.weight @ (FAMILIES[family](model.model.norm) * column)
    expected = expected / 4 if rest else expected
    np.testing.assert_allclose(neuron_logits(decoder, 1, 5), expected, rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize("family", ["stablelm", "cohere", "gemma2", "glm4", "olmo", "phi3"])
def test_of_every_kind_of_norm_the_logits_grow_as_the_stream_does(family):
    decoder = tiny_decoder(family, hidden=12, neurons=7, heads=2, kv_heads=2)
    result = neuron_logits(decoder, 0, 3)
    stream = torch.randn(12, generator=torch.Generator().manual_seed(0)) * 1e-6
    column = decoder.down_proj(0).weight[:, 3]
    after = decoder.norm_after(0)
    column = column if after is None else after(column * 1e6) - after(torch.zeros(12))
    # a column that outweighs the stream by far is all that the final norm sees
    with torch.no_grad():
        observed = decoder.logits(decoder.final_norm(stream + 1e3 * column))
        observed = (observed - decoder.logits(decoder.final_norm(stream - 1e3 * column))).double() / 2
    assert np.corrcoef(result, observed)[0, 1] > 0.999


def test_the_answer_names_the_tokens_with_their_logits(handler, source):
    reply = answer_of(handler, source, Neuron(1, 7))
    decoder = handler.model.decoder
    result = neuron_logits(decoder, 1, 7)[: len(decoder.tokenizer)]
    assert [value for _, value in reply.promoted] == sorted(result.tolist(), reverse=True)[:10]
    assert [value for _, value in reply.suppressed] == sorted(result.tolist())[:10]
    best = int(result.argmax())
    # one token of a text is what it adds to another
    assert reply.promoted[0][0] == decoder.tokenizer.decode([best, best])[len(decoder.tokenizer.decode([best])) :]


def test_one_silent_neuron_costs_what_a_model_without_its_column_loses_on_drawn_sequences(handler, source):
    ids = source.results.get(stages.tokens, "auxiliary").ids
    silenced, dense = (
        resolve(source, Question("", DENSE, role="auxiliary", neuron=neuron)) for neuron in ((1, 7), None)
    )
    assert dense.arguments["pruning"] is None and dense.stored is None and silenced.identity != dense.identity
    decoder = handler.model.decoder
    results = [answered(handler, request).losses for request in (silenced, dense)]
    assert len(results[0]) == len(ids)
    weight = decoder.down_proj(1).weight
    stored = weight[:, 7].clone()
    for losses, column in zip(results, (torch.zeros_like(stored), stored), strict=True):
        weight[:, 7] = column
        expected = [plain_losses(decoder.model, np.array(row)).mean().item() for row in ids]
        np.testing.assert_allclose(losses, expected, rtol=1e-4)
    assert not np.array_equal(*results)
    with pytest.raises(SettingsError, match="no neuron 0 in layer 99"):
        resolve(source, Question("", DENSE, role="primary", neuron=(99, 0)))
