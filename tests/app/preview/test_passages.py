"""Passages and prompts as plain transformers has them; a mask set that is cut and measured like a method."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from preview.conftest import random_masks
from pruned_folder import byte_tokenizer, compensating
from torch.nn import functional
from transformers import AutoModelForCausalLM, AutoTokenizer
from waiting import wait_for

from gprune.__main__ import main
from gprune.analysis.mask_edits import Edit, mask_sets
from gprune.app.preview import DENSE, Client, Passage, Prompt, Question
from gprune.app.preview.token_requests import parts
from gprune.app.preview.worker import messages, passages
from gprune.app.preview.worker.worker import RequestHandler
from gprune.evaluation import perplexity as measurement
from gprune.models.export import checkpoint, plan_file
from gprune.pipeline import stages
from gprune.pipeline.stages import RunContext
from gprune.pruning.surgery import cut
from gprune.system.errors import CorpusError

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


@pytest.mark.parametrize("method", ["gprune", "flap"])
def test_the_saved_model_is_the_cut_of_the_edited_masks(tiny_run, tmp_path, capsys, method):
    run = tiny_run()
    results = run.source.results
    edits = (Edit(False, "module", 0, 0), Edit(True, "neuron", 1, 3))
    chosen = mask_sets.made(results, f"mine {method}", method, edits)
    mask_sets.save(results, chosen)
    out = tmp_path / "model"
    assert main(["cut", run.name, chosen.name, str(out), "--cache", str(run.root)]) == 0
    assert f"{method} by hand" in capsys.readouterr().out
    masks = mask_sets.repeated(results, chosen).masks
    work = RunContext(run.source.graph.study, run.source.graph.inputs, results.store.texts)
    means = results.get(stages.statistics, "primary") if method == "flap" else None
    expected = cut(work.decoder, compensating(masks, means) if means else masks)
    tokenizer = AutoTokenizer.from_pretrained(out)
    ids = tokenizer("The river was named after it.", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        found = checkpoint.load(out, "cpu")(ids).logits
        np.testing.assert_allclose(found, expected(ids).logits, rtol=1e-4, atol=1e-5)
    plan = plan_file.read(out)
    kept = plan.pruned.masks
    assert np.array_equal(kept.ffn, masks.ffn) and np.array_equal(kept.heads, masks.heads)
    assert plan.pruned.biased == (method == "flap")
    told = json.loads((out / "plan.json").read_text())["study"]["by_hand"]
    assert told["edits"] == [asdict(edit) for edit in edits] and told["name"] == chosen.name
    # the plan alone makes the same folder again
    again = tmp_path / "again"
    assert main(["apply", str(out), run.source.graph.study.model, str(again)]) == 0
    with torch.no_grad():
        assert torch.equal(checkpoint.load(again, "cpu")(ids).logits, found)


def test_what_cannot_be_cut_gets_a_sentence(tiny_run, tmp_path, capsys):
    run = tiny_run()
    cache = ["--cache", str(run.root)]
    assert main(["cut", run.name, "none of this name", str(tmp_path / "out"), *cache]) != 0
    assert "has no mask set" in capsys.readouterr().err
    mask_sets.save(run.source.results, mask_sets.made(run.source.results, "mine", "gprune", ()))
    assert main(["cut", run.name, "mine", str(tmp_path / "out"), "--identity", "0", *cache]) != 0
    assert "another than when it was asked for" in capsys.readouterr().err
    assert main(["cut", "no-run", "x", str(tmp_path / "out"), *cache]) != 0
    assert "there is no run" in capsys.readouterr().err and not (tmp_path / "out").exists()
    with pytest.raises(mask_sets.SettingsError, match="hyphen"):
        mask_sets.made(run.source.results, "--cache", "gprune", ())


EDITS = (Edit(False, "module", 0, 0), Edit(True, "neuron", 1, 3))


def silent(*_):
    pass


@pytest.mark.parametrize("method", ["gprune", "flap"])
def test_a_set_has_the_perplexity_of_its_cut_model_and_is_measured_once(tiny_run, capsys, monkeypatch, method):
    run = tiny_run()
    results = run.source.results
    graph = results.graph
    chosen = mask_sets.made(results, f"measured {method}", method, EDITS)
    mask_sets.save(results, chosen)
    command = ["measure", run.name, chosen.name, "--json", "--cache", str(run.root)]
    assert main(command) == 0
    told = json.loads(capsys.readouterr().out)
    work = RunContext(graph.study, graph.inputs, results.store.texts)
    means = results.get(stages.statistics, "primary") if method == "flap" else None
    masks = mask_sets.repeated(results, chosen).masks
    model = cut(work.decoder, compensating(masks, means) if means else masks)
    assert [line["text"] for line in told["texts"]] == list(graph.study.evaluation.texts)
    for line in told["texts"]:
        text = line["text"]
        expected = measurement.perplexity(model, work.stream(text), text, graph.study.evaluation)
        assert line["perplexity"] == pytest.approx(expected.perplexity, rel=1e-5)
        own = results.record(stages.perplexity(graph, method, text))
        assert line["nats"] == pytest.approx(np.mean(expected.losses - own.losses), abs=1e-5)
        assert line["method"] == own.perplexity
    # what is there is only read
    monkeypatch.setattr(measurement, "perplexity", None)
    assert main(command[:3] + command[4:]) == 0
    assert f"{method} {told['texts'][0]['method']:.4f}" in capsys.readouterr().out


def test_a_set_of_other_masks_has_another_key(tiny_run):
    results = tiny_run().source.results
    first, second = (
        mask_sets.perplexities(results, mask_sets.made(results, "one", "gprune", edits))
        for edits in (EDITS, (Edit(False, "module", 0, 1),))
    )
    keys = [stage.key for found in (first, second) for stage in found.values()]
    assert len(set(keys)) == len(keys)
    same = mask_sets.perplexities(results, mask_sets.made(results, "another name", "gprune", EDITS))
    assert [stage.key for stage in same.values()] == keys[: len(same)]


def test_a_text_that_has_changed_is_not_measured(tiny_run, tmp_path, monkeypatch):
    run = tiny_run()
    results = run.source.results
    chosen = mask_sets.made(results, "not measured", "gprune", EDITS[1:])
    changed = Path(results.graph.study.evaluation.texts[0])
    held = changed.read_text(encoding="utf-8")
    changed.write_text(held + "one line more\n", encoding="utf-8")
    try:
        with pytest.raises(CorpusError, match="has changed since the run: put the old one back"):
            mask_sets.measure(results, chosen, silent)
    finally:
        changed.write_text(held, encoding="utf-8")
