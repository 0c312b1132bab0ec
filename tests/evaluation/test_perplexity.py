"""Perplexity over windows that do not overlap, against a loop over plain transformers."""

import math

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from gprune.evaluation.perplexity import perplexity
from gprune.models.tiny import tiny_decoder
from gprune.study import EvaluationSettings
from gprune.system.errors import Cancelled, CorpusError, NumericsError, SettingsError


def stream(count, vocabulary=64):
    return np.random.default_rng(0).integers(0, vocabulary, count).astype(np.int32)


def naive_losses(model, tokens, length):
    """Mean negative log-likelihood of tokens 2 ... length of each window, one window at a time."""
    losses = []
    for start in range(0, len(tokens) - length + 1, length):
        ids = torch.tensor(tokens[start : start + length].astype(np.int64))
        with torch.no_grad():
            logits = model(ids[None].to(next(model.parameters()).device)).logits[0].double().cpu()
        total = 0.0
        for position in range(length - 1):
            scores = logits[position]
            total -= float(scores[ids[position + 1]] - torch.logsumexp(scores, dim=0))
        losses.append(total / (length - 1))
    return losses


@pytest.mark.parametrize(
    ("family", "batch", "block"),
    [("llama", 1, 64), ("mistral", 2, 64), ("qwen2", 5, 1), ("qwen3", 100, 1), ("llama", 3, 2**24)],
)
def test_losses_equal_a_loop(family, batch, block, monkeypatch):
    # less than one row of logits: a block is then a single token
    monkeypatch.setattr("gprune.evaluation.perplexity._BLOCK_LOGITS", block)
    model = tiny_decoder(family, kv_heads=2).model
    tokens = stream(70)
    result = perplexity(model, tokens, "text", EvaluationSettings(preset="8", batch=batch))
    expected = naive_losses(model, tokens, 8)
    assert result.windows == 8 == len(expected)
    np.testing.assert_allclose(result.losses, expected, rtol=1e-5)
    assert result.perplexity == pytest.approx(math.exp(sum(expected) / 8), rel=1e-5)
    spread = math.sqrt(sum((loss - sum(expected) / 8) ** 2 for loss in expected) / 7)
    assert result.standard_error == pytest.approx(result.perplexity * spread / math.sqrt(8), rel=1e-4)
    assert (result.text, result.preset, result.length) == ("text", "custom", 8)


def test_first_windows_only_and_the_tail_is_dropped():
    model, tokens = tiny_decoder().model, stream(47)
    every = perplexity(model, tokens, "text", EvaluationSettings(preset="10"))
    assert every.windows == 4
    first = perplexity(model, tokens, "text", EvaluationSettings(preset="10", windows=2))
    np.testing.assert_allclose(first.losses, every.losses[:2], rtol=1e-6)
    changed = np.concatenate([tokens[:40], tokens[:7]])
    np.testing.assert_array_equal(
        perplexity(model, changed, "text", EvaluationSettings(preset="10")).losses, every.losses
    )
    assert perplexity(model, tokens, "text", EvaluationSettings(preset="10", windows=99)).windows == 4


def test_another_family_runs_its_own_forward_pass():
    config = GPT2Config(n_embd=8, n_layer=1, n_head=2, vocab_size=64, n_positions=32)
    model = GPT2LMHeadModel(config).eval()
    tokens = stream(40)
    result = perplexity(model, tokens, "text", EvaluationSettings(preset="10"))
    np.testing.assert_allclose(result.losses, naive_losses(model, tokens, 10), rtol=1e-5)


def test_the_model_stays_as_it_was_and_huge_or_single_losses_are_no_nan():
    model = tiny_decoder().model.train()
    model.lm_head.weight.requires_grad_(True)
    perplexity(model, stream(20), "text", EvaluationSettings(preset="10"))
    assert model.training and model.lm_head.weight.grad is None
    model = tiny_decoder().model
    model.lm_head.weight.data.mul_(1e5)
    result = perplexity(model, stream(40), "text", EvaluationSettings(preset="10"))
    assert result.perplexity == math.inf and result.standard_error == math.inf
    assert bool(np.isfinite(result.losses).all())
    result = perplexity(tiny_decoder().model, stream(10), "text", EvaluationSettings(preset="10"))
    assert result.windows == 1 and math.isfinite(result.perplexity) and result.standard_error == math.inf


def test_what_cannot_be_measured_is_told_with_the_numbers():
    model = tiny_decoder().model
    tokens = stream(40) % 32
    tokens[25] = 40
    model.model.embed_tokens.weight.data[40] = float("nan")
    with pytest.raises(NumericsError, match="loss on 'text' is nan in window 2.*overflows in float32"):
        perplexity(model, tokens, "text", EvaluationSettings(preset="10"))
    with pytest.raises(CorpusError, match="'text' has 127 tokens, less than one window of 128"):
        perplexity(tiny_decoder().model, stream(127), "text", EvaluationSettings())
    with pytest.raises(SettingsError, match="windows of 2048 tokens, but the model reads at most 512"):
        perplexity(tiny_decoder().model, stream(5000), "text", EvaluationSettings(preset="2048"))


@pytest.mark.parametrize(("token", "words"), [(64, "from 0 to 64, but the model knows 0 to 63"), (-1, "from -1")])
def test_tokens_of_another_tokenizer(token, words):
    tokens = np.arange(20)
    tokens[5] = token
    tokens[6:] = 0
    with pytest.raises(CorpusError, match=words):
        perplexity(tiny_decoder().model, tokens, "text", EvaluationSettings(preset="10"))


def test_progress_is_told_and_can_stop_the_run():
    reports: list[tuple[int, int]] = []

    def listen(done, total, message):
        reports.append((done, total))
        assert "text" in message
        if done > 3:
            raise Cancelled("stop")

    model = tiny_decoder().model
    with pytest.raises(Cancelled):
        perplexity(model, stream(80), "text", EvaluationSettings(preset="10", batch=2), listen)
    assert reports == [(2, 8), (4, 8)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_takes_its_losses_in_float32(dtype):
    model, tokens = tiny_decoder(dtype=dtype).model, stream(60)
    result = perplexity(model, tokens, "text", EvaluationSettings(preset="10"))
    np.testing.assert_allclose(result.losses, naive_losses(model, tokens, 10), rtol=1e-2)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")
def test_on_a_gpu():
    tokens, settings = stream(600), EvaluationSettings(preset="30")
    expected = perplexity(tiny_decoder(kv_heads=2).model, tokens, "text", settings)
    result = perplexity(tiny_decoder(kv_heads=2).model.cuda(), tokens, "text", settings)
    np.testing.assert_allclose(result.losses, expected.losses, rtol=1e-4)


@pytest.mark.parametrize(
    "name",
    ["stories260K", *(pytest.param(name, marks=pytest.mark.long) for name in ("textllama-6m", "babyllama-tok105"))],
)
def test_real_models_equal_the_loop(shared, name):
    from gprune.models.loading import load

    decoder = load(str(shared / "models" / name), device="cpu")
    text = (shared / "data" / "wikitext-2" / "test.txt").read_text(encoding="utf-8")[:8000]
    tokens = np.asarray(decoder.tokenizer(text).input_ids)[: 4 * 128]
    result = perplexity(decoder.model, tokens, "WikiText-2", EvaluationSettings(batch=3))
    expected = naive_losses(decoder.model, tokens, 128)
    assert result.perplexity == pytest.approx(math.exp(np.mean(expected)), rel=1e-4)
    np.testing.assert_allclose(result.losses, expected, rtol=1e-4)
