"""Layer after layer: masks and weights of OSSCAR and SlimLLM against whole runs of the model in float64."""

import copy

import numpy as np
import pytest
import torch
from calibration.texts_and_families import add_biases
from calibration.texts_and_families import tokens as some_tokens

from gprune.models.decoder import Decoder
from gprune.models.tiny import tiny_decoder
from gprune.pruning.removal import osscar, slimllm, walk
from gprune.pruning.repair.fitting import fit
from gprune.records import PruningMasks, budget
from gprune.study.methods import METHODS
from gprune.system.errors import NumericsError

NAMES = ("osscar", "slimllm")
TARGET = 0.6
KINDS = {
    "mha": {"family": "llama", "heads": 4, "kv_heads": 4},
    "gqa": {"family": "llama", "heads": 6, "kv_heads": 3},
    "mistral": {"family": "mistral", "heads": 4, "kv_heads": 2},
    "qwen2": {"family": "qwen2", "heads": 4, "kv_heads": 2},
    "qwen3": {"family": "qwen3", "heads": 6, "kv_heads": 3},
    "biased": {"family": "llama", "heads": 6, "kv_heads": 3},
}


def decoder_of(kind="gqa", **more):
    sizes = {"layers": 4, "hidden": 12, "neurons": 31, "head_width": 4} | KINDS[kind] | more
    decoder = tiny_decoder(**sizes)
    return add_biases(decoder, "o_proj", "down_proj") if kind == "biased" else decoder


def walk_of(name, decoder, tokens, batch=4):
    """What the walk of a method ends with."""
    if name == "osscar":
        choose = osscar.osscar_decision(decoder.shape, TARGET)
    else:
        choose = slimllm.slimllm_decision(decoder, TARGET, slimllm.layer_cosines(decoder, tokens, batch))
    return walk.remove_layerwise(decoder, tokens, batch, choose, METHODS[name].fit)


def masks_of(name, decoder, walked):
    retention = budget.retention(decoder.shape, walked.ffn, walked.heads)
    return PruningMasks(name, walked.ffn, walked.heads, retention, TARGET)


@torch.no_grad()
def recorded_inputs(decoder, ids, layer):
    """(tokens, channels) inputs of o_proj, of the FFN and of down_proj in a layer, of one whole run."""
    values, handles = {}, []
    for name in ("o_proj", "gate_proj", "down_proj"):
        keep = lambda _, inputs, name=name: values.update({name: inputs[0].flatten(0, -2).clone()})  # noqa: E731
        handles.append(getattr(decoder, name)(layer).register_forward_pre_hook(keep))
    decoder.hidden_states(ids)
    for handle in handles:
        handle.remove()
    return values


def refitted(name, weight, bias, x, inputs):
    """Weights of the kept columns and bias, as the methods' authors have them."""
    if name == "osscar":
        hessian = x.T @ x
        hessian += 0.01 * hessian.diagonal().mean() * torch.eye(len(hessian))
        return torch.linalg.solve(hessian[inputs][:, inputs], hessian[inputs] @ weight.T).T, bias
    full, part = x @ weight.T, x[:, inputs] @ weight[:, inputs].T
    lines = [np.polyfit(part[:, i], full[:, i], 1) for i in range(len(weight))]
    scale, shift = (torch.tensor(values) for values in zip(*lines, strict=True))
    return weight[:, inputs] * scale[:, None], shift + (0 if bias is None else bias * 1)


@torch.no_grad()
def reference(name, decoder, tokens, counts):
    """Masks and weights from whole runs of a float64 copy; `counts` (groups, neurons) are kept by layer."""
    wide = Decoder(copy.deepcopy(decoder.model).double(), None, decoder.shape, decoder.layout)
    ids, shape = torch.from_numpy(tokens.ids.astype(np.int64)), decoder.shape
    masks, weights = {"o_proj": [], "down_proj": []}, []
    for layer in range(shape.layers):
        for part, keep in (("o_proj", counts[0][layer]), ("down_proj", counts[1][layer])):
            inputs = recorded_inputs(wide, ids, layer)
            dense, x = getattr(wide, part)(layer), inputs[part]
            width = shape.group_channels if part == "o_proj" else 1
            units = x.shape[1] // width
            weight = dense.weight.clone()
            if keep == units:
                mask = torch.ones(units, dtype=torch.bool)
            elif name == "osscar":
                mask = osscar.remove(x.T @ x, weight, keep, width, osscar.ROUNDS[part]).remaining
            elif part == "o_proj":
                moved = x - x.mean(dim=0)
                mask = slimllm.keep_groups(slimllm.output_covariances(weight, moved.T @ moved, units), keep)
            else:
                moved, rows = x - x.mean(dim=0), (wide.gate_proj(layer).weight, wide.up_proj(layer).weight)
                energies = inputs["gate_proj"].square().sum(dim=0), x.square().sum(dim=0)
                scores = slimllm.neuron_scores(rows, weight, *energies, moved.T @ moved)
                mask = torch.zeros(units, dtype=torch.bool)
                mask[scores.argsort(descending=True, stable=True)[:keep]] = True
            masks[part].append(mask.numpy())
            stays = mask.repeat_interleave(width)
            bias = dense.bias
            if not mask.all():
                fitted, bias = refitted(name, weight, dense.bias, x, stays)
                dense.weight.zero_()
                dense.weight[:, stays] = fitted
                dense.bias = None if bias is None else torch.nn.Parameter(bias, requires_grad=False)
            weights.append((dense.weight[:, stays].clone(), bias))
    return np.stack(masks["down_proj"]), np.stack(masks["o_proj"]), weights


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", KINDS)
def test_masks_and_weights_are_those_of_whole_runs_in_float64(name, kind, monkeypatch):
    decoder, tokens, walked = decoder_of(kind), some_tokens(9, 11), []
    before = copy.deepcopy(decoder.model.state_dict())

    def recording(actual, dtype, part, inner=walk.cast_weights):
        walked.append(inner(actual, dtype, part))
        return walked[-1]

    monkeypatch.setattr(walk, "cast_weights", recording)
    passed = decoder.forward_tokens
    actual = walk_of(name, decoder, tokens)
    assert decoder.forward_tokens - passed == {"osscar": 3, "slimllm": 4}[name] * tokens.ids.size
    monkeypatch.undo()
    counts = actual.heads.sum(axis=1), actual.ffn.sum(axis=1)
    torch.set_default_dtype(torch.float64)
    try:
        ffn, heads, expected = reference(name, decoder, tokens, counts)
    finally:
        torch.set_default_dtype(torch.float32)
    np.testing.assert_array_equal(actual.ffn, ffn)
    np.testing.assert_array_equal(actual.heads, heads)
    retention = budget.retention(decoder.shape, ffn, heads)
    assert abs(retention - TARGET) * decoder.shape.decoder_weights <= decoder.shape.neuron_weights
    # the repair of the finished masks has the weights of the walk, and both those of the published rule
    repaired = fit(decoder, masks_of(name, decoder, actual), [tokens], METHODS[name].fit, 4)
    changed = iter(walked)
    for number, (weight, bias) in enumerate(expected):
        stop, outputs = repaired.ends[number], len(weight)
        numbers = repaired.numbers[stop - weight.numel() : stop].reshape(outputs, -1)
        close = {"rtol": 1e-3, "atol": 1e-4 * float(weight.abs().max())}
        np.testing.assert_allclose(numbers, weight, **close)
        if weight.shape[1] < (decoder.o_proj, decoder.down_proj)[number % 2](0).in_features:
            np.testing.assert_allclose(next(changed), numbers, **close)
        if name == "slimllm" and bias is not None:
            np.testing.assert_allclose(repaired.biases[number], bias, rtol=1e-3, atol=1e-4)
    assert next(changed, None) is None
    assert all(torch.equal(before[key], value) for key, value in decoder.model.state_dict().items())


@pytest.mark.parametrize("name", NAMES)
def test_where_nothing_leaves_nothing_changes(name):
    decoder, tokens, squares = decoder_of(), some_tokens(9, 11), []

    def keep_all(part, actual):
        squares.append(actual.moments.square)
        units = decoder.shape.kv_heads if part.name == "o_proj" else decoder.shape.neurons
        return np.ones(units, dtype=bool), np.zeros(units)

    actual = walk.remove_layerwise(decoder, tokens, 4, keep_all, METHODS[name].fit)
    assert actual.ffn.all() and actual.heads.all()
    for number, square in enumerate(squares):
        expected = torch.zeros_like(square)
        for start in range(0, len(tokens.ids), 4):
            ids = torch.from_numpy(tokens.ids[start : start + 4].astype(np.int64))
            x = recorded_inputs(decoder, ids, number // 2)[("o_proj", "down_proj")[number % 2]]
            expected += x.T @ x
        assert torch.equal(square, expected)
    repaired = fit(decoder, masks_of(name, decoder, actual), [tokens], METHODS[name].fit, 4)
    dense = [part(layer).weight for layer in range(4) for part in (decoder.o_proj, decoder.down_proj)]
    np.testing.assert_array_equal(repaired.numbers, np.concatenate([weight.numpy().ravel() for weight in dense]))
    assert not repaired.errors.any()


@pytest.mark.parametrize("name", NAMES)
def test_fewer_tokens_than_inputs_and_batches_of_any_size(name):
    decoder, few = decoder_of(), some_tokens(2, 3)
    walked = walk_of(name, decoder, few, 1)
    repaired = fit(decoder, masks_of(name, decoder, walked), [few], METHODS[name].fit, 4)
    assert np.isfinite(repaired.numbers).all() and np.abs(repaired.numbers).max() < 1e3
    some = some_tokens(9, 11)
    first, second = (walk_of(name, decoder, some, batch) for batch in (2, 9))
    np.testing.assert_array_equal(first.ffn, second.ffn)
    np.testing.assert_array_equal(first.heads, second.heads)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_finite_gets_a_sentence(name):
    decoder = decoder_of()
    with torch.no_grad():
        decoder.up_proj(2).weight[3, 0] = torch.nan
    with pytest.raises(
        NumericsError, match=r"an activation at down_proj of layer 2 is not finite while the layers are pruned"
    ):
        choose = osscar.osscar_decision(decoder.shape, TARGET)
        if name == "slimllm":
            choose = slimllm.slimllm_decision(decoder, TARGET, np.linspace(0.9, 0.6, 4))
        walk.remove_layerwise(decoder, some_tokens(), 4, choose, METHODS[name].fit)
