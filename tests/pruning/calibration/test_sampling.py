"""What the model writes by itself, against one document at a time without keys and values kept."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from calibration.texts_and_families import draw_alone

from gprune.data.texts import recipe
from gprune.models.loading import load
from gprune.pruning.calibration import sampling
from gprune.pruning.calibration.sampling import sample
from gprune.system.errors import Cancelled, CorpusError, ModelError, NumericsError, SettingsError


def recipe_of(text="self:#keep=0.5", documents=6, length=12, role="calibration"):
    return recipe(text, role, documents, length)


def loop(decoder, chosen):
    """The same, document by document: a whole forward pass for every token."""
    chances = [np.random.default_rng([chosen.seed, 0, n]).random(chosen.length) for n in range(chosen.candidates)]
    rows, perplexity = zip(*(draw_alone(decoder, [0], row, chosen.temperature) for row in chances), strict=True)
    return np.array(rows)[:, 1:], np.array(perplexity)


@pytest.mark.parametrize("groups", [4, 2, 1])
@torch.no_grad()
def test_documents_are_those_of_a_loop_without_a_cache(folders, groups):
    decoder = load(folders[groups], "cpu", "float32")
    chosen = recipe_of("self:#seed=3&temperature=0.7&keep=0.5", documents=3, length=10)
    sampled = sample(decoder, chosen, "self:")
    ids, perplexity = loop(decoder, chosen)
    np.testing.assert_allclose(sampled.perplexity, perplexity, rtol=1e-4)
    lowest = np.sort(np.argsort(perplexity)[:3])
    np.testing.assert_array_equal(sampled.ids, ids[lowest])
    assert sampled.kept.tolist() == [number in lowest for number in range(6)]
    # six documents of ten tokens, each read once
    assert decoder.forward_tokens == 6 * 10


def test_tokens_are_drawn_as_often_as_the_model_says():
    scores = torch.tensor([[1.0, 2.0, 0.0, 3.0]], dtype=torch.float64)
    barred = torch.tensor([True, False, False, False])
    chances = torch.arange(1000, dtype=torch.float64)[:, None] / 1000
    tokens = sampling.draw_tokens(scores.expand(1000, 4), barred, chances, 0.5)
    expected = 1000 * torch.softmax(torch.tensor([4.0, 0.0, 6.0]), 0)
    counts = torch.bincount(tokens[:, 0], minlength=4)
    assert counts[0] == 0
    torch.testing.assert_close(counts[1:].float(), expected, atol=1.01, rtol=0)
    # a chance that rounds to the whole still meets a token that may be drawn
    last = sampling.draw_tokens(scores.flip(1), barred.flip(0), torch.ones(1, 1, dtype=torch.float64), 0.5)
    assert last.item() == 2


def test_the_seed_the_role_and_the_temperature_decide_what_is_written(folders):
    decoder = load(folders[2], "cpu", "float32")
    first = sample(decoder, recipe_of(), "self:").ids
    np.testing.assert_array_equal(first, sample(decoder, recipe_of(), "self:").ids)
    for other in (
        recipe_of("self:#seed=1&keep=0.5"),
        recipe_of(role="evaluation"),
        recipe_of("self:#temperature=2&keep=0.5"),
    ):
        assert not set(map(bytes, first)) & set(map(bytes, sample(decoder, other, "self:").ids))
    # more documents go on where fewer ended
    more = sample(decoder, recipe_of("self:#keep=1", documents=9), "self:").ids
    np.testing.assert_array_equal(sample(decoder, recipe_of("self:#keep=1"), "self:").ids, more[:6])


def test_a_tokenizer_that_begins_texts_begins_these_too(folders, monkeypatch):
    decoder = load(folders[2], "cpu", "float32")
    plain = sample(decoder, recipe_of("self:#keep=1"), "self:").ids
    monkeypatch.setattr(sampling, "_start_token", lambda *_: (0, 1))
    prefixed = sample(decoder, recipe_of("self:#keep=1"), "self:").ids
    assert prefixed.shape == plain.shape and (prefixed[:, 0] == 0).all()
    np.testing.assert_array_equal(prefixed[:, 1:], plain[:, :-1])


def test_what_cannot_be_written_is_said(folders):
    decoder = load(folders[2], "cpu", "float32")
    with pytest.raises(SettingsError, match="65 tokens do not fit the model, which has 64 positions.*length=64"):
        sample(decoder, recipe_of(length=65), "self:")
    message = r"gives only \d+ different documents in 200 drawn, and 100 are needed.*higher"
    with pytest.raises(CorpusError, match=message):
        sample(decoder, recipe_of("self:#temperature=0.01&keep=0.5", documents=100, length=2), "self:")
    for config in (decoder.model.config, decoder.tokenizer):
        config.bos_token_id = config.eos_token_id = None
    decoder.tokenizer.bos_token = decoder.tokenizer.eos_token = None
    with pytest.raises(ModelError, match="no token that begins or ends a text"):
        sample(decoder, recipe_of(), "self:")
    decoder.tokenizer = None
    with pytest.raises(CorpusError, match="has no tokenizer"):
        sample(decoder, recipe_of(), "self:")


def test_scores_that_are_not_finite_end_the_text_and_a_recipe_draws_enough_and_a_share_more(folders):
    decoder = load(folders[2], "cpu", "float32")
    decoder.down_proj(1).weight.data.fill_(float("nan"))
    with pytest.raises(NumericsError, match="scores are not finite while it writes 'self:'"):
        sample(decoder, recipe_of(), "self:")
    plain = recipe("self:", "calibration", 128, 64)
    assert (plain.documents, plain.length, plain.candidates) == (128, 64, 160)
    longer = recipe("self:#length=100&keep=1", "evaluation", None, 128)
    assert longer.documents == -(-256 * 128 // 100) == longer.candidates
    assert replace(plain, keep=0.3).candidates == 427


def test_progress_counts_tokens_and_can_stop_the_writing(folders):
    decoder, events = load(folders[2], "cpu", "float32"), []
    sample(decoder, recipe_of(length=20), "self:", lambda *event: events.append(event))
    assert [done for done, *_ in events] == [0, 96, 192, 240]
    assert {(total, words) for _, total, words in events} == {(240, "tokens written by the model")}

    def stop(*_):
        raise Cancelled("stop")

    with pytest.raises(Cancelled):
        sample(decoder, recipe_of(), "self:", stop)
