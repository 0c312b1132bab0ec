"""Refitted routers: their gradient, the loss that falls, what stays untouched, and the stock folder."""

import numpy as np
import pytest
import torch
from tiny_experts import tiny_mixture
from transformers import AutoModelForCausalLM

from gprune.models.expert_decoder import mixtures_of
from gprune.models.export.expert_folder import save_experts
from gprune.pruning.experts.routers import Routers, refit_routers
from gprune.pruning.experts.surgery import cut_experts
from gprune.records import Tokens
from gprune.records.experts import ExpertMasks, PrunedExperts
from gprune.study import RecoverySettings

FAMILIES = ("qwen3_moe", "gpt_oss", "deepseek_v3", "ernie4_5_moe")
SETTINGS = RecoverySettings(steps=12, batch=4, learning_rate=0.01)


def texts_of() -> list[Tokens]:
    ids = np.random.default_rng(0).integers(3, 320, (2, 6, 16), dtype=np.int32)
    return [Tokens(name, name, part, 6, None) for name, part in zip("AB", ids, strict=True)]


def half_of(decoder) -> ExpertMasks:
    keep = np.tile([True, False, True, False], (len(decoder.shape.layers), 3))
    return ExpertMasks("experts_random", keep, 0.5, 0.5)


def divergence(decoder, model, texts) -> torch.Tensor:
    """Mean KL(dense || pruned) in nats per token, from the logits of transformers."""
    ids = torch.from_numpy(np.concatenate([text.ids for text in texts]).astype(np.int64))
    with torch.no_grad():
        target = decoder.model(ids).logits.log_softmax(-1)
    student = model(ids).logits.log_softmax(-1)
    return (target.exp() * (target - student)).sum(-1).mean()


@pytest.mark.parametrize("family", FAMILIES)
def test_only_routers_change_and_the_folder_has_the_refitted_model(family, tmp_path):
    decoder, texts = tiny_mixture(family), texts_of()
    masks = half_of(decoder)
    model = cut_experts(decoder, masks)
    dense, before = ({n: t.clone() for n, t in part.state_dict().items()} for part in (decoder.model, model))
    routers = refit_routers(decoder, model, "experts_random", texts, SETTINGS, seed=3)
    for part, values in ((decoder.model, dense), (model, before)):
        assert all(torch.equal(tensor, values[name]) for name, tensor in part.state_dict().items())
    assert routers.weights.shape == (len(decoder.shape.layers), 6, 32) and routers.weights.dtype == np.float32
    assert routers.biases.shape[1] == (6 if family == "gpt_oss" else 0) and len(routers.steps) == 12

    refitted = cut_experts(decoder, masks, routers)
    assert all(torch.equal(tensor, dense[name]) for name, tensor in decoder.model.state_dict().items())
    parts = {
        name
        for name, _ in refitted.named_modules()
        if name.endswith(f"{decoder.layout.mixture}.{decoder.layout.router}")
    }
    changed = {name for name, tensor in refitted.state_dict().items() if not torch.equal(tensor, before[name])}
    names = ("weight", "bias") if family == "gpt_oss" else ("weight",)
    assert changed == {f"{part}.{name}" for part in parts for name in names if f"{part}.{name}" in before}
    losses = [divergence(decoder, part, texts).item() for part in (model, refitted)]
    assert losses[1] < 0.97 * losses[0] and routers.steps[-3:, 1].mean() < routers.steps[:3, 1].mean()

    folder = save_experts(refitted, None, tmp_path / "out", PrunedExperts(masks, routers))
    loaded, ids = AutoModelForCausalLM.from_pretrained(folder), torch.arange(3, 40)[None]
    assert torch.equal(loaded(ids).logits, refitted(ids).logits) and not list(folder.glob("*.py"))


@pytest.mark.parametrize("family", ("gpt_oss", "deepseek_v3"))
def test_the_gradient_is_that_of_the_divergence(family):
    decoder, texts = tiny_mixture(family), texts_of()
    model = cut_experts(decoder, half_of(decoder))
    settings = RecoverySettings(steps=1, batch=12, learning_rate=0.002)
    modules = [mixture.router for mixture in mixtures_of(model, decoder.layout).values()]
    rates = 0.002 * Routers(modules, decoder.device).rate_factors
    step = refit_routers(decoder, model, "m", texts, settings, 0)
    for router in modules:
        router.weight.requires_grad_(True)
    loss = divergence(decoder, model, texts)
    loss.backward()
    assert step.steps[0, 1] == pytest.approx(loss.item(), rel=1e-4)
    # the first step of Adam is the sign of the gradient times the rate, relative to the router's weights
    for index, router in enumerate(modules):
        moved = torch.tensor(step.weights[index]) - router.weight.detach()
        clear = router.weight.grad.abs() > 1e-5
        assert clear.float().mean() > 0.5
        torch.testing.assert_close(moved[clear], -rates[0] * router.weight.grad.sign()[clear], rtol=2e-3, atol=1e-5)
