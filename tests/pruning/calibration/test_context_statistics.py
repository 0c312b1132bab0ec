"""Moments and affinities per context against float64 loops and the gradients of single sequences."""

import numpy as np
import pytest
import torch
from calibration.texts_and_families import FAMILIES, tokens

from gprune.models.devices import commit
from gprune.models.tiny import tiny_decoder
from gprune.pruning.calibration.context_statistics import GroupMoments, collect_contexts
from gprune.pruning.calibration.contexts import fit_contexts, project_inputs
from gprune.study.settings import ContextSettings

COUNT = 3
ARRAYS = ("tokens", "mean", "moment", "affinity", "layer_change")


def contexts_of(decoder, seed=0):
    settings = ContextSettings(COUNT, 4, 60)
    return fit_contexts(project_inputs(decoder, tokens(12, 5, 7, "another"), settings, 4), settings, seed)


def measured(decoder, contexts=None, calibration=None, shards=4, batch=4, gradient=True):
    calibration = calibration or tokens()
    clusters = [contexts or contexts_of(decoder)]
    return collect_contexts(decoder, calibration, clusters, shards, batch, gradient)[0]


def naive(decoder, contexts, ids):
    """Per sequence and layer: contexts, neurons and |neuron * gradient| of the tokens, and 1 - cosine."""
    labels, neurons, effects, change = [], [], [], []
    layers = range(decoder.shape.layers)
    for row in ids:
        x, h, outer = {}, {}, {}

        def keep(store, layer):
            def hook(_, arguments, output):
                store[layer] = arguments[0], output

            return hook

        embeddings = decoder.model.get_input_embeddings()
        handles = [embeddings.register_forward_hook(lambda _, arguments, output: output.requires_grad_())]
        for layer in layers:
            handles.append(decoder.down_proj(layer).register_forward_hook(keep(x, layer)))
            handles.append(decoder.up_proj(layer).register_forward_hook(keep(h, layer)))
            handles.append(decoder.layers[layer].register_forward_hook(keep(outer, layer)))
        ids_of_row = torch.tensor(row[None].astype(np.int64))
        logits = decoder.model(ids_of_row).logits[0].float()
        loss = sum(-logits[t].log_softmax(-1)[row[t + 1]] for t in range(len(row) - 1))
        gradients = torch.autograd.grad(loss, [x[layer][0] for layer in layers])
        for handle in handles:
            handle.remove()
        neurons.append([x[layer][0][0].detach().double().numpy() for layer in layers])
        effects.append([abs(x[i][0][0] * g[0]).detach().double().numpy() for i, g in enumerate(gradients)])
        labels.append([])
        for layer in layers:
            centred = h[layer][0][0].detach().double().numpy() - contexts.mean[layer]
            projected = centred @ contexts.components[layer].T.astype(float)
            distance = np.linalg.norm(projected[:, None] - contexts.centroids[layer], axis=-1)
            labels[-1].append(distance.argmin(axis=1))
        ends = [[end[0].detach().double() for end in outer[layer]] for layer in layers]
        change.append([1 - torch.cosine_similarity(*pair, dim=-1).numpy() for pair in ends])
    return np.array(labels), np.array(neurons), np.array(effects), np.array(change)


@pytest.mark.parametrize(("kind", "batch"), list(zip(FAMILIES, (1, 3, 4, 7, 64), strict=True)))
def test_statistics_are_those_of_a_loop_over_sequences_and_contexts(kind, batch):
    decoder, calibration = tiny_decoder(**FAMILIES[kind]), tokens()
    contexts = contexts_of(decoder)
    actual = measured(decoder, contexts, calibration, batch=batch)
    labels, neurons, effects, change = naive(decoder, contexts, calibration.ids)
    for layer in range(decoder.shape.layers):
        for context in range(COUNT):
            inside = labels[:, layer] == context
            for shard, rows in enumerate([slice(0, 3), slice(3, 6), slice(6, 8), slice(8, 10)]):
                x = neurons[rows, layer][inside[rows]]
                cell = shard, layer, context
                assert actual.tokens[cell] == len(x)
                mean = x.mean(axis=0) if len(x) else np.zeros(decoder.shape.neurons)
                np.testing.assert_allclose(actual.mean[cell], mean, rtol=1e-5, atol=1e-6)
                moment = ((x - mean) ** 2).sum(axis=0)
                np.testing.assert_allclose(actual.moment[cell], moment, rtol=1e-5, atol=1e-6)
            if inside.any():
                effect = effects[:, layer][inside].mean(axis=0)
                np.testing.assert_allclose(actual.affinity[layer, context], effect, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(actual.layer_change[layer], change[:, layer].mean(), rtol=1e-5, atol=1e-6)
    assert (actual.text, actual.contexts) == ("a text", "another")
    assert all(getattr(actual, name).dtype == np.float64 for name in ARRAYS)
    assert actual.affinity.max() > 0


@pytest.mark.parametrize("gradient", [True, False])
def test_one_pass_under_several_contexts_gives_what_each_gives_alone_to_the_last_bit(gradient):
    decoder, calibration = tiny_decoder(neurons=13), tokens()
    several = [contexts_of(decoder), contexts_of(decoder, seed=1)]
    before = decoder.forward_tokens
    together = collect_contexts(decoder, calibration, several, 4, 4, gradient)
    assert decoder.forward_tokens - before == calibration.ids.size
    for contexts, statistics in zip(several, together, strict=True):
        alone = measured(decoder, contexts, calibration, gradient=gradient)
        assert all(np.array_equal(getattr(statistics, name), getattr(alone, name)) for name in ARRAYS)
    assert not np.array_equal(together[0].tokens, together[1].tokens)


def test_without_gradient_there_is_no_graph_and_no_head():
    decoder, tracked = tiny_decoder(), []

    def head(*_):
        raise RuntimeError("the LM head ran")

    handles = [
        decoder.model.get_output_embeddings().register_forward_pre_hook(head),
        decoder.down_proj(1).register_forward_pre_hook(lambda _, a: tracked.append(a[0].requires_grad)),
    ]
    statistics = measured(decoder, gradient=False)
    assert not statistics.affinity.any()
    assert tracked and not any(tracked)
    with pytest.raises(RuntimeError, match="LM head ran"):
        measured(decoder)
    for handle in handles:
        handle.remove()
    with_gradient = measured(decoder)
    np.testing.assert_allclose(with_gradient.moment, statistics.moment, rtol=1e-6)
    np.testing.assert_allclose(with_gradient.layer_change, statistics.layer_change, rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("mean", "spread"), [(0, 1), (100, 1), (-30, 0.3), (1e-3, 1e-6), (0, 1e-5), (0, 20)])
def test_group_moments_are_accurate_far_from_zero(mean, spread, dtype):
    generator = torch.Generator().manual_seed(0)
    x = (torch.randn(600, 5, generator=generator) * spread + mean).to(dtype)
    x[::60] += 1500 * spread
    group = torch.randint(0, 4, (600,), generator=generator)
    group[::60] = 3
    part = GroupMoments(2, 1, 2, 5, x.device)
    for rows in (slice(0, 100), slice(100, 101), slice(101, 600)):
        members = torch.nn.functional.one_hot(group[rows], 4).T.float()
        commit(part.prepare(0, slice(0, 2), x[rows], members))
    for index in range(4):
        inside = x[group == index].double()
        cell = index // 2, 0, index % 2
        assert part.tokens[cell] == len(inside)
        size = float(inside.square().mean().sqrt())
        torch.testing.assert_close(part.mean[cell], inside.mean(dim=0), rtol=1e-6, atol=1e-6 * size)
        moment = (inside - inside.mean(dim=0)).square().sum(dim=0)
        torch.testing.assert_close(part.moment[cell], moment, rtol=1e-5, atol=0)
