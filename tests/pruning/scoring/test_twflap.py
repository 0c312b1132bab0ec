"""Token-weighted FLAP against a loop over explicit tokens, and FLAP against its authors' decisions."""

import math

import numpy as np
import pytest
import torch
from calibration.texts_and_families import tokens
from made_contexts import context_moments, contexts_of

from gprune.models.tiny import tiny_decoder
from gprune.pruning.allocation import flap
from gprune.pruning.calibration import collect
from gprune.pruning.scoring import score, twflap
from gprune.records import ModelShape, UnitScores, WeightNorms
from gprune.study import CalibrationSettings, ContextSettings
from gprune.system.progress import silent

LAYERS, SHARDS, TOKENS, NEURONS, CONTEXTS, GROUPS = 2, 4, 15, 13, 3, 5
SHAPE = ModelShape(layers=LAYERS, neurons=NEURONS, heads=2, kv_heads=2, head_width=2, hidden=6)


def random_inputs(seed=0, absent=None):
    """(layers, shards, tokens, neurons) inputs of down_proj, and (layers, shards, tokens) contexts."""
    generator = np.random.default_rng(seed)
    inputs = generator.normal(0.4, 2, (LAYERS, SHARDS, TOKENS, NEURONS)) * generator.gamma(2, 1, NEURONS)
    kinds = generator.integers(0, CONTEXTS, (LAYERS, SHARDS, TOKENS))
    if absent is not None:
        kinds[kinds == absent] = (absent + 1) % CONTEXTS
    return inputs + 2 * kinds[..., None], kinds


def measured(inputs, kinds):
    affinity = np.random.default_rng(5).gamma(1, 1, (LAYERS, CONTEXTS, NEURONS))
    return context_moments(inputs, kinds, [[shard] for shard in range(SHARDS)], affinity, np.zeros(LAYERS))


def column_norms(seed=2):
    values = np.random.default_rng(seed).random((LAYERS, NEURONS)) + 0.1
    return WeightNorms(values, values, np.ones((LAYERS, 4)), np.ones((LAYERS, 4)))


def grouping(seed=3):
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, GROUPS, (LAYERS, NEURONS))
    profile = generator.gamma(0.5, 1, (LAYERS, GROUPS, CONTEXTS))
    return labels, profile / profile.sum(-1, keepdims=True)


HEADS = UnitScores("flap", "t", np.ones((LAYERS, NEURONS)), np.full((LAYERS, 2), 3.0), np.full((LAYERS, 4), 7.0))


def token_loop(inputs, kinds, labels, profile, distances, norms, temperature):
    """w_t = T softmax_t(-D[k, c(t)] / temperature), mixed over k; weighted variance times |W_:j|^2."""
    result = np.zeros((LAYERS, NEURONS))
    for layer in range(LAYERS):
        x = inputs[layer].reshape(-1, NEURONS)
        kind = kinds[layer].ravel()
        single = []
        for k in range(CONTEXTS):
            raw = [math.exp(-distances[layer, k, c] / temperature) for c in kind]
            single.append([len(kind) * value / math.fsum(raw) for value in raw])
        for j in range(NEURONS):
            mix = profile[layer, labels[layer, j]]
            w = [sum(mix[k] * single[k][t] for k in range(CONTEXTS)) for t in range(len(kind))]
            mean = math.fsum(w[t] * x[t, j] for t in range(len(kind))) / math.fsum(w)
            spread = math.fsum(w[t] * (x[t, j] - mean) ** 2 for t in range(len(kind))) / math.fsum(w)
            result[layer, j] = spread * norms.down_column_square[layer, j]
    return result


@pytest.mark.parametrize("absent", [None, 1])
@pytest.mark.parametrize("temperature", [0.2, 1.0, 5.0])
def test_scores_are_those_of_a_loop_over_tokens(temperature, absent):
    inputs, kinds = random_inputs(absent=absent)
    labels, profile = grouping()
    settings = ContextSettings(count=CONTEXTS, temperature=temperature)
    statistics, contexts, norms = measured(inputs, kinds), contexts_of(SHAPE), column_norms()
    actual = twflap.score(statistics, contexts, norms, labels, profile, HEADS, settings)
    expected = token_loop(inputs, kinds, labels, profile, contexts.distances, norms, temperature)
    np.testing.assert_allclose(actual.ffn, expected, rtol=1e-12)
    assert (actual.metric, actual.text) == ("twflap", "t")
    np.testing.assert_array_equal(actual.heads, HEADS.heads)
    np.testing.assert_array_equal(actual.channels, HEADS.channels)


@pytest.mark.parametrize("shards", [[1], [0, 2], np.array([3, 1, 0])], ids=str)
def test_some_shards_score_as_their_tokens_alone(shards):
    inputs, kinds = random_inputs()
    labels, profile = grouping()
    arguments = contexts_of(SHAPE), column_norms(), labels, profile, HEADS, ContextSettings(count=CONTEXTS)
    actual = twflap.score(measured(inputs, kinds), *arguments, shards=shards)
    some = inputs[:, list(shards)], kinds[:, list(shards)]
    expected = token_loop(*some, labels, profile, arguments[0].distances, arguments[1], 1.0)
    np.testing.assert_allclose(actual.ffn, expected, rtol=1e-12)


LABELS = np.array([[0, 1, 2, 0, 1, 2, 0, 3, 3, 0], [1, 0, 0, 1, 1, 0, 0, 0, 1, 0]])


def test_a_dominant_profile_is_the_context_in_which_a_module_stands_out():
    generator = np.random.default_rng(9)
    affinity = generator.gamma(1, 1, (2, 3, 10))
    # one context has larger gradients throughout; that alone must not decide
    affinity[:, 1] *= 50
    profile, chosen = twflap.module_profile(affinity, LABELS, 4), set()
    for layer in range(2):
        for module in range(int(LABELS[layer].max()) + 1):
            members = np.flatnonzero(LABELS[layer] == module)
            best = int(np.argmax([np.mean(row[members]) / np.mean(row) for row in affinity[layer]]))
            np.testing.assert_array_equal(profile[layer, module], np.eye(3)[best])
            chosen.add(best)
    assert len(chosen) > 1
    np.testing.assert_array_equal(profile[1, 2:], 1 / 3)


def test_a_modules_profile_is_the_mean_affinity_of_its_neurons():
    generator = np.random.default_rng(8)
    affinity = generator.gamma(1, 1, (2, 3, 10))
    affinity[0, :, LABELS[0] == 2] = 0.0
    profile = twflap.module_profile(affinity, LABELS, 4, "mixed")
    for layer in range(2):
        for module in range(4):
            sums = [sum(row[LABELS[layer] == module]) for row in affinity[layer]]
            expected = [value / sum(sums) for value in sums] if sum(sums) > 0 else [1 / 3] * 3
            np.testing.assert_allclose(profile[layer, module], expected, rtol=1e-12)
    np.testing.assert_allclose(profile.sum(-1), 1, rtol=1e-12)
    np.testing.assert_array_equal(profile[1, 2:], 1 / 3)


SAMPLES, LENGTH = 12, 7


@torch.no_grad()
def fluctuations(decoder, ids, module):
    """(layers, channels) of the recursion over samples: one sequence a step, about the mean so far."""
    layers = []
    for layer in range(decoder.shape.layers):
        mean, fluctuation, count, inputs = 0.0, 0.0, 0, []
        handle = module(layer).register_forward_pre_hook(
            lambda _, arguments, values=inputs: values.append(arguments[0])
        )
        for row in ids:
            decoder.hidden_states(torch.tensor(row[None].astype(np.int64)))
        handle.remove()
        for sequence in inputs:
            x = sequence[0].double().numpy()
            mean = mean * count / (count + 1) + x.mean(axis=0) / (count + 1)
            if count:
                fluctuation = fluctuation * (count - 1) / count + ((x - mean) ** 2).sum(axis=0) / (count + 1)
            count += 1
        layers.append(fluctuation)
    return np.stack(layers)


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
    sums = np.cumsum([cost for _, cost in order])
    threshold, _ = order[np.abs(sums - target * sums[-1]).argmin()]
    return mlp > threshold, heads > threshold, mlp == threshold, heads == threshold


@pytest.mark.parametrize("target", [0.5, 0.7])
@pytest.mark.parametrize(
    "kind", [{"kv_heads": 4, "neurons": 96}, {"kv_heads": 2, "neurons": 61, "hidden": 12, "head_width": 4}]
)
def test_every_decision_but_that_of_the_unit_at_the_cut_is_the_published_one(kind, target):
    decoder, calibration = tiny_decoder(**kind), tokens(SAMPLES, LENGTH, 3)
    settings = CalibrationSettings(samples=SAMPLES, length=LENGTH, shards=4, batch=4, flap_variant="released")
    statistics = collect(decoder, calibration, settings, silent)
    scores = score("flap", statistics, decoder.weight_norms(), decoder.shape, settings)
    masks = flap.allocate(scores, decoder.shape, target)
    mlp, heads, mlp_cut, heads_cut = published(decoder, calibration.ids, target)
    # no layer is emptied here: then the floors, which the published code lacks, would have their say
    assert mlp.any(axis=1).all() and (heads | heads_cut).any(axis=1).all()
    assert mlp_cut.sum() + heads_cut.sum() == 1
    np.testing.assert_array_equal(masks.ffn, mlp | mlp_cut)
    np.testing.assert_array_equal(masks.heads, heads | heads_cut)
    scores = score("flap", statistics, decoder.weight_norms(), decoder.shape, CalibrationSettings())
    assert (flap.allocate(scores, decoder.shape, target).ffn != masks.ffn).any()
