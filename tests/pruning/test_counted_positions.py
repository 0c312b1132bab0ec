"""Positions that do not count: what is padded on the right gives the results of the shorter sequences."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from calibration.texts_and_families import tokens
from numpy.testing import assert_allclose

from gprune.evaluation.perplexity import window_divergences, window_losses
from gprune.models.tiny import tiny_decoder
from gprune.pruning.calibration import collect, track_strongest
from gprune.pruning.calibration.context_statistics import collect_contexts
from gprune.pruning.calibration.contexts import fit_contexts, project_inputs
from gprune.pruning.calibration.gradients import taylor_scores
from gprune.pruning.calibration.sequential import prune_layerwise
from gprune.pruning.removal.osscar import osscar_decision
from gprune.pruning.removal.slimllm import layer_cosines
from gprune.pruning.removal.walk import remove_layerwise
from gprune.pruning.repair.fitting import fit
from gprune.pruning.sparsity.batches import common_ids
from gprune.pruning.sparsity.objective import head_losses, read_signed_ids
from gprune.records import PruningMasks, Tokens
from gprune.study import CalibrationSettings, ContextSettings, EvaluationSettings
from gprune.study.settings import BaselineSettings, OwnRepair, RepairSettings

LENGTH, PADDED = 7, 11


def decoder():
    return tiny_decoder("llama", layers=2, heads=4, kv_heads=2, hidden=12, neurons=13, head_width=4)


def short():
    return tokens(8, LENGTH)


def padded():
    """The sequences of `short` with padding that does not count."""
    plain = short()
    ids = np.full((len(plain.ids), PADDED), 5, np.int32)
    ids[:, :LENGTH] = plain.ids
    counted = np.zeros(ids.shape, bool)
    counted[:, :LENGTH] = True
    return replace(plain, ids=ids, counted=counted)


def statistics(text):
    model = decoder()
    strongest = track_strongest(model, text, 2)
    record = collect(model, text, CalibrationSettings(shards=2, batch=3, flap_variant="released"), strongest=strongest)
    names = [name for name in record.__dataclass_fields__ if name not in ("text", "fingerprint")]
    places = strongest.result(text)
    return [*(getattr(record, name) for name in names), places.sequences, places.positions, places.values]


def contexts(text, gradient):
    model, settings = decoder(), ContextSettings(count=2, tokens=40, dimensions=3)
    projection = project_inputs(model, text, settings, 3)
    found = fit_contexts(projection, settings, 0)
    (record,) = collect_contexts(model, text, [found], 2, 3, gradient)
    return [projection.mean, projection.points, record.tokens, record.mean, record.moment, record.affinity,
            record.layer_change]  # fmt: skip


def layerwise(text):
    energies = []

    def decide(layer, ffn, attention, _):
        energies.extend((ffn, attention))
        return ffn > np.median(ffn), np.array([True, layer == 0])

    return [*prune_layerwise(decoder(), text, 3, decide), *energies]


def masks(shape):
    ffn = np.random.default_rng(1).random((shape.layers, shape.neurons)) < 0.6
    return PruningMasks("test", ffn, np.array([[True, False], [True, True]]), 0.5, 0.5)


def repaired(text):
    model = decoder()
    record = fit(model, masks(model.shape), [text], RepairSettings(kind="least_squares_bias", damping=0.1), 3)
    return [getattr(record, name) for name in ("numbers", "biases", "errors")]


def removed(text):
    model = decoder()
    own = OwnRepair(kind="least_squares", target="own_inputs", damping=0.1)
    walked = remove_layerwise(model, text, 3, osscar_decision(model.shape, 0.6, None), own)
    return [walked.ffn, walked.heads, layer_cosines(model, text, 3)]


def taylor(text):
    scores = taylor_scores(decoder(), text, BaselineSettings(taylor_samples=8, taylor_length=text.ids.shape[1]))
    return [scores.ffn, scores.heads]


CONSUMERS = {
    "statistics": statistics,
    "contexts": lambda text: contexts(text, False),
    "contexts with gradients": lambda text: contexts(text, True),
    "layer by layer": layerwise,
    "repair": repaired,
    "OSSCAR and SlimLLM": removed,
    "LLM-Pruner": taylor,
}


@pytest.mark.parametrize("name", CONSUMERS)
def test_padding_changes_no_result(name):
    for actual, expected in zip(CONSUMERS[name](padded()), CONSUMERS[name](short()), strict=True):
        if isinstance(expected, np.ndarray):
            assert_allclose(actual, expected, rtol=2e-4, atol=1e-5)
        else:
            assert actual == expected


def test_losses_over_counted_tokens_are_those_of_the_short_sequences():
    model, pruned, long, plain = decoder(), decoder(), padded(), short()
    with torch.no_grad():
        pruned.down_proj(0).weight.mul_(0.5)
    settings = EvaluationSettings(batch=3)
    expected = window_losses(model.model, plain.ids, "text", settings)
    assert_allclose(window_losses(model.model, long.ids, "text", settings, counted=long.counted), expected, rtol=1e-5)
    expected = window_divergences(model.model, pruned.model, plain.ids, 3)
    actual = window_divergences(model.model, pruned.model, long.ids, 3, counted=long.counted)
    assert_allclose(actual, expected, rtol=1e-4)


def test_learning_weighs_only_predictions_of_counted_tokens():
    model, long, plain = decoder(), padded(), short()
    signed = common_ids([long])
    assert (signed[:, LENGTH:] == ~5).all() and (signed[:, :LENGTH] == plain.ids).all()
    ids, weights = read_signed_ids(signed, torch.device("cpu"))
    assert (ids.numpy() == long.ids).all()
    teacher = model.hidden_states(ids).detach() * 1.1
    losses = head_losses(model.logits, model.hidden_states(ids).detach(), teacher, ids, 1.0, weights)
    direct = head_losses(model.logits, model.hidden_states(ids).detach(), teacher, ids, 1.0)
    part = slice(0, LENGTH - 1)
    for name, predictions in (("cross_entropy", PADDED - 1), ("distillation", PADDED)):
        for suffix in ("", "_gradient"):
            actual, plainly = getattr(losses, name + suffix), getattr(direct, name + suffix)
            assert not actual[:, LENGTH - 1 :].any()
            # each sequence keeps the weight of a whole one
            assert_allclose(actual[:, part], plainly[:, part] * predictions / (LENGTH - 1), rtol=1e-5)
    assert read_signed_ids(common_ids([plain]), torch.device("cpu"))[1] is None


def test_a_sequence_without_a_counted_position_is_refused():
    text = padded()
    counted = np.array(text.counted)
    counted[3] = False
    with pytest.raises(ValueError, match="without a position that counts"):
        Tokens(text.text, text.fingerprint, text.ids, text.available, counted)
