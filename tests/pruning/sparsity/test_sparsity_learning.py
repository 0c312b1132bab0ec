"""The whole stage: first step against plain autograd, determinism, variants, errors, clean-up."""

from dataclasses import asdict

import numpy as np
import pytest
import torch
from sparsity.reference_sparsity import (
    NaiveMasks,
    admitted,
    cross_entropy,
    distillation,
    long_tailed,
    random_partition,
    random_tokens,
)

from gprune.models.loading import load
from gprune.models.tiny import tiny_decoder
from gprune.pruning.sparsity.batches import SubsetSampler
from gprune.pruning.sparsity.learner import Setting
from gprune.pruning.sparsity.learning import learn
from gprune.pruning.sparsity.masks import MaskFamily
from gprune.pruning.sparsity.units import RankedUnits
from gprune.records import Tokens, budget
from gprune.study import SparsitySettings
from gprune.system.errors import Cancelled, NumericsError
from gprune.system.progress import silent


def _case(kv_heads=4, neurons=60, samples=8, dtype=torch.float32, family="llama"):
    decoder = tiny_decoder(family, neurons=neurons, kv_heads=kv_heads, head_width=4, dtype=dtype)
    generator = np.random.default_rng(0)
    scores = generator.random((2, neurons))
    head_scores = generator.random((2, kv_heads))
    partition = random_partition(decoder.shape, 5, generator)
    primary, auxiliary = (random_tokens(samples, 8, 64, generator) for _ in range(2))
    return decoder, scores, head_scores, partition, primary, auxiliary


def _learn(case, retention=0.5, seed=0, on_progress=silent, **settings):
    decoder, *units, primary, auxiliary = case
    known = SparsitySettings(**settings)
    return learn(Setting(decoder, (primary, auxiliary), known, seed, on_progress), *units, retention)


def _naive_first_gradient(case, retention, settings):
    """Gradient of the whole objective at the start: four separate runs, and one for the distillation."""
    decoder, scores, head_scores, partition, primary, auxiliary = case
    family = MaskFamily.of(RankedUnits.build(decoder.shape, scores, head_scores, partition), decoder.device)
    ids = torch.tensor(np.concatenate([primary.ids, auxiliary.ids]).astype(np.int64))
    ids = ids[torch.tensor(SubsetSampler(primary, auxiliary, settings.batch, 0).draw())]
    teacher = decoder.logits(decoder.hidden_states(ids))
    start = 1 - retention
    kept = (family.quantiles >= start).float()
    ffn, heads = family.split(kept)
    naive = NaiveMasks(decoder, ffn.numpy(), heads.numpy())
    run = lambda part: decoder.logits(decoder.hidden_states(part))  # noqa: E731
    to_thresholds = lambda units: np.array(  # noqa: E731
        [
            -sum(
                long_tailed(float(family.quantiles[i]) - np.float32(start)) * float(units[i])
                for i in np.flatnonzero(family.owner.numpy() == threshold)
            )
            for threshold in range(family.count)
        ]
    )
    hard = np.stack([to_thresholds(naive.gradients(cross_entropy(run(part), part))) for part in ids.chunk(4)])
    soft = naive.gradients(distillation(run(ids), teacher, settings.distillation_temperature))
    naive.remove()
    chosen = hard.mean(0)
    if not admitted(hard[:, : family.modules]):
        chosen[: family.modules] = hard[:2, : family.modules].mean(0)
    performance = chosen + settings.distillation_weight * to_thresholds(soft)
    slope = to_thresholds(family.share.numpy())
    multiplier = -performance @ slope / (slope @ slope)
    deviation = budget.retention(decoder.shape, ffn.numpy(), heads.numpy()) - retention
    return performance + (multiplier + settings.penalty * deviation) * slope


@pytest.mark.parametrize(("kv_heads", "seed_retention"), [(4, 0.5), (2, 0.7), (1, 0.4)])
def test_first_step_follows_the_gradient_of_plain_autograd(kv_heads, seed_retention, monkeypatch):
    case = _case(kv_heads=kv_heads)
    settings = SparsitySettings(batch=8, epochs=1, distillation_temperature=2.0, distillation_weight=0.7)
    expected = _naive_first_gradient(case, seed_retention, settings)
    found = []

    class Recorder(torch.optim.SGD):
        def step(self):
            found.append(self.param_groups[0]["params"][0].grad.double().numpy().copy())
            return super().step()

    monkeypatch.setattr(torch.optim, "Adam", Recorder)
    _learn(case, seed_retention, **asdict(settings))
    np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("supervision", ["adaptive", "primary", "dual"])
def test_every_variant_meets_the_target_and_tells_its_course(kv_heads, supervision):
    case = _case(kv_heads=kv_heads)
    seen = []
    settings = SparsitySettings()
    learned = _learn(case, batch=8, supervision=supervision, on_progress=lambda *args: seen.append(args))
    half_neuron = 0.5 * case[0].shape.neuron_weights / case[0].shape.decoder_weights
    assert abs(learned.retention - 0.5) <= half_neuron + 1e-12
    assert learned.steps.shape == (4, len(learned.columns))
    column = dict(zip(learned.columns, learned.steps.T, strict=True))
    assert column["step"].tolist() == [0, 1, 2, 3]
    assert column["epoch"].tolist() == [0, 0, 1, 1]
    expected = {"primary": {0.0}, "dual": {1.0}, "adaptive": {0.0, 1.0}}[supervision]
    assert set(column["admitted"]) <= expected
    np.testing.assert_allclose(
        column["learning_rate"], settings.learning_rate * (1 + np.cos(np.pi * np.arange(4) / 4)) / 2
    )
    growth = settings.dual_rate * settings.penalty
    deviation = column["retention"] - 0.5
    np.testing.assert_allclose(np.diff(column["multiplier"]), growth * deviation[:-1], atol=1e-9)
    assert learned.thresholds.shape == (10,)
    assert learned.head_thresholds.shape == (2,)
    assert [args[:2] for args in seen] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert "cross-entropy" in seen[0][2]
    assert "retention" in seen[0][2]


def test_the_decoder_is_left_as_it_was_after_cancelling_and_a_loss_that_is_not_finite_names_the_step():
    case = _case()
    decoder = case[0]
    ids = torch.arange(20).view(2, 10)
    dense = decoder.logits(decoder.hidden_states(ids))

    def stop(done, total, message):
        raise Cancelled("stopped")

    with pytest.raises(Cancelled, match="stopped"):
        _learn(case, batch=8, on_progress=stop)
    assert torch.equal(decoder.logits(decoder.hidden_states(ids)), dense)
    assert all(not module._forward_pre_hooks for module in decoder.model.modules())
    assert all(parameter.grad is None for parameter in decoder.model.parameters())
    case = _case()
    case[0].down_proj(1).weight[0, 0] = float("nan")
    with pytest.raises(NumericsError, match="step 1 of sparsity learning"):
        _learn(case, batch=8)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_models(dtype):
    learned = _learn(_case(dtype=dtype), batch=8)
    exact = _learn(_case(), batch=8)
    assert abs(learned.retention - exact.retention) < 1e-12
    np.testing.assert_allclose(learned.steps[0, 2:5], exact.steps[0, 2:5], rtol=5e-2, atol=5e-3)


LENGTH, SAMPLES, RETENTION = 48, 64, 0.6


@pytest.fixture(scope="module")
def trained(shared):
    decoder = load(str(shared / "models" / "stories260K"), device="cpu", dtype="float32")
    sources = ("data/webtext/tiny.utf8", "data/wikitext-2/valid.txt")
    texts = [(shared / source).read_text(encoding="utf-8")[:60_000] for source in sources]
    ids = [np.array(decoder.tokenizer(text, verbose=False)["input_ids"], dtype=np.int32) for text in texts]
    blocks = [text[: len(text) // LENGTH * LENGTH].reshape(-1, LENGTH) for text in ids]
    sets = [Tokens("text", "", part[:SAMPLES], len(part)) for part in blocks]
    # The squared norm of a unit's outgoing weights: a plain importance score.
    scores = np.stack([decoder.down_proj(i).weight.square().sum(0).numpy() for i in range(decoder.shape.layers)])
    columns = [decoder.o_proj(i).weight.square().sum(0) for i in range(decoder.shape.layers)]
    groups = torch.stack(columns).unflatten(1, (decoder.shape.kv_heads, -1)).sum(-1).numpy()
    partition = random_partition(decoder.shape, 8, np.random.default_rng(0))
    held_out = [torch.tensor(part[SAMPLES : 2 * SAMPLES].astype(np.int64)) for part in blocks]
    return (decoder, scores, groups, partition, *sets), held_out


def _loss(decoder, masks, texts):
    naive = NaiveMasks(decoder, masks.ffn, masks.heads)
    with torch.no_grad():
        losses = [float(cross_entropy(decoder.logits(decoder.hidden_states(ids)), ids)) for ids in texts]
    naive.remove()
    return np.array(losses)


@pytest.mark.long
def test_learned_masks_predict_both_held_out_texts_better_than_one_ratio_for_all(trained):
    arguments, held_out = trained
    uniform = _learn(arguments, RETENTION, epochs=0)
    learned = _learn(arguments, RETENTION, epochs=3, batch=16)
    difference = _loss(arguments[0], learned, held_out) - _loss(arguments[0], uniform, held_out)
    assert (difference < -0.1).all(), difference
    assert abs(learned.retention - RETENTION) <= 0.001
    assert abs(learned.steps[-1, learned.columns.index("retention")] - RETENTION) < 0.1
