"""Every token of a passage by a neuron's activation: what the dense model has there, and no other answer."""

import numpy as np
import pytest
import torch
from preview.test_passages import asked
from waiting import wait_for

from gprune.app.preview import DENSE, Client, Fired, Firing, Question
from gprune.app.preview.worker import messages
from gprune.app.preview.worker.worker import RequestHandler
from gprune.pipeline import stages

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
    ):
        reply = asked(handler, source, what, Question("", DENSE))
        assert sentence in reply["problem"] and reply["ready"]


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
