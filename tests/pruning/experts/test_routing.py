"""Statistics of experts equal a loop over tokens, in the layout of every family, for any shards, batch and padding."""

from collections import defaultdict

import numpy as np
import pytest
import torch
from tiny_experts import EXPERTS, tiny_mixture

from gprune.models.expert_families import EXPERT_FAMILIES
from gprune.pruning.experts.routing import collect_experts
from gprune.records import Tokens
from gprune.records.experts import STRONGEST, ExpertStatistics
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
def naive_sums(decoder, tokens: Tokens) -> tuple[np.ndarray, dict[tuple[int, int], list[tuple[float, int]]]]:
    """(4, shards, layers, experts) by a loop over sequences, tokens and choices, and each expert's strongest tokens."""
    sums, calls, tops = np.zeros((4, 4, len(decoder.shape.layers), EXPERTS)), [], defaultdict(list)
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
                    tops[layer, expert].append((np.float32(-g * norm), sequence * len(ids) + token))
    for hook in hooks:
        hook.remove()
    return sums, {key: sorted(items)[:STRONGEST] for key, items in tops.items()}


def assert_strongest(statistics: ExpertStatistics, tops: dict[tuple[int, int], list[tuple[float, int]]]) -> None:
    for layer, expert in np.ndindex(statistics.positions.shape[:2]):
        items = tops.get((layer, expert), [])
        positions, strengths = statistics.positions[layer, expert], statistics.strengths[layer, expert]
        assert positions.tolist() == [position for _, position in items] + [-1] * (STRONGEST - len(items))
        np.testing.assert_allclose(strengths[: len(items)], [-value for value, _ in items], rtol=1e-5)
        assert not strengths[len(items) :].any()


@pytest.mark.parametrize("family", EXPERT_FAMILIES)
def test_sums_equal_a_loop_over_tokens(family):
    decoder, tokens = exact_mixture(family), tokens_of()
    before = decoder.model(torch.from_numpy(tokens.ids.astype(np.int64))).logits
    statistics = collect_experts(decoder, tokens, SETTINGS)
    expected, tops = naive_sums(decoder, tokens)
    assert_strongest(statistics, tops)
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
    expected, tops = naive_sums(decoder, tokens)
    np.testing.assert_allclose(statistics.weighted_norms, expected[2], rtol=1e-6, atol=1e-9)
    assert_strongest(statistics, tops)
    assert not set(np.flatnonzero(~counted)) & set(statistics.positions.ravel())
    assert statistics.shard_tokens.tolist() == [9, 9, 5, 5] and statistics.routed[:, 0].sum(1).tolist() == [
        18,
        18,
        10,
        10,
    ]
    single = collect_experts(decoder, tokens, CalibrationSettings(samples=6, length=7, shards=4, batch=1))
    assert np.array_equal(single.routed, statistics.routed)
    np.testing.assert_allclose(single.norms, statistics.norms, rtol=1e-6)
    assert np.array_equal(single.positions, statistics.positions)


@pytest.mark.parametrize("batch", [1, 4, 6])
def test_the_first_of_equally_strong_tokens_is_kept(batch):
    ids = np.tile(tokens_of().ids[:1], (6, 1))
    decoder, tokens = exact_mixture("mixtral"), Tokens("A", "f", ids, 6, None)
    settings = CalibrationSettings(samples=6, length=7, shards=4, batch=batch)
    _, tops = naive_sums(decoder, tokens)
    assert max(len(items) for items in tops.values()) == STRONGEST
    assert_strongest(collect_experts(decoder, tokens, settings), tops)


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
