"""Passages and prompts as plain transformers has them."""

import numpy as np
import pytest
import torch
from evaluation.task_files import TEMPLATE
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

DENSE_MODEL = Question("", DENSE)
TYPED = "The river was named after the old town, and the town's people were strong."


def answer_of(handler, source, token_question, model=DENSE_MODEL, turns=1000):
    (request,) = resolve_tokens(source, token_question, [model])
    return answered(handler, request, turns)


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


def test_a_drawn_continuation_is_one_whatever_its_turns_and_follows_its_temperature(handler, source, monkeypatch):
    def continuation(temperature, seed, turn=12):
        monkeypatch.setattr(passages, "TURN_TOKENS", turn)
        return answer_of(handler, source, Prompt("The river was", 12, temperature, seed)).ids

    full = continuation(0.8, 3)
    assert full == continuation(0.8, 3, turn=5) != continuation(0.8, 4)
    assert continuation(1e-6, 3) == continuation(0.0, 5)
    logits = np.log([0.5, 0.3, 0.2])
    rendered = [passages.sample_token(logits / 2, Prompt("", 1, 0.5, seed), 2) for seed in range(4000)]
    np.testing.assert_allclose(np.bincount(rendered) / 4000, [0.5, 0.3, 0.2], atol=0.03)


def log_probabilities(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0, -1].double().log_softmax(-1)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_continuation_and_its_divergence_are_those_of_a_loop_without_a_cache(source, handler, temperature):
    work = RunContext(source.graph.study, source.graph.inputs, source.results.store.texts)
    tokenizer = AutoTokenizer.from_pretrained(source.graph.study.model)
    masks = random_masks(work.decoder.shape, 5)
    prompt, pruned = Prompt("The river was", 10, temperature, 2), cut(work.decoder, masks)
    context, tokens, divergences = tokenizer(prompt.typed)["input_ids"], [], []
    for index in range(prompt.most):
        first, second = (log_probabilities(model, [*context, *tokens]) for model in (pruned, work.decoder.model))
        divergences.append(float((first.exp() * (first - second)).sum()))
        tokens.append(passages.sample_token(first.numpy(), prompt, index))
    reply = answer_of(handler, source, prompt, Question("", "gprune", masks, fitted=False))
    assert list(reply.ids) == tokens and len(reply.pieces) == len(tokens) and reply.complete
    assert (reply.read, reply.total) == (len(context), len(context))
    assert reply.text == tokenizer.decode(tokens, skip_special_tokens=True)
    assert "".join(piece.text for piece in reply.pieces).strip() == tokenizer.decode(tokens).strip()
    np.testing.assert_allclose(reply.divergences, divergences, atol=1e-4)
    assert min(divergences) > 1e-3
    dense = answer_of(handler, source, prompt)
    if not temperature:
        ids = torch.tensor([context])
        generated = work.decoder.model.generate(ids, max_new_tokens=prompt.most, do_sample=False)[0, len(context) :]
        assert list(dense.ids) == generated.tolist()
    assert not dense.divergences.any() and len(dense.divergences) == len(dense.ids)
    # what the pruned model has is gone afterwards
    assert list(dense.ids) == list(answer_of(handler, source, prompt).ids) != tokens


def test_an_end_token_ends_a_continuation_also_as_its_first_token(source, handler, monkeypatch):
    prompt, question = Prompt("The river was", 12), Question("", "gprune")
    ids = answer_of(handler, source, prompt, question).ids
    for end in (ids[5], ids[0]):
        monkeypatch.setattr(handler.model.decoder.model.generation_config, "eos_token_id", [end])
        reply = answer_of(handler, source, prompt, question)
        assert reply.ids == ids[: ids.index(end)] and reply.complete
        assert len(reply.divergences) == len(reply.pieces) == len(reply.ids)


def test_a_message_is_rendered_by_the_template_and_one_that_cannot_be_gets_a_sentence(source, handler, monkeypatch):
    def answer(text):
        return answer_of(handler, source, Prompt(text, 6, is_chat=True), Question("", "gprune"))

    tokenizer = handler.model.decoder.tokenizer
    monkeypatch.setattr(tokenizer, "chat_template", None, raising=False)
    kind, problem, usable = answer("The river")
    assert kind == "problem" and usable and problem.endswith("no chat template: switch off “Chat message”")
    monkeypatch.setattr(tokenizer, "chat_template", TEMPLATE)
    rendered = "<user>The river\n<assistant>"
    assert answer("The river").total == len(tokenizer(rendered, add_special_tokens=False)["input_ids"])
    assert answer("The river").ids == answer_of(handler, source, Prompt(rendered, 6), Question("", "gprune")).ids
    assert "the prompt is empty" in answer(" ")[1]
    total = len(tokenizer(f"<user>{TYPED * 9}\n<assistant>", add_special_tokens=False)["input_ids"])
    limits = f"has {total} tokens with its template, and the model reads at most 58 before 6 new ones: shorten"
    assert limits in answer(TYPED * 9)[1]
    with torch.no_grad():
        weight = handler.model.decoder.model.get_output_embeddings().weight
        monkeypatch.setattr(weight, "data", torch.full_like(weight, torch.inf))
    assert "a logit is not finite" in answer("The river")[1]


def test_what_is_longer_than_the_models_positions_is_read_as_far_as_they_go(source, handler, monkeypatch):
    long = TYPED * 200
    reply = answer_of(handler, source, Passage(typed=long))
    maximum = passages.most_read(handler.model)
    assert len(reply.pieces) == maximum < reply.total and len(reply.losses) == maximum
    assert reply.context_length == maximum == handler.model.decoder.model.config.max_position_embeddings
    monkeypatch.setattr(passages, "MOST_READ", 20)
    fewer = answer_of(handler, source, Passage(typed=long))
    assert len(fewer.pieces) == 20 and fewer.context_length == maximum
    monkeypatch.undo()
    reply = answer_of(handler, source, Prompt(long, 10))
    assert reply.read == maximum - 10 < reply.total and len(reply.ids) <= 10


def test_nothing_to_read_a_window_that_is_none_and_one_token_get_a_sentence(source, handler, monkeypatch):
    for text_request, message in (
        (Passage(typed=""), "the text is empty"),
        (Passage(typed=" \n\t"), "the text is empty"),
        (Prompt(""), "the prompt is empty"),
    ):
        kind, problem, usable = answer_of(handler, source, text_request)
        # the model stays
        assert kind == "problem" and message in problem and usable
    text = source.graph.study.evaluation.texts[0]
    assert "no window 40: choose 0 to 39" in answer_of(handler, source, Passage(text, 40))[1]
    monkeypatch.setattr(passages, "encode", lambda batch, tokenizer: np.array([5], dtype=np.int32))
    assert "one token" in answer_of(handler, source, Passage(typed="x"))[1]


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
