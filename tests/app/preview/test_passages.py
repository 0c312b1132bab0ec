"""Passages and prompts as plain transformers has them."""

import numpy as np
import pytest
import torch
from preview.conftest import answered, random_masks
from pruned_folder import byte_tokenizer, compensating
from torch.nn import functional
from transformers import AutoModelForCausalLM, AutoTokenizer

from gprune.app.preview import DENSE, Passage, Piece, Prompt, Question
from gprune.app.preview.requests import resolve_tokens
from gprune.app.preview.worker import passages
from gprune.pipeline import stages
from gprune.pipeline.stages import RunContext
from gprune.pruning.surgery import cut

pytestmark = pytest.mark.slow

TYPED = "The river was named after the old town, and the town's people were strong."


def answer_of(handler, source, text_request, question):
    (request,) = resolve_tokens(source, text_request, [question])
    return answered(handler, request)


def plain_losses(model, ids):
    with torch.no_grad():
        logits = model(torch.as_tensor(np.asarray(ids)[None], dtype=torch.long)).logits[0].float()
    expected = torch.as_tensor(np.asarray(ids)[1:]).long()
    return functional.cross_entropy(logits[:-1], expected, reduction="none")


@pytest.mark.parametrize("method", ["gprune", "flap"])
@pytest.mark.parametrize("has_run_masks", [True, False], ids=["own masks", "other masks"])
def test_losses_are_those_of_plain_transformers_for_dense_and_cut_models(source, handler, method, has_run_masks):
    model = source.graph.study.model
    plain, tokenizer = AutoModelForCausalLM.from_pretrained(model), AutoTokenizer.from_pretrained(model)
    work = RunContext(source.graph.study, source.graph.inputs, source.results.store.texts)
    masks = source.results.get(stages.masks, method) if has_run_masks else random_masks(work.decoder.shape, 3)
    means = source.results.get(stages.statistics, "primary") if method == "flap" else None
    pruned = cut(work.decoder, compensating(masks, means) if means else masks)
    text = source.graph.study.evaluation.texts[0]
    for text_request, ids in (
        (Passage(typed=TYPED), tokenizer(TYPED)["input_ids"]),
        (Passage(text, 5), work.stream(text)[5 * 16 : 6 * 16]),
    ):
        for question, expected in ((Question("", DENSE), plain), (Question("", method, masks), pruned)):
            reply = answer_of(handler, source, text_request, question)
            losses = plain_losses(expected, ids[:64])
            np.testing.assert_allclose(reply.losses[1:], losses, rtol=2e-4, atol=1e-5)
            assert np.isnan(reply.losses[0])
            assert reply.total == len(ids) and len(reply.pieces) == len(reply.losses)


def test_the_mean_over_a_window_is_the_loss_that_the_run_has_stored(source, handler):
    text = source.graph.study.evaluation.texts[1]
    for method in (DENSE, "gprune", "flap"):
        stored = source.results.get(stages.perplexity, method, text).losses
        for number in (0, 17, 39):
            reply = answer_of(handler, source, Passage(text, number), Question("", method))
            assert np.nanmean(reply.losses) == pytest.approx(stored[number], rel=1e-4)


def test_a_continuation_is_that_of_generate_however_it_is_cut_into_turns(source, handler, monkeypatch):
    work = RunContext(source.graph.study, source.graph.inputs, source.results.store.texts)
    tokenizer = AutoTokenizer.from_pretrained(source.graph.study.model)
    masks = source.results.get(stages.masks, "gprune")
    prompt = "The river was"
    ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
    for model, question in (
        (work.decoder.model, Question("", DENSE)),
        (cut(work.decoder, masks), Question("", "gprune")),
    ):
        expected = model.generate(ids, max_new_tokens=12, do_sample=False)[0, ids.shape[1] :].tolist()
        for count in (5, 4):
            monkeypatch.setattr(passages, "TURN_TOKENS", count)
            reply = answer_of(handler, source, Prompt(prompt, 12), question)
            assert list(reply.ids) == expected and reply.complete
            assert reply.text == tokenizer.decode(expected, skip_special_tokens=True)
            assert (reply.read, reply.total) == (ids.shape[1], ids.shape[1])


def test_a_drawn_continuation_is_one_whatever_its_turns_and_follows_its_temperature(handler, source, monkeypatch):
    def continuation(temperature, seed, turn=12):
        monkeypatch.setattr(passages, "TURN_TOKENS", turn)
        return answer_of(handler, source, Prompt("The river was", 12, temperature, seed), Question("", DENSE)).ids

    full = continuation(0.8, 3)
    assert full == continuation(0.8, 3, turn=5) != continuation(0.8, 4)
    assert continuation(1e-6, 3) == continuation(0.0, 5)
    logits = np.log([0.5, 0.3, 0.2])
    rendered = [passages.sample_token(logits / 2, Prompt("", 1, 0.5, seed), 2) for seed in range(4000)]
    np.testing.assert_allclose(np.bincount(rendered) / 4000, [0.5, 0.3, 0.2], atol=0.03)


def test_what_is_longer_than_the_models_positions_is_read_as_far_as_they_go(source, handler, monkeypatch):
    long = TYPED * 200
    reply = answer_of(handler, source, Passage(typed=long), Question("", DENSE))
    maximum = passages.most_read(handler.model)
    assert len(reply.pieces) == maximum < reply.total and len(reply.losses) == maximum
    assert reply.context_length == maximum == handler.model.decoder.model.config.max_position_embeddings
    monkeypatch.setattr(passages, "MOST_READ", 20)
    fewer = answer_of(handler, source, Passage(typed=long), Question("", DENSE))
    assert len(fewer.pieces) == 20 and fewer.context_length == maximum
    monkeypatch.undo()
    reply = answer_of(handler, source, Prompt(long, 10), Question("", DENSE))
    assert reply.read == maximum - 10 < reply.total and len(reply.ids) <= 10


def test_nothing_to_read_a_window_that_is_none_and_one_token_get_a_sentence(source, handler, monkeypatch):
    for text_request, message in (
        (Passage(typed=""), "the text is empty"),
        (Passage(typed=" \n\t"), "the text is empty"),
        (Prompt(""), "the prompt is empty"),
    ):
        kind, problem, usable = answer_of(handler, source, text_request, Question("", DENSE))
        # the model stays
        assert kind == "problem" and message in problem and usable
    text = source.graph.study.evaluation.texts[0]
    assert "no window 40: choose 0 to 39" in answer_of(handler, source, Passage(text, 40), Question("", DENSE))[1]
    monkeypatch.setattr(passages, "encode", lambda batch, tokenizer: np.array([5], dtype=np.int32))
    assert "one token" in answer_of(handler, source, Passage(typed="x"), Question("", DENSE))[1]


def test_tokens_are_text_and_characters_of_several_tokens_stand_once():
    tokenizer = byte_tokenizer()
    for text in ("the old town 🙂🇫🇷 Zoë's", "שלום עולם", "a\u202eb\x00c", "<b>1987</b>\n\n\t ok"):
        ids = np.array(tokenizer(text, add_special_tokens=False)["input_ids"])
        result = passages.split_pieces(ids, tokenizer)
        assert len(result) == len(ids)
        assert "".join(piece.text for piece in result) == tokenizer.decode(ids)
        for piece in result:
            assert (piece.text != "" or piece.count > 1) and 1 <= piece.number <= piece.count
            assert piece.number == 1 or piece.text == ""
    ids = np.array(tokenizer("🙂", add_special_tokens=False)["input_ids"])
    assert passages.split_pieces(ids, tokenizer)[0] == Piece("🙂", 1, len(ids))
    # cut within a character: what is left says so and what follows is whole
    assert passages.split_pieces(ids[1:], tokenizer)[0].text == "\ufffd"
