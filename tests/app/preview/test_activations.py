"""What one neuron does, against naive computations: on passages, on whole texts, on tokens and on losses."""

import numpy as np
import pytest
import torch
from preview.test_passages import asked, plain_losses
from waiting import wait_for

from gprune.app.preview import DENSE, Client, Direction, Fired, Firing, Question, Spread
from gprune.app.preview.histogram import Histogram, histogram
from gprune.app.preview.request import resolve
from gprune.app.preview.worker import activations, messages
from gprune.app.preview.worker.activations import logits
from gprune.app.preview.worker.worker import RequestHandler
from gprune.models.tiny import tiny_decoder
from gprune.pipeline import stages
from gprune.system.errors import SettingsError

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def source(tiny_run):
    return tiny_run().source


@pytest.fixture(scope="module")
def handler(source):
    made = RequestHandler()
    assert made.answer(messages.line({"model": source.model})).get("ready")
    return made


def whole(handler, ids, layer, neuron):
    """(tokens,) inputs of down_proj of a whole sequence, by a hook of the test's own."""
    decoder, found = handler.masked.decoder, []
    place = decoder.down_proj(layer).register_forward_pre_hook(lambda _, inputs: found.append(inputs[0]))
    with torch.no_grad():
        decoder.model(torch.as_tensor(np.asarray(ids, dtype=np.int64)[None]))
    place.remove()
    return found[0][0, :, neuron].double().numpy()


def test_values_are_those_of_the_whole_sequence_and_the_peak_is_the_one_that_was_kept(handler, source):
    tokens = source.results.get(stages.tokens, "auxiliary")
    length, neuron = tokens.ids.shape[1], 5
    for layer in range(source.results.get(stages.shape).layers):
        what = Firing("auxiliary", layer, neuron, ((0, 0, length - 1), (3, 2, 6)))
        reply = asked(handler, source, what, Question("", DENSE))
        values = [whole(handler, tokens.ids[row], layer, neuron) for row in (0, 3)]
        found = [one["values"] for one in reply["passages"]]
        np.testing.assert_allclose(found[0], values[0], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(found[1], values[1][2:7], rtol=1e-4, atol=1e-6)
        assert [len(one["pieces"]) for one in reply["passages"]] == [length, 5]
    assert not handler.masked.decoder.down_proj(0)._forward_pre_hooks


def test_a_neuron_or_a_place_that_is_not_there_gets_a_sentence(handler, source):
    for what, sentence in (
        (Firing("primary", 99, 0, ()), "the model has no neuron 0 of layer 99"),
        (Firing("primary", 0, 0, ((0, 5, 4096),)), "the run has drawn no tokens 5 to 4096 of sequence 0"),
        (Direction(0, 4096), "the model has no neuron 4096 of layer 0"),
    ):
        reply = asked(handler, source, what, Question("", DENSE))
        assert sentence in reply["problem"] and reply["ready"]


def test_the_histogram_of_a_text_is_that_of_all_its_activations_however_it_is_cut(handler, source, monkeypatch):
    ids = source.results.get(stages.tokens, "primary").ids
    values = np.stack([whole(handler, row, 1, 7) for row in ids])
    monkeypatch.setattr(activations, "TURN_TOKENS", 3 * ids.shape[1])
    done, found = 0, None
    while done < len(ids):
        more = {"sequences": done}
        reply = asked(handler, source, Spread("primary", 1, 7), Question("", DENSE), **more)
        assert (reply["wanted"], reply["total"]) == (len(ids), len(ids))
        done = reply["sequences"]
        new = Histogram(reply["power"], reply["first"], np.array(reply["counts"]))
        found = new if found is None else found.joined(new)
    expected = np.histogram(values, found.edges)[0]
    # the last digit of a batched pass may fall on the other side of an edge
    assert np.abs(found.counts - expected).sum() <= 2 and found.counts.sum() == values.size
    assert found.edges[0] <= values.min() and values.max() <= found.edges[-1]
    monkeypatch.setattr(activations, "MOST_TOKENS", 5 * ids.shape[1])
    reply = asked(handler, source, Spread("primary", 1, 7), Question("", DENSE), sequences=3)
    assert (reply["sequences"], reply["wanted"], reply["total"]) == (5, 5, len(ids))


def test_joined_bins_hold_exactly_what_bins_of_all_values_hold():
    rng = np.random.default_rng(0)
    parts = [rng.normal(0, size, 200) for size in (0.003, 1.0, 40.0)] + [np.zeros(5), np.array([-2.0, 64.0])]
    joined = histogram(parts[0])
    for part in parts[1:]:
        joined = joined.joined(histogram(part))
    values = np.concatenate(parts)
    assert joined.counts.sum() == values.size and len(joined.counts) <= 128
    assert np.array_equal(joined.counts, np.histogram(values, joined.edges)[0])
    assert histogram(np.zeros(4)).counts.tolist() == [4]


FAMILIES = {
    "llama": lambda norm: norm.weight,
    "gemma": lambda norm: 1 + norm.weight,
    "granite": lambda norm: norm.weight,
    "olmo2": lambda norm: norm.weight,
}


@pytest.mark.parametrize("family", FAMILIES)
def test_promoted_tokens_are_the_head_times_the_norms_scale_times_the_column(family):
    others = {"logits_scaling": 2.0, "residual_multiplier": 0.5} if family == "granite" else {}
    decoder = tiny_decoder(family, hidden=12, neurons=7, kv_heads=2, **others)
    model = decoder.model
    column = decoder.down_proj(1).weight[:, 5]
    if family == "olmo2":
        column = decoder.layers[1].post_feedforward_layernorm.weight * column
    expected = model.lm_head.weight @ (FAMILIES[family](model.model.norm) * column)
    expected = expected / 4 if others else expected
    np.testing.assert_allclose(logits(decoder, 1, 5), expected, rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize("family", ["stablelm", "cohere", "gemma2", "glm4", "olmo", "phi3"])
def test_of_every_kind_of_norm_the_logits_grow_as_the_stream_does(family):
    decoder = tiny_decoder(family, hidden=12, neurons=7, heads=2, kv_heads=2)
    found = logits(decoder, 0, 3)
    stream = torch.randn(12, generator=torch.Generator().manual_seed(0)) * 1e-6
    column = decoder.down_proj(0).weight[:, 3]
    after = decoder.norm_after(0)
    column = column if after is None else after(column * 1e6) - after(torch.zeros(12))
    # a column that outweighs the stream by far is all that the final norm sees
    with torch.no_grad():
        seen = decoder.logits(decoder.final_norm(stream + 1e3 * column))
        seen = (seen - decoder.logits(decoder.final_norm(stream - 1e3 * column))).double() / 2
    assert np.corrcoef(found, seen)[0, 1] > 0.999


def test_the_answer_names_the_tokens_with_their_logits(handler, source):
    reply = asked(handler, source, Direction(1, 7), Question("", DENSE))
    decoder = handler.masked.decoder
    found = logits(decoder, 1, 7)[: len(decoder.tokenizer)]
    assert [value for _, value in reply["promoted"]] == sorted(found.tolist(), reverse=True)[:10]
    assert [value for _, value in reply["suppressed"]] == sorted(found.tolist())[:10]
    best = int(found.argmax())
    # one token of a text is what it adds to another
    assert reply["promoted"][0][0] == decoder.tokenizer.decode([best, best])[len(decoder.tokenizer.decode([best])) :]


def test_one_silent_neuron_costs_what_a_model_without_its_column_loses_on_drawn_sequences(handler, source):
    ids = source.results.get(stages.tokens, "auxiliary").ids
    silenced, dense = (
        resolve(source, Question("", DENSE, role="auxiliary", neuron=neuron)) for neuron in ((1, 7), None)
    )
    assert dense.pruned is None and dense.losses is None and silenced.identity != dense.identity
    reply = handler.answer(messages.line({"text": dense.text}))
    assert reply["windows"] == len(ids)
    decoder, numbers = handler.masked.decoder, [0, 4, 9]

    def measured(one):
        sent = {"text": one.text, "numbers": numbers, "pruned": one.pruned}
        return handler.answer(messages.line(sent))["losses"]

    found = [measured(one) for one in (silenced, dense)]
    weight = decoder.down_proj(1).weight
    held = weight[:, 7].clone()
    for losses, column in zip(found, (torch.zeros_like(held), held), strict=True):
        weight[:, 7] = column
        expected = [plain_losses(decoder.model, np.array(ids[number])).mean().item() for number in numbers]
        np.testing.assert_allclose(losses, expected, rtol=1e-4)
    assert found[0] != found[1]
    with pytest.raises(SettingsError, match="no neuron 0 of layer 99"):
        resolve(source, Question("", DENSE, role="primary", neuron=(99, 0)))


@pytest.mark.process
def test_the_client_gives_passages_with_their_activations(source):
    pool = Client(idle=60.0)
    try:
        what = Firing("primary", 1, 3, ((2, 1, 4),))
        identity = pool.read(source, what, [Question("", DENSE)], owner="me")
        wait_for(lambda: pool.reading(identity).progress in ("complete", "failed"))
        (found,) = pool.reading(identity).found
        assert isinstance(found, Fired)
        ((pieces, values),) = found.passages
        assert len(pieces) == len(values) == 4 and np.isfinite(values).all()
    finally:
        pool.close()
