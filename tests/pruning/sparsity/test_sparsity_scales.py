"""Learned scales against a naive loop, folded into weights, saved, stopped and gone on with."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from family_switches import SIZES, SWITCHES
from pruned_folder import masks_of, with_biases
from sparsity.reference_sparsity import cross_entropy, distillation, random_tokens
from tiny_family import tiny_decoder

from gprune.models.export import checkpoint
from gprune.models.families import FAMILIES
from gprune.pruning.sparsity import tuning
from gprune.pruning.sparsity.gate_masks import GateMasks, starting_gates
from gprune.pruning.sparsity.scales import learn_scaled_gates, learn_scales
from gprune.pruning.surgery import cut
from gprune.records import REPAIRS, PrunedModel, UnitScores
from gprune.records.base import axes_of
from gprune.store import Store
from gprune.store.resumption import VARIABLE, Resumption, Spent, StateFile
from gprune.study import GateSettings, ScaleSettings, SparsitySettings
from gprune.system.errors import ModelError, NumericsError, SettingsError
from gprune.system.progress import Notice, silent

SCALES = REPAIRS["scales"]
SETTINGS = ScaleSettings(steps=10, joint_steps=10, batch=6, samples=7, learning_rate=0.03)
FAMILY = pytest.mark.parametrize("family", ["llama", "qwen2", "stablelm", "granite"])


def texts(count=3, samples=9, length=8):
    generator = np.random.default_rng(0)
    return [random_tokens(samples, length, 64, generator) for _ in range(count)]


def decoder_of(family="llama", dtype=torch.float32, **switches):
    return tiny_decoder(family, **SIZES, **(SWITCHES[family][0] | switches), dtype=dtype)


def odd_masks(decoder):
    return masks_of(decoder, [1, decoder.shape.kv_heads], [5, 9])


def learned(decoder, model=None, settings=SETTINGS, seed=0, on_progress=silent, resumption=None, tokens=None):
    model = model or PrunedModel(odd_masks(decoder))
    about = model.masks, "test", tokens or texts(), settings, seed, on_progress, resumption
    return learn_scales(decoder, cut(decoder, model), *about)


def learned_gates(decoder, settings=SETTINGS, seed=0, on_progress=silent, resumption=None, **sparsity):
    shape, generator = decoder.shape, np.random.default_rng(2)
    channels = np.zeros((shape.layers, shape.heads * shape.head_width))
    units = generator.random((shape.layers, shape.neurons)), generator.random((shape.layers, shape.kv_heads))
    scores = [UnitScores("flap", "text", *units, channels)]
    chosen = settings, GateSettings(), SparsitySettings(**sparsity)
    gates = learn_scaled_gates(decoder, scores, texts(), chosen, 0.5, seed, on_progress, resumption)
    return gates, starting_gates(scores)


def folded(decoder, scales, model=None):
    model = model or PrunedModel(odd_masks(decoder))
    repairs, inputs = (*model.repairs, SCALES), {**model.inputs, "scales": scales}
    return cut(decoder, replace(model, repairs=repairs, inputs=inputs))


def same(actual, expected):
    return all(getattr(actual, name).tobytes() == getattr(expected, name).tobytes() for name in axes_of(type(expected)))


def hooked(linear, factor, bias):
    """Multiplies a map's inputs and adds to its outputs."""
    before = linear.register_forward_pre_hook(lambda _, inputs: (inputs[0] * factor,))
    return [before, linear.register_forward_hook(lambda _, __, output: output + bias)]


class Naive:
    """Scales, biases and perhaps gates of a dense model in float64, by hooks and plain autograd."""

    def __init__(self, decoder, masks=None, family=None, gates=None):
        shape, wide = decoder.shape, {"dtype": torch.float64, "requires_grad": True}
        self.decoder, self.masks, self.family = decoder, masks, family
        sizes = {"ffn": (shape.layers, shape.neurons), "heads": (shape.layers, shape.kv_heads)}
        self.scales = {name: torch.zeros(size, **wide) for name, size in sizes.items()}
        self.biases = torch.zeros(shape.layers, 2, shape.hidden, **wide)
        self.gates = None if gates is None else torch.tensor(gates, **wide)

    def kept(self):
        if self.gates is None:
            return {name: torch.tensor(np.array(getattr(self.masks, name))).double() for name in self.scales}
        hard = self.family.split(self.family.hard_masks(self.gates.detach().float()).double())
        soft = self.family.split(torch.sigmoid(self.gates / self.family.temperature))
        return {name: h + s - s.detach() for name, h, s in zip(self.scales, hard, soft, strict=True)}

    def states(self, ids):
        """The logits with everything applied."""
        decoder, masks, handles = self.decoder, self.kept(), []
        for layer in range(decoder.shape.layers):
            for location, name in enumerate(("heads", "ffn")):
                linear = (decoder.down_proj if location else decoder.o_proj)(layer)
                row = masks[name][layer] * (1 + self.scales[name][layer])
                row = row if location else row.repeat_interleave(decoder.shape.group_channels)
                handles += hooked(linear, row, self.biases[layer, location])
        said = decoder.logits(decoder.hidden_states(ids))
        for handle in handles:
            handle.remove()
        return said

    def learn(self, batches, groups):
        """Steps of Adam on batches of ids; `groups` are parameters and their first rates."""
        optimizer = torch.optim.Adam([{"params": parameters, "lr": rate} for parameters, rate in groups])
        for step, ids in enumerate(batches):
            for group, (_, rate) in zip(optimizer.param_groups, groups, strict=True):
                group["lr"] = rate * (1 + math.cos(math.pi * step / len(batches))) / 2
            with torch.no_grad():
                teacher = self.decoder.logits(self.decoder.hidden_states(ids))
            said = self.states(ids)
            optimizer.zero_grad()
            (cross_entropy(said, ids) + distillation(said, teacher, 1.0)).backward()
            optimizer.step()


@pytest.fixture
def batches(monkeypatch):
    """The ids of every step of a learning."""
    ids, true = [], tuning.TuningBatches.run

    def run(self, numbers, step, steps):
        ids.append(torch.from_numpy(self._ids[numbers]))
        return true(self, numbers, step, steps)

    monkeypatch.setattr(tuning.TuningBatches, "run", run)
    return ids


@FAMILY
def test_ten_steps_are_those_of_a_naive_loop(family, batches):
    decoder = decoder_of(family, torch.float64)
    masks = odd_masks(decoder)
    scales = learned(decoder)
    # two sequences of each text a step, of seven that take part
    sequences = [{tuple(row) for row in text.ids.tolist()} for text in texts()]
    assert all([sum(tuple(r) in rows for r in ids.tolist()) for rows in sequences] == [2, 2, 2] for ids in batches)
    assert all(len(rows & {tuple(r) for ids in batches for r in ids.tolist()}) == 7 for rows in sequences)
    naive = Naive(decoder, masks)
    naive.learn(batches, [([*naive.scales.values()], 0.03), ([naive.biases], 0.25 * 0.03)])
    for name, mask in (("ffn", masks.ffn), ("heads", masks.heads)):
        expected = np.where(mask, 1 + naive.scales[name].detach().numpy(), 0)
        np.testing.assert_allclose(getattr(scales, name), expected, atol=1e-5)
        assert np.median(np.abs(expected[mask] - 1)) > 0.01
    np.testing.assert_allclose(scales.biases, naive.biases.detach().numpy(), atol=1e-5)
    assert np.abs(scales.biases).max() > 0.01


def test_ten_steps_of_gates_with_scales_are_those_of_a_naive_loop(batches):
    decoder = decoder_of(dtype=torch.float64)
    actual, start = learned_gates(decoder)
    family = GateMasks.of(decoder.shape, 0.5, 1, GateSettings().temperature, decoder.device)
    naive = Naive(decoder, family=family, gates=start.astype(np.float64))
    groups = [([naive.gates], 0.05), ([*naive.scales.values()], 0.02), ([naive.biases], 0.25 * 0.02)]
    naive.learn(batches, groups)
    expected = naive.gates.detach()
    gates = np.concatenate([actual.gates.ravel(), actual.head_gates.ravel()])
    np.testing.assert_allclose(gates, expected.numpy(), atol=1e-5)
    assert np.abs(gates - start).max() > 0.1
    for mask, hard in zip((actual.ffn, actual.heads), family.split(family.hard_masks(expected.float())), strict=True):
        np.testing.assert_array_equal(mask, hard.numpy())
    half = 0.5 * decoder.shape.neuron_weights / decoder.shape.decoder_weights
    assert abs(actual.retention - 0.5) <= half + 1e-12


def test_gates_with_scales_keep_equal_widths_and_start_from_ranks():
    equal, _ = learned_gates(decoder_of(), widths="equal")
    assert len({*equal.ffn.sum(1).tolist()}) == len({*equal.heads.sum(1).tolist()}) == 1
    bare, start = learned_gates(decoder_of(), replace(SETTINGS, joint_steps=0))
    assert np.concatenate([bare.gates.ravel(), bare.head_gates.ravel()]).tobytes() == start.tobytes()


@pytest.mark.parametrize("family", FAMILIES)
def test_folding_says_what_was_learned_in_every_family(family, tmp_path):
    decoder, ids = decoder_of(family), torch.arange(3, 27).view(2, 12)
    model = with_biases(decoder, odd_masks(decoder))
    scales = learned(decoder, model, replace(SETTINGS, steps=3, learning_rate=0.1))
    live, plain = folded(decoder, scales, model), cut(decoder, model)
    for index, layer in enumerate(plain.get_submodule(decoder.layout.layers).children()):
        heads = scales.heads[index].repeat(decoder.shape.group_channels)
        for index_of_map, (name, row) in enumerate((("o_proj", heads), ("down_proj", scales.ffn[index]))):
            linear = layer.get_submodule(decoder.layout.slice_of(name).path)
            hooked(linear, torch.tensor(row[row != 0]), torch.tensor(scales.biases[index, index_of_map]))
    with torch.no_grad():
        actual, expected, bare = (each(ids).logits for each in (live, plain, cut(decoder, model)))
        assert torch.equal(decoder.model(ids).logits, decoder_of(family).model(ids).logits)
    assert (actual - expected).abs().max() <= 1e-5 * expected.abs().max()
    assert (actual - bare).abs().max() > 1e-3 * expected.abs().max()
    pruned = PrunedModel(model.masks, (*model.repairs, SCALES))
    checkpoint.save(live, None, tmp_path / "out", pruned, source="d", fingerprint="f")
    with torch.no_grad():
        assert torch.equal(checkpoint.load_verified(tmp_path / "out")(ids).logits, actual)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("case", ["no step", "nothing removed"])
def test_without_steps_or_removed_units_weights_are_the_same_bits(dtype, case):
    decoder = decoder_of(dtype=dtype, attention_bias=False, mlp_bias=False)
    shape = decoder.shape
    dense_masks = masks_of(decoder, [shape.kv_heads] * 2, [shape.neurons] * 2)
    model = PrunedModel(odd_masks(decoder) if case == "no step" else dense_masks)
    scales = learned(decoder, model, replace(SETTINGS, steps=0) if case == "no step" else SETTINGS)
    assert scales.steps.shape == (0, 4) and {*scales.ffn.ravel()} <= {0.0, 1.0}
    live, plain = folded(decoder, scales, model).state_dict(), cut(decoder, model).state_dict()
    assert all(torch.equal(live[name].view(torch.uint8), item.view(torch.uint8)) for name, item in plain.items())
    added = [item for name, item in live.items() if name not in plain]
    assert added and not any(item.any() for item in added)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("learn", [learned, lambda *a, **k: learned_gates(*a, **k)[0]], ids=["scales", "gates"])
@pytest.mark.parametrize("after", [1, 6])
def test_a_learning_that_was_killed_ends_with_the_same_bits(tmp_path, monkeypatch, dtype, learn, after):
    monkeypatch.setenv(VARIABLE, "0")
    expected, store = learn(decoder_of(dtype=dtype)), Store(tmp_path)
    assert same(learn(decoder_of(dtype=dtype)), expected) and not same(learn(decoder_of(dtype=dtype), seed=1), expected)

    def resumption(listener):
        return Resumption(StateFile(store, "scales", "7" * 32), lambda: Spent(1, 2, 1.0), listener)

    def stop(done, total, message):
        if done == after and not isinstance(message, Notice):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learn(decoder_of(dtype=dtype), on_progress=stop, resumption=resumption(silent))
    steps = []
    torch.manual_seed(5)
    decoder = decoder_of(dtype=dtype)
    actual = learn(decoder, on_progress=lambda done, *_: steps.append(done), resumption=resumption(silent))
    assert same(actual, expected)
    assert min(steps) == after
    # what a cut student does counts as passes of the model that it was cut from
    assert decoder.backward_tokens == (10 - after) * 6 * 8


def test_what_cannot_be_is_said():
    decoder = decoder_of()
    scales = learned(decoder, settings=replace(SETTINGS, steps=1))
    other = PrunedModel(masks_of(decoder, [1, decoder.shape.kv_heads], [5, 9], seed=4))
    with pytest.raises(ModelError, match="the scales of test belong to other masks"):
        folded(decoder, scales, other)
    with pytest.raises(SettingsError, match="scales.distillation_weight must be positive where"):
        ScaleSettings(distillation_weight=0.0, cross_entropy_weight=0.0)
    decoder.down_proj(1).weight.data[0] = float("nan")
    with pytest.raises(NumericsError, match="step 1 of scales gave a loss or gradient that is not finite"):
        learned(decoder)
