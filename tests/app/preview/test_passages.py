"""Passages and prompts as plain transformers has them; a mask set that is cut and measured like a method."""

import numpy as np
import pytest
import torch
from preview.conftest import random_masks
from pruned_folder import byte_tokenizer, compensating
from torch.nn import functional
from transformers import AutoModelForCausalLM, AutoTokenizer
from waiting import wait_for

from gprune.app.preview import DENSE, Client, Passage, Prompt, Question
from gprune.app.preview.token_requests import parts
from gprune.app.preview.worker import messages, passages
from gprune.app.preview.worker.worker import RequestHandler
from gprune.pipeline import stages
from gprune.pipeline.stages import RunContext
from gprune.pruning.surgery import cut

pytestmark = pytest.mark.slow

TYPED = "The river was named after the old town, and the town's people were strong."


@pytest.fixture(scope="module")
def source(tiny_run):
    return tiny_run().source


@pytest.fixture(scope="module")
def handler(source):
    made = RequestHandler()
    assert made.answer(messages.line({"model": source.model})).get("ready")
    return made


def asked(handler, source, what, question, **more):
    (part,) = parts(source, what, [question])
    sent = {"id": part.identity, **part.content, "pruned": part.pruned, **more}
    return handler.answer(messages.line(sent))


def plain_losses(model, ids):
    with torch.no_grad():
        logits = model(torch.as_tensor(np.asarray(ids)[None], dtype=torch.long)).logits[0].float()
    wanted = torch.as_tensor(np.asarray(ids)[1:]).long()
    return functional.cross_entropy(logits[:-1], wanted, reduction="none")


@pytest.mark.parametrize("method", ["gprune", "flap"])
@pytest.mark.parametrize("own", [True, False], ids=["own masks", "other masks"])
def test_losses_are_those_of_plain_transformers_for_dense_and_cut_models(source, handler, method, own):
    model = source.graph.study.model
    plain, tokenizer = AutoModelForCausalLM.from_pretrained(model), AutoTokenizer.from_pretrained(model)
    work = RunContext(source.graph.study, source.graph.inputs, source.results.store.texts)
    masks = source.results.get(stages.masks, method) if own else random_masks(work.decoder.shape, 3)
    means = source.results.get(stages.statistics, "primary") if method == "flap" else None
    pruned = cut(work.decoder, compensating(masks, means) if means else masks)
    text = source.graph.study.evaluation.texts[0]
    for what, ids in (
        (Passage(typed=TYPED), tokenizer(TYPED)["input_ids"]),
        (Passage(text, 5), work.stream(text)[5 * 16 : 6 * 16]),
    ):
        for question, expected in ((Question("", DENSE), plain), (Question("", method, masks), pruned)):
            reply = asked(handler, source, what, question)
            wanted = plain_losses(expected, ids[:64])
            np.testing.assert_allclose(reply["losses"], wanted, rtol=2e-4, atol=1e-5)
            assert reply["total"] == len(ids) and len(reply["pieces"]) == len(reply["losses"]) + 1


def test_the_mean_over_a_window_is_the_loss_that_the_run_has_stored(source, handler):
    text = source.graph.study.evaluation.texts[1]
    for method in (DENSE, "gprune", "flap"):
        stored = source.results.get(stages.perplexity, method, text).losses
        for number in (0, 17, 39):
            reply = asked(handler, source, Passage(text, number), Question("", method))
            assert np.mean(reply["losses"]) == pytest.approx(stored[number], rel=1e-4)


def test_a_continuation_is_that_of_generate_however_it_is_cut_into_turns(source, handler):
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
        written = []
        for count in (1, 4, 7):
            reply = asked(handler, source, Prompt(prompt, 12), question, ids=written, tokens=count)
            written += reply["ids"]
        assert written == expected
        assert reply["text"] == tokenizer.decode(expected, skip_special_tokens=True)
        assert (reply["read"], reply["total"]) == (ids.shape[1], ids.shape[1])


def test_a_drawn_continuation_is_one_whatever_its_turns_and_follows_its_temperature(handler, source):
    def written(temperature, seed, counts, method=DENSE):
        found = []
        for count in counts:
            what = Prompt("The river was", 12, temperature, seed)
            found += asked(handler, source, what, Question("", method), ids=found, tokens=count)["ids"]
        return found

    whole = written(0.8, 3, (12,))
    assert whole == written(0.8, 3, (1, 4, 7)) != written(0.8, 4, (12,))
    assert written(1e-6, 3, (12,)) == written(0.0, 5, (12,))
    logits = np.log([0.5, 0.3, 0.2])
    drawn = [passages.drawn(logits / 2, {"temperature": 0.5, "seed": seed}, 2) for seed in range(4000)]
    np.testing.assert_allclose(np.bincount(drawn) / 4000, [0.5, 0.3, 0.2], atol=0.03)


def test_what_is_longer_than_the_models_positions_is_read_as_far_as_they_go(source, handler, monkeypatch):
    long = TYPED * 200
    reply = asked(handler, source, Passage(typed=long), Question("", DENSE))
    most = passages.most_read(handler.masked)
    assert len(reply["pieces"]) == most < reply["total"] and len(reply["losses"]) == most - 1
    assert reply["places"] == most == handler.masked.decoder.model.config.max_position_embeddings
    monkeypatch.setattr(passages, "MOST_READ", 20)
    fewer = asked(handler, source, Passage(typed=long), Question("", DENSE))
    assert len(fewer["pieces"]) == 20 and fewer["places"] == most
    monkeypatch.undo()
    reply = asked(handler, source, Prompt(long, 10), Question("", DENSE), ids=[], tokens=10)
    assert reply["read"] == most - 10 < reply["total"] and len(reply["ids"]) <= 10


def test_nothing_to_read_a_window_that_is_none_and_one_token_get_a_sentence(source, handler, monkeypatch):
    for what, told in (
        (Passage(typed=""), "the text is empty"),
        (Passage(typed=" \n\t"), "the text is empty"),
        (Prompt(""), "the prompt is empty"),
    ):
        more = {"ids": [], "tokens": 1} if isinstance(what, Prompt) else {}
        reply = asked(handler, source, what, Question("", DENSE), **more)
        # the model stays
        assert told in reply["problem"] and reply["ready"]
    text = source.graph.study.evaluation.texts[0]
    assert "0 to 39 and not 40" in asked(handler, source, Passage(text, 40), Question("", DENSE))["problem"]
    monkeypatch.setattr(passages, "encode", lambda batch, tokenizer: np.array([5], dtype=np.int32))
    assert "one token" in asked(handler, source, Passage(typed="x"), Question("", DENSE))["problem"]


def test_tokens_are_text_and_characters_of_several_tokens_stand_once():
    tokenizer = byte_tokenizer()
    for text in ("the old town 🙂🇫🇷 Zoë's", "שלום עולם", "a\u202eb\x00c", "<b>1987</b>\n\n\t ok"):
        ids = np.array(tokenizer(text, add_special_tokens=False)["input_ids"])
        found = passages.pieces(ids, tokenizer)
        assert len(found) == len(ids)
        assert "".join(piece for piece, _, _ in found) == tokenizer.decode(ids)
        for piece, place, of in found:
            assert (piece != "" or of > 1) and 1 <= place <= of and (place == 1 or piece == "")
    ids = np.array(tokenizer("🙂", add_special_tokens=False)["input_ids"])
    assert passages.pieces(ids, tokenizer)[0] == ("🙂", 1, len(ids))
    # cut within a character: what is left says so and what follows is whole
    assert passages.pieces(ids[1:], tokenizer)[0][0] == "\ufffd"


@pytest.mark.process
@pytest.mark.long
def test_the_pool_reads_between_the_windows_of_a_preview_and_says_what_went_wrong(tiny_run, tmp_path):
    source = tiny_run().copied(tmp_path)
    text, pool = source.graph.study.evaluation.texts[0], Client()
    try:
        preview = pool.ask(source, Question(text, "flap"), owner="me")
        models = [Question("", DENSE), Question("", "gprune")]
        identity = pool.read(source, Passage(typed=TYPED), models, "me:lens")
        prompt = pool.read(source, Prompt("The river was"), models, "me:prompt")
        for one in (identity, prompt):
            wait_for(lambda one=one: pool.reading(one).progress != "open", 60)
            assert pool.reading(one).progress == "complete", pool.reading(one).problem
        dense, pruned = pool.reading(identity).found
        assert np.isnan(dense.losses[0]) and not np.allclose(dense.losses[1:], pruned.losses[1:])
        assert pool.reading(prompt).found[0].ended and len(pool.reading(prompt).found[0].ids) <= 40
        wait_for(lambda: pool.latest(preview).progress == "complete", 60)
        # the same again is there at once
        assert pool.reading(pool.read(source, Passage(typed=TYPED), models, "you")).progress == "complete"
        (tmp_path / "model" / "config.json").write_text("{}")
        failed = pool.read(source, Passage(typed="something else"), models, "me:lens")
        wait_for(lambda: pool.reading(failed).progress == "failed", 60)
        assert "has changed since the run" in pool.reading(failed).problem
    finally:
        pool.close()
