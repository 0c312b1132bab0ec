"""What every pass over a text holds to: it is told, it can be stopped, and the model is left as it was."""

import numpy as np
import pytest
import torch
from calibration.texts_and_families import is_left_alone, tokens

from gprune.models.tiny import tiny_decoder
from gprune.pruning.calibration import collect, sequential
from gprune.pruning.calibration.context_statistics import collect_contexts
from gprune.pruning.calibration.contexts import fit_contexts, project_inputs
from gprune.pruning.calibration.gradients import taylor_scores
from gprune.study.settings import BaselineSettings, CalibrationSettings, ContextSettings
from gprune.system.errors import Cancelled, NumericsError
from gprune.system.progress import silent

CONTEXTS = ContextSettings(3, 4, 60)
OF_SEQUENCES = [(0, 10), (4, 10), (8, 10), (10, 10)]
OF_LAYERS = [(0, 3), (1, 3), (2, 3), (3, 3)]


def fitted(decoder, listener=silent):
    return fit_contexts(project_inputs(decoder, tokens(), CONTEXTS, 4, listener), CONTEXTS, 0, listener)


def moments(decoder, listener):
    return collect(decoder, tokens(), CalibrationSettings(samples=10, length=6, shards=4, batch=4), listener)


def of_contexts(decoder, listener, gradient=True):
    with torch.no_grad():
        clusters = fitted(tiny_decoder(layers=3))
    return collect_contexts(decoder, tokens(), [clusters], 2, 4, gradient, listener)[0]


def of_weights(decoder, listener):
    return taylor_scores(decoder, tokens(), BaselineSettings(taylor_samples=4, taylor_length=5), listener)


def layer_by_layer(decoder, listener):
    keep = np.ones(decoder.shape.neurons, bool), np.ones(decoder.shape.kv_heads, bool)
    return sequential.prune_layerwise(decoder, tokens(), 4, lambda *_: keep, listener)


PASSES = {
    "moments": (moments, OF_SEQUENCES, r"input of o_proj in layer 1 .channel \d+."),
    "contexts": (fitted, OF_SEQUENCES + 2 * OF_LAYERS, "FFN input of layer 1"),
    "statistics of contexts": (of_contexts, OF_SEQUENCES, "input of down_proj in layer 1"),
    "gradients of weights": (of_weights, [(0, 1), (1, 1)], "output of layer 1"),
    "layer by layer": (layer_by_layer, OF_LAYERS, "o_proj in layer 1"),
}


@pytest.fixture(params=PASSES)
def pass_case(request):
    return PASSES[request.param]


def test_it_tells_how_far_it_is_and_leaves_the_model_as_it_was_and_it_can_be_stopped(pass_case):
    run, steps, _ = pass_case
    decoder, events, ids = tiny_decoder(layers=3), [], torch.arange(12).reshape(2, 6)
    dense, before = decoder.hidden_states(ids), [weight.clone() for weight in decoder.model.parameters()]
    run(decoder, lambda done, total, _: events.append((done, total)))
    assert events == steps
    assert is_left_alone(decoder) and torch.is_grad_enabled()
    assert all(map(torch.equal, decoder.model.parameters(), before))
    assert torch.equal(decoder.hidden_states(ids), dense)
    decoder = tiny_decoder(layers=3)

    def stop(done, total, message):
        if done:
            raise Cancelled(message)

    with pytest.raises(Cancelled):
        run(decoder, stop)
    assert is_left_alone(decoder)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_activations_that_are_not_finite_name_their_layer(pass_case, value):
    run, _, location = pass_case
    decoder = tiny_decoder(layers=3)
    decoder.v_proj(1).weight[0, 0] = value
    with pytest.raises(NumericsError, match=rf"{location}.* is not finite.*bfloat16"):
        run(decoder, silent)
    assert is_left_alone(decoder)


@pytest.mark.parametrize(
    ("run", "location"),
    [(of_weights, "gradient of .*_proj in layer 2"), (of_contexts, "gradient at the input of down_proj in layer 2")],
)
def test_gradients_that_are_not_finite_name_the_layer_they_come_from(run, location):
    decoder = tiny_decoder(layers=3)
    decoder.model.get_output_embeddings().weight[0, 0] = float("nan")
    with pytest.raises(NumericsError, match=rf"{location} is not finite"):
        run(decoder, silent)
    assert is_left_alone(decoder)
