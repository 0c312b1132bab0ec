"""FLAP as its authors' code decides, written as plain loops, beside ours under `flap_variant=released`."""

import numpy as np
import pytest
import torch

from gprune.models.tiny import tiny_decoder
from gprune.pruning.allocation import flap
from gprune.pruning.calibration import collect
from gprune.pruning.scoring import score
from gprune.records import Tokens
from gprune.study.settings import CalibrationSettings
from gprune.system.progress import silent

SAMPLES, LENGTH = 12, 7


def calibration(seed):
    ids = np.random.default_rng(seed).integers(0, 64, (SAMPLES, LENGTH)).astype(np.int32)
    return Tokens("a text", "fingerprint", ids, SAMPLES)


@torch.no_grad()
def fluctuations(decoder, ids, module):
    """(layers, channels) of the recursion over samples: one sequence a step, about the mean so far."""
    found = []
    for layer in range(decoder.shape.layers):
        mean, fluctuation, seen, inputs = 0.0, 0.0, 0, []
        handle = module(layer).register_forward_pre_hook(lambda _, given, kept=inputs: kept.append(given[0]))
        for row in ids:
            decoder.hidden_states(torch.tensor(row[None].astype(np.int64)))
        handle.remove()
        for sequence in inputs:
            x = sequence[0].double().numpy()
            mean = mean * seen / (seen + 1) + x.mean(axis=0) / (seen + 1)
            if seen:
                fluctuation = fluctuation * (seen - 1) / seen + ((x - mean) ** 2).sum(axis=0) / (seen + 1)
            seen += 1
        found.append(fluctuation)
    return np.stack(found)


def standard(values):
    return (values - values.mean(axis=1, keepdims=True)) / values.std(axis=1, ddof=1, keepdims=True)


def published(decoder, ids, target):
    """Units above the threshold, and the unit that is the threshold, which the published code leaves out."""
    shape = decoder.shape
    layers = range(shape.layers)
    square = {
        name: np.stack([(module(i).weight.detach().double().numpy() ** 2).sum(axis=0) for i in layers])
        for name, module in (("mlp", decoder.down_proj), ("attention", decoder.o_proj))
    }
    mlp = standard(fluctuations(decoder, ids, decoder.down_proj) * square["mlp"])
    channels = standard((fluctuations(decoder, ids, decoder.o_proj) * square["attention"]) ** 2)
    heads = channels.reshape(shape.layers, shape.kv_heads, -1).mean(axis=2)
    width = shape.head_width
    # of a head of 128 channels with its own keys and values: 512 / 3 neurons
    price = (2 * shape.heads // shape.kv_heads + 2) * width / 3
    units = [(value, price) for value in heads.ravel()] + [(value, 1.0) for value in mlp.ravel()]
    order = sorted(units, reverse=True)
    sums, total = [], 0.0
    for _, cost in order:
        total += cost
        sums.append(total)
    at = min(range(len(order)), key=lambda i: abs(sums[i] - target * total))
    threshold = order[at][0]
    return mlp > threshold, heads > threshold, mlp == threshold, heads == threshold


@pytest.mark.parametrize("target", [0.5, 0.7])
@pytest.mark.parametrize(
    "kind", [{"kv_heads": 4, "neurons": 96}, {"kv_heads": 2, "neurons": 61, "hidden": 12, "head_width": 4}]
)
def test_every_decision_but_that_of_the_unit_at_the_cut_is_the_published_one(kind, target):
    decoder, tokens = tiny_decoder(**kind), calibration(3)
    settings = CalibrationSettings(samples=SAMPLES, length=LENGTH, shards=4, batch=4, flap_variant="released")
    statistics = collect(decoder, tokens, settings, silent)
    scores = score("flap", statistics, decoder.weight_norms(), decoder.shape, settings)
    ours = flap.allocate(scores, decoder.shape, target)
    mlp, heads, mlp_cut, heads_cut = published(decoder, tokens.ids, target)
    # no layer is emptied here: then the floors, which the published code lacks, would have their say
    assert mlp.any(axis=1).all() and (heads | heads_cut).any(axis=1).all()
    assert mlp_cut.sum() + heads_cut.sum() == 1
    np.testing.assert_array_equal(ours.ffn, mlp | mlp_cut)
    np.testing.assert_array_equal(ours.heads, heads | heads_cut)
    plain = flap.allocate(
        score("flap", statistics, decoder.weight_norms(), decoder.shape, CalibrationSettings()),
        decoder.shape,
        target,
    )
    assert (plain.ffn != ours.ffn).any()
