"""Statistics of experts equal a loop over tokens, in the layout of every family, for any shards, batch and padding."""

import numpy as np
import pytest
import torch
from tiny_experts import EXPERTS, tiny_mixture

from gprune.models.expert_families import EXPERT_FAMILIES
from gprune.pruning.experts.routing import collect_experts
from gprune.records import Tokens
from gprune.study import CalibrationSettings
from gprune.system.errors import ModelError, NumericsError, SettingsError

SETTINGS = CalibrationSettings(samples=6, length=7, shards=4, batch=4)
SHARD = (0, 0, 1, 1, 2, 3)


def tokens_of(counted: np.ndarray | None = None) -> Tokens:
    ids = np.random.default_rng(0).integers(3, 320, (6, 7), dtype=np.int32)
    return Tokens("A", "f", ids, 6, counted)


def exact_mixture(family: str):
    """A model in float64, so that batches of other sizes have the same hidden states."""
    decoder = tiny_mixture(family)
    decoder.model.double().set_experts_implementation("eager")
    return decoder


def naive_output(experts, expert: int, x: torch.Tensor) -> torch.Tensor:
    """The (hidden,) output of an expert for one token, from its weights in float64."""
    gate_up, down = experts.gate_up_proj[expert].double(), experts.down_proj[expert].double()
    if "GptOss" in type(experts).__name__:
        hidden = x @ gate_up + experts.gate_up_proj_bias[expert].double()
        gate, up = hidden[0::2].clamp(max=7.0), hidden[1::2].clamp(-7.0, 7.0)
        gated = (up + 1) * gate * torch.sigmoid(1.702 * gate)
        return gated @ down + experts.down_proj_bias[expert].double()
    gate, up = (gate_up @ x).chunk(2)
    return down @ (torch.nn.functional.silu(gate) * up)


@torch.no_grad()
def naive_sums(decoder, tokens: Tokens) -> np.ndarray:
    """(4, shards, layers, experts) by a loop over sequences, tokens and choices."""
    sums, calls = np.zeros((4, 4, len(decoder.shape.layers), EXPERTS)), []
    hooks = [m.experts.register_forward_pre_hook(lambda _, inputs: calls.append(inputs)) for m in decoder.mixtures]
    for sequence, ids in enumerate(tokens.ids):
        calls.clear()
        decoder.model(torch.tensor(ids[None].astype(np.int64)), use_cache=False)
        for layer, (hidden, index, weights) in enumerate(calls):
            for token in range(len(ids)):
                if tokens.counted is not None and not tokens.counted[sequence, token]:
                    continue
                for expert, g in zip(index[token].tolist(), weights[token].double().tolist(), strict=True):
                    norm = float(naive_output(decoder.mixtures[layer].experts, expert, hidden[token].double()).norm())
                    sums[:, SHARD[sequence], layer, expert] += (1, g, g * norm, norm)
    for hook in hooks:
        hook.remove()
    return sums


@pytest.mark.parametrize("family", EXPERT_FAMILIES)
def test_sums_equal_a_loop_over_tokens(family):
    decoder, tokens = exact_mixture(family), tokens_of()
    before = decoder.model(torch.from_numpy(tokens.ids.astype(np.int64))).logits
    statistics = collect_experts(decoder, tokens, SETTINGS)
    expected = naive_sums(decoder, tokens)
    actual = np.stack([statistics.routed, statistics.weights, statistics.weighted_norms, statistics.norms])
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6)
    assert statistics.shard_tokens.tolist() == [14, 14, 7, 7] and decoder.forward_tokens == 42
    assert statistics.routed.sum() == 42 * decoder.shape.top_k * len(decoder.shape.layers)
    # the model computes the same as before
    after = decoder.model(torch.from_numpy(tokens.ids.astype(np.int64))).logits
    torch.testing.assert_close(after, before, rtol=0, atol=1e-5 * float(before.abs().max()))


def test_positions_that_do_not_count_are_left_out_and_the_batch_changes_nothing():
    counted = np.arange(42).reshape(6, 7) % 3 != 0
    decoder, tokens = exact_mixture("mixtral"), tokens_of(counted)
    statistics = collect_experts(decoder, tokens, SETTINGS)
    np.testing.assert_allclose(statistics.weighted_norms, naive_sums(decoder, tokens)[2], rtol=1e-6, atol=1e-9)
    assert statistics.shard_tokens.tolist() == [9, 9, 5, 5] and statistics.routed[:, 0].sum(1).tolist() == [
        18,
        18,
        10,
        10,
    ]
    single = collect_experts(decoder, tokens, CalibrationSettings(samples=6, length=7, shards=4, batch=1))
    assert np.array_equal(single.routed, statistics.routed)
    np.testing.assert_allclose(single.norms, statistics.norms, rtol=1e-6)


def test_the_implementation_is_restored_after_a_failure():
    decoder = tiny_mixture("olmoe")
    before = decoder.model.config._experts_implementation
    decoder.mixtures[0].experts.down_proj.data[:] = torch.nan
    with pytest.raises(NumericsError, match=r"ExpertStatistics\.\w+ holds"):
        collect_experts(decoder, tokens_of(), SETTINGS)
    assert decoder.model.config._experts_implementation == before
    with pytest.raises(SettingsError, match="sequences of 7 tokens do not fit the model, which has 5 positions"):
        decoder.model.config.max_position_embeddings = 5
        collect_experts(decoder, tokens_of(), SETTINGS)


def test_an_older_transformers_is_named(monkeypatch):
    decoder = tiny_mixture("olmoe")
    monkeypatch.setitem(__import__("sys").modules, "transformers.integrations.moe", None)
    with pytest.raises(ModelError, match=r"statistics of experts need transformers 5\.0 or later \(installed: "):
        collect_experts(decoder, tokens_of(), SETTINGS)
