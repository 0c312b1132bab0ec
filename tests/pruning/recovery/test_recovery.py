"""Recovery: what low-rank training learns, merges and keeps, and that a stop changes no bit of it."""

import numpy as np
import pytest
import torch
from sparsity.reference_sparsity import cross_entropy, distillation, random_tokens

from gprune.models.low_rank import linear_maps, merge
from gprune.models.tiny import tiny_decoder
from gprune.pruning.recovery.training import COLUMNS, insert_adapters, recover
from gprune.pruning.sparsity import tuning
from gprune.pruning.surgery import cut
from gprune.records import PruningMasks
from gprune.study import RecoverySettings
from gprune.study.settings import LINEAR_MAPS
from gprune.system.errors import NumericsError, SettingsError
from gprune.system.progress import silent

pytest.importorskip("peft")
SHAPES = [("llama", 4, 4), ("qwen2", 6, 3), ("qwen3", 4, 2), ("mistral", 6, 2)]


class Case:
    """A tiny model, cut to other widths in every layer, and two texts."""

    def __init__(self, family="llama", heads=4, kv_heads=2, dtype=torch.float32, lengths=(8, 8), **settings):
        self.known = {"family": family, "heads": heads, "kv_heads": kv_heads, "dtype": dtype}
        generator = np.random.default_rng(0)
        self.texts = [random_tokens(9, length, 64, generator) for length in lengths]
        supplied = {"kind": "lora", "steps": 12, "batch": 6, "rank": 3, "learning_rate": 0.02}
        self.settings = RecoverySettings(**supplied | settings)
        self.heard = []

    def decoder(self):
        return tiny_decoder(**self.known, layers=3, hidden=12, neurons=13, head_width=6)

    def cut(self, decoder):
        rng, shape = np.random.default_rng(1), decoder.shape
        ffn = rng.random((shape.layers, shape.neurons)) < 0.5
        heads = rng.random((shape.layers, shape.kv_heads)) < 0.5
        ffn[:, 0] = heads[:, 0] = True
        return cut(decoder, PruningMasks("test", ffn, heads, 0.5, 0.5))

    def run(self, on_progress=silent, resumption=None, seed=0):
        """Recovers in a process of its own, as far as anything can tell."""

        def listener(done, total, message):
            self.heard.append(str(message))
            on_progress(done, total, message)

        torch.manual_seed(np.random.default_rng().integers(2**31))
        decoder = self.decoder()
        model = self.cut(decoder)
        return recover(decoder, model, "test", self.texts, self.settings, seed, listener, resumption)

    def merged(self, record):
        decoder = self.decoder()
        model = self.cut(decoder)
        merge(model, decoder.layout, record)
        return decoder, model


def ids_of(case):
    return torch.from_numpy(case.texts[0].ids[:4].astype(np.int64))


@pytest.mark.parametrize(("family", "heads", "kv_heads"), SHAPES)
def test_merged_weights_are_the_old_ones_and_scale_times_b_a(family, heads, kv_heads):
    case = Case(family, heads, kv_heads, targets=("q_proj", "o_proj", "down_proj"), alpha=5.0, steps=4)
    record = case.run()
    decoder, model = case.merged(record)
    plain = case.cut(case.decoder())
    old, new = (linear_maps(linear, decoder.layout, LINEAR_MAPS) for linear in (plain, model))
    assert record.maps == tuple(f"{n}.{name}" for n in range(3) for name in ("q_proj", "o_proj", "down_proj"))
    numbers, at = record.numbers.astype(np.float64), 0
    for name, linear in old.items():
        if name not in record.maps:
            assert torch.equal(new[name].weight, linear.weight)
            continue
        rows, columns = linear.weight.shape
        right, left = np.split(numbers[at : at + 3 * (columns + rows)], [3 * columns])
        right, left, at = right.reshape(3, columns), left.reshape(rows, 3), at + 3 * (columns + rows)
        expected = linear.weight.double().numpy() + 5.0 / 3 * (left @ right)
        np.testing.assert_array_equal(new[name].weight.numpy(), expected.astype(np.float32))
        assert np.abs(left @ right).max() > 0
        assert (new[name].bias is None) == (linear.bias is None)
        assert linear.bias is None or torch.equal(new[name].bias, linear.bias)
    assert at == len(numbers)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_merged_model_says_what_peft_says_with_its_adapters(dtype):
    case = Case("qwen2", 6, 3, dtype=dtype)
    record = case.run()
    decoder, model = case.merged(record)
    adapted = case.cut(case.decoder())
    adapters = insert_adapters(adapted, decoder.layout, case.settings)
    adapters.numbers.copy_(torch.tensor(record.numbers))
    with torch.no_grad():
        actual, expected = (each(ids_of(case)).logits.float() for each in (model, adapted))
        plain = case.cut(case.decoder())(ids_of(case)).logits.float()
    moved = (expected - plain).abs().max()
    assert (actual - expected).abs().max() < (1e-4 if dtype == torch.float32 else 0.2) * moved


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_no_step_changes_nothing_bit_for_bit(dtype):
    case = Case(steps=0, dtype=dtype)
    record = case.run()
    assert record.steps.shape == (0, len(COLUMNS)) and not len(case.heard)
    decoder, model = case.merged(record)
    plain = case.cut(case.decoder())
    plain.model.layers[0].mlp.up_proj.weight.data[0, 0] = -0.0
    model.model.layers[0].mlp.up_proj.weight.data[0, 0] = -0.0
    merge(model, decoder.layout, record)
    for name, weight in plain.state_dict().items():
        actual = model.state_dict()[name]
        assert actual.dtype == dtype
        assert torch.equal(actual.view(torch.uint8), weight.view(torch.uint8)), name


def test_losses_and_gradient_are_those_of_a_naive_loop(monkeypatch):
    gradients, true = [], tuning.TuningBatches.run

    def run(self, *arguments):
        losses = true(self, *arguments)
        gradients.append(self._tuned.gradient.clone())
        return losses

    monkeypatch.setattr(tuning.TuningBatches, "run", run)
    weights = {"distillation_weight": 0.7, "cross_entropy_weight": 0.4, "distillation_temperature": 2.0}
    case = Case(steps=1, batch=5, learning_rate=0.1, **weights)
    record = case.run()
    decoder = case.decoder()
    adapted = case.cut(decoder)
    adapters = insert_adapters(adapted, decoder.layout, case.settings)
    values = adapters.begin(0).clone()
    all_ids = np.concatenate([text.ids for text in case.texts]).astype(np.int64)
    ids = torch.from_numpy(all_ids[np.random.default_rng(0).permutation(18)[:5]])
    said, target = adapted(ids).logits, decoder.model(ids).logits.detach()
    soft, hard = distillation(said, target, 2.0), cross_entropy(said, ids)
    np.testing.assert_allclose(record.steps[0, 1:3], [soft.item(), hard.item()], rtol=1e-5)
    (0.7 * soft + 0.4 * hard).backward()
    slope = adapters.gradient
    torch.testing.assert_close(gradients[0], slope, rtol=1e-4, atol=1e-7)
    # a first step of Adam goes one learning rate against the sign of the gradient
    large = slope.abs() > 1e-6
    moved = (torch.tensor(record.numbers) - values)[large]
    assert large.sum() > 100
    torch.testing.assert_close(moved, -0.1 * slope[large].sign(), rtol=1e-2, atol=0)


def test_portions_change_the_rounding_alone(monkeypatch):
    expected = Case(steps=3).run()
    sizes, true = [], tuning.TuningBatches._backward

    def back(self, ids, target, weights):
        sizes.append(len(ids))
        if len(ids) > 2:
            raise torch.OutOfMemoryError("allocate 1 GiB")
        return true(self, ids, target, weights)

    monkeypatch.setattr(tuning.TuningBatches, "_backward", back)
    case = Case(steps=3)
    portioned = case.run()
    assert sizes == [6, 3, 1] + 5 * [1] + 2 * 6 * [1]
    assert any("memory ran out with 6 sequences" in words for words in case.heard)
    np.testing.assert_allclose(portioned.steps, expected.steps, rtol=1e-4)


def test_what_cannot_be_is_said():
    with pytest.raises(NumericsError, match="step 2 of recovery gave a loss or gradient that is not finite"):
        Case(learning_rate=1e30).run()
    for values, words in (
        ({"targets": ("q_proj", "embed")}, "recovery.targets must be at least one of q_proj"),
        ({"distillation_weight": 0.0}, "recovery.distillation_weight must be positive where"),
        ({"rank": 0}, "recovery.rank must be at least 1"),
        ({"kind": "full"}, "recovery.kind must be one of none, lora"),
    ):
        with pytest.raises(SettingsError, match=words):
            RecoverySettings(**values)


def test_a_missing_package_is_one_sentence(monkeypatch):
    RecoverySettings(kind="lora").require_installed()
    monkeypatch.setattr("gprune.study.settings.find_spec", lambda _: None)
    with pytest.raises(SettingsError, match=r"needs the package peft, .* run pip install"):
        RecoverySettings(kind="lora").require_installed()
    RecoverySettings().require_installed()
