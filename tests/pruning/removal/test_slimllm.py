"""SlimLLM's scores, heads and ratios against loops over tokens, directions and heads in float64."""

import numpy as np
import pytest
import torch

from gprune.models.tiny import tiny_decoder
from gprune.pruning.removal import slimllm
from gprune.records import ModelShape, Tokens, budget
from gprune.system.errors import MethodError

SHAPES = {
    "mha": ModelShape(layers=8, neurons=64, heads=4, kv_heads=4, head_width=2, hidden=8),
    "gqa": ModelShape(layers=5, neurons=53, heads=6, kv_heads=2, head_width=3, hidden=5),
    "textllama-6m": ModelShape(layers=6, neurons=768, heads=8, kv_heads=8, head_width=32, hidden=256),
    "7b": ModelShape(layers=32, neurons=11008, heads=32, kv_heads=32, head_width=128, hidden=4096),
    "two layers": ModelShape(layers=2, neurons=61, heads=4, kv_heads=1, head_width=2, hidden=6),
}


def about(x):
    moved = x - x.mean(axis=0)
    return torch.tensor(moved.T @ moved)


def test_scores_of_neurons_equal_the_loop():
    rng = np.random.default_rng(0)
    entering, inner = rng.normal(size=(40, 6)) + 0.2, rng.normal(size=(40, 11)) + 0.5
    gate, up, down = rng.normal(size=(11, 6)), rng.normal(size=(11, 6)), rng.normal(size=(6, 11))
    output = inner @ down.T
    variance, directions = np.linalg.eig(np.cov(output.T, bias=True) * len(output))
    expected = []
    for neuron in range(11):
        rows = [sum((row[neuron, i] * np.linalg.norm(entering[:, i])) ** 2 for i in range(6)) for row in (gate, up)]
        last = 0.0
        for value, direction in zip(np.abs(variance), directions.T, strict=True):
            share = 1 / (1 + np.exp(-value / np.abs(variance).mean()))
            last += (abs(down[:, neuron] @ direction) * share * np.linalg.norm(inner[:, neuron])) ** 2
        expected.append(np.sqrt(rows[0]) + np.sqrt(rows[1]) + np.sqrt(last))
    actual = slimllm.neuron_scores(
        [torch.tensor(gate), torch.tensor(up)],
        torch.tensor(down),
        torch.tensor((entering**2).sum(axis=0)),
        torch.tensor((inner**2).sum(axis=0)),
        about(inner),
    )
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


def correlation(part, total_output):
    total = 0.0
    for channel in range(total_output.shape[1]):
        if part[:, channel].std() > 1e-9 and total_output[:, channel].std() > 1e-9:
            total += abs(np.corrcoef(part[:, channel], total_output[:, channel])[0, 1])
    return total


def swapped(outputs, keep):
    """Kept heads from the outputs (heads, tokens, channels) of each, by the loop."""
    total, heads = outputs.sum(axis=0), range(len(outputs))
    alone = [correlation(total - outputs[head], total) for head in heads]
    order = sorted(heads, key=lambda head: -alone[head])
    gone, retained = order[: len(outputs) - keep], order[len(outputs) - keep :]
    best = correlation(outputs[retained].sum(axis=0), total)
    swaps = 0
    for head in gone:
        chosen = retained
        for position in range(keep):
            tried = [*retained[:position], head, *retained[position + 1 :]]
            if (value := correlation(outputs[tried].sum(axis=0), total)) > best:
                best, chosen, swaps = value, tried, swaps + (chosen is retained)
        retained = chosen
    return sorted(retained), swaps


@pytest.mark.parametrize(("heads", "width"), [(6, 3), (4, 6), (9, 1)])
def test_heads_are_those_of_the_loop(heads, width):
    done = 0
    for seed in range(5):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(50, heads * width)) @ rng.normal(size=(heads * width, heads * width)) + 1
        weight = rng.normal(size=(7, heads * width))
        # a channel that says nothing
        weight[3] = 0
        split = np.split(x, heads, axis=1), np.split(weight, heads, axis=1)
        outputs = np.stack([part @ rows.T for part, rows in zip(*split, strict=True)])
        parts = slimllm.output_covariances(torch.tensor(weight), about(x), heads)
        moved = outputs - outputs.mean(axis=1, keepdims=True)
        np.testing.assert_allclose(parts, np.einsum("gtc,htc->ghc", moved, moved), rtol=1e-6, atol=1e-9)
        for keep in range(1, heads + 1):
            expected, swaps = swapped(outputs, keep)
            assert slimllm.keep_groups(parts, keep).nonzero().flatten().tolist() == expected, (seed, keep)
            done += swaps
    assert done > 3


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("target", [0.4, 0.5, 0.8, 0.93])
def test_the_budget_is_met_to_a_neuron_and_shares_follow_the_cosines(name, target):
    shape = SHAPES[name]
    change = np.random.default_rng(1).uniform(0.55, 0.99, shape.layers)
    pruned = {2: 2, 5: 4, 6: 5, 8: 7, 32: 30}[shape.layers]
    groups, neurons = slimllm.layer_unit_counts(change, shape, target)
    ffn = np.arange(shape.neurons) < neurons[:, None]
    heads = np.arange(shape.kv_heads) < groups[:, None]
    retention = budget.retention(shape, ffn, heads)
    assert abs(retention - target) * shape.decoder_weights <= shape.neuron_weights / 2 + 1e-6
    dense = np.argsort(-change)[pruned:]
    assert (neurons[dense] == shape.neurons).all() and (groups[dense] == shape.kv_heads).all()
    assert (neurons >= 1).all() and (groups >= 1).all()
    removed = (~ffn).sum(axis=1) * shape.neuron_weights + (~heads).sum(axis=1) * shape.group_weights
    layer = shape.decoder_weights / shape.layers
    expected = np.exp(10 * change)
    expected[dense] = 0
    largest = layer - shape.neuron_weights - shape.group_weights
    share = expected / expected.sum() * (1 - target) * shape.decoder_weights
    if share.max() <= largest:
        assert np.abs(removed - share).max() <= 1.01 * shape.neuron_weights
    else:
        assert removed.max() >= largest - shape.neuron_weights


def test_a_retention_below_what_the_pruned_layers_can_give_is_refused():
    shape, change = SHAPES["gqa"], np.linspace(0.9, 0.5, 5)
    message = r"SlimLLM prunes 4 of 5 layers and cannot reach a retention of 0.2: ask for 0.\d+ or"
    with pytest.raises(MethodError, match=message) as error:
        slimllm.layer_unit_counts(change, shape, 0.2)
    lowest = float(str(error.value).split("ask for ")[1].split()[0])
    groups, neurons = slimllm.layer_unit_counts(change, shape, lowest)
    assert sorted(neurons[:4]) <= [1, 1, 1, 3] and (groups[:4] == 1).all() and neurons[4] == 53


def test_cosines_are_those_of_whole_runs():
    decoder = tiny_decoder("qwen2", layers=3, kv_heads=2, neurons=13)
    ids = np.random.default_rng(0).integers(3, 64, (7, 9)).astype(np.int32)
    passed = decoder.forward_tokens
    actual = slimllm.layer_cosines(decoder, Tokens("t", "t", ids, ids.size), 3)
    assert decoder.forward_tokens - passed == ids.size
    states, handles = [], []
    for layer in decoder.layers:
        handles.append(layer.register_forward_hook(lambda _, inputs, output: states.append((inputs, output))))
    with torch.no_grad():
        decoder.hidden_states(torch.tensor(ids.astype(np.int64)))
    for (inputs, output), cosine in zip(states, actual, strict=True):
        before, after = inputs[0].double(), (output[0] if isinstance(output, tuple) else output).double()
        pairs = zip(before.flatten(0, 1), after.flatten(0, 1), strict=True)
        expected = [(a @ b / a.norm() / b.norm()).item() for a, b in pairs]
        assert cosine == pytest.approx(np.mean(expected), rel=1e-5)
