"""The whole stage: first step against plain autograd, determinism, variants, errors, clean-up."""

from dataclasses import asdict

import numpy as np
import pytest
import torch
from sparsity import reference_sparsity as reference
from sparsity.reference_sparsity import NaiveMasks, cross_entropy, distillation, random_case, record_gradients

from gprune.pruning.sparsity.batches import SubsetSampler
from gprune.pruning.sparsity.learner import LearningInputs
from gprune.pruning.sparsity.learning import learn
from gprune.pruning.sparsity.masks import MaskFamily
from gprune.pruning.sparsity.rounding import RankedUnits
from gprune.records import budget
from gprune.study import SparsitySettings
from gprune.system.errors import Cancelled, NumericsError
from gprune.system.progress import silent


def _learn(case, retention=0.5, seed=0, on_progress=silent, **settings):
    decoder, units, texts = case
    return learn(LearningInputs(decoder, texts, SparsitySettings(**settings), seed, on_progress), *units, retention)


def _naive_first_gradient(case, retention, settings):
    """Gradient of the whole objective at the start: four separate runs, and one for the distillation."""
    decoder, units, texts = case
    family = MaskFamily.of(RankedUnits.build(decoder.shape, *units), decoder.device)
    ids = torch.tensor(np.concatenate([text.ids for text in texts]).astype(np.int64))
    ids = ids[torch.tensor(SubsetSampler(*texts, settings.batch, 0).draw())]
    teacher, start = decoder.logits(decoder.hidden_states(ids)), 1 - retention
    ffn, heads = family.split((family.quantiles >= start).float())
    naive = NaiveMasks(decoder, ffn.numpy(), heads.numpy())

    def run(part):
        return decoder.logits(decoder.hidden_states(part))

    def to_thresholds(units):
        slopes = np.zeros(family.count)
        for owner, quantile, unit in zip(family.threshold_index, family.quantiles, units, strict=True):
            slopes[owner] -= reference.long_tailed(float(quantile) - np.float32(start)) * float(unit)
        return slopes

    hard = np.stack([to_thresholds(naive.gradients(cross_entropy(run(part), part))) for part in ids.chunk(4)])
    soft = naive.gradients(distillation(run(ids), teacher, settings.distillation_temperature))
    naive.remove()
    chosen = hard.mean(0)
    if not reference.admitted(hard[:, : family.modules]):
        chosen[: family.modules] = hard[:2, : family.modules].mean(0)
    performance = chosen + settings.distillation_weight * to_thresholds(soft)
    slope = to_thresholds(family.share.numpy())
    multiplier = -performance @ slope / (slope @ slope)
    deviation = budget.retention(decoder.shape, ffn.numpy(), heads.numpy()) - retention
    return performance + (multiplier + settings.penalty * deviation) * slope


@pytest.mark.parametrize(
    ("family", "kv_heads", "retention"), [("llama", 4, 0.5), ("llama", 2, 0.7), ("llama", 1, 0.4), ("qwen3", 2, 0.7)]
)
def test_first_step_follows_the_gradient_of_plain_autograd(family, kv_heads, retention, monkeypatch):
    case = random_case(kv_heads=kv_heads, family=family)
    settings = SparsitySettings(batch=8, epochs=1, distillation_temperature=2.0, distillation_weight=0.7)
    expected = _naive_first_gradient(case, retention, settings)
    actual = record_gradients(monkeypatch)
    _learn(case, retention, **asdict(settings))
    np.testing.assert_allclose(actual[0], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("supervision", ["adaptive", "primary", "dual"])
def test_every_variant_meets_the_target_and_tells_its_course(kv_heads, supervision):
    case, events, settings = random_case(kv_heads=kv_heads), [], SparsitySettings()
    learned = _learn(case, batch=8, supervision=supervision, on_progress=lambda *args: events.append(args))
    half_neuron = 0.5 * case[0].shape.neuron_weights / case[0].shape.decoder_weights
    assert abs(learned.retention - 0.5) <= half_neuron + 1e-12
    assert learned.steps.shape == (4, len(learned.columns))
    column = dict(zip(learned.columns, learned.steps.T, strict=True))
    assert column["step"].tolist() == [0, 1, 2, 3] and column["epoch"].tolist() == [0, 0, 1, 1]
    expected = {"primary": {0.0}, "dual": {1.0}, "adaptive": {0.0, 1.0}}[supervision]
    assert set(column["admitted"]) <= expected
    rates = settings.learning_rate * (1 + np.cos(np.pi * np.arange(4) / 4)) / 2
    np.testing.assert_allclose(column["learning_rate"], rates)
    growth = settings.dual_rate * settings.penalty * (column["retention"] - 0.5)
    np.testing.assert_allclose(np.diff(column["multiplier"]), growth[:-1], atol=1e-9)
    assert learned.thresholds.shape == (10,) and learned.head_thresholds.shape == (2,)
    assert [args[:2] for args in events] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert "cross-entropy" in events[0][2] and "retention" in events[0][2]


def test_the_decoder_is_left_as_it_was_after_cancelling_and_a_loss_that_is_not_finite_names_the_step():
    decoder, *_ = case = random_case()
    ids = torch.arange(20).view(2, 10)
    dense = decoder.logits(decoder.hidden_states(ids))

    def stop(done, total, message):
        raise Cancelled("stopped")

    with pytest.raises(Cancelled, match="stopped"):
        _learn(case, batch=8, on_progress=stop)
    assert torch.equal(decoder.logits(decoder.hidden_states(ids)), dense)
    assert all(not module._forward_pre_hooks for module in decoder.model.modules())
    assert all(parameter.grad is None for parameter in decoder.model.parameters())
    decoder.down_proj(1).weight[0, 0] = float("nan")
    with pytest.raises(NumericsError, match="step 1 of sparsity learning"):
        _learn(case, batch=8)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_models(dtype):
    learned = _learn(random_case(dtype=dtype), batch=8)
    exact = _learn(random_case(), batch=8)
    assert abs(learned.retention - exact.retention) < 1e-12
    np.testing.assert_allclose(learned.steps[0, 2:5], exact.steps[0, 2:5], rtol=5e-2, atol=5e-3)
