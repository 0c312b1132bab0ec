"""The model's answers to prompts, against one prompt at a time without padding and without a cache."""

import numpy as np
import pytest
import tiny_study
import torch
from calibration.texts_and_families import draw_alone
from evaluation.task_files import TEMPLATE, write_rows
from tiny_study import results_of

from gprune.data import texts
from gprune.models.loading import load, load_tokenizer
from gprune.pipeline import stages
from gprune.pipeline.stages.inputs import read_inputs
from gprune.pruning.calibration import sampling
from gprune.pruning.calibration.own_answers import write_answers
from gprune.store import Store
from gprune.store.resumption import Resumption, Spent, StateFile
from gprune.study import from_dict
from gprune.system.errors import Cancelled, CorpusError, SettingsError


def prompts(tokenizer, count=7):
    """Prompts of one to `count` words."""
    documents = [" ".join(["def", "return", "self", "for", "in", "if", "else"][: 1 + n]) for n in range(count)]
    ids = [np.array(tokenizer(document)["input_ids"], np.int32) for document in documents]
    return [texts.RenderedChat(row, np.ones(len(row), bool), np.zeros(len(row), bool)) for row in ids]


def recipe_of(options="", documents=0, length=24, role="calibration"):
    return texts.recipe(f"self:prompts.jsonl{options}", role, documents, length)


@pytest.mark.parametrize("groups", [4, 2, 1])
@torch.no_grad()
def test_answers_are_those_of_a_loop_without_padding_and_cache(folders, groups):
    decoder = load(folders[groups], "cpu", "float32")
    # frequent tokens, so that some answers end early
    decoder.model.generation_config.eos_token_id = ends = [1, 40, 41, 42, 43, 44, 45]
    given, chosen = prompts(decoder.tokenizer), recipe_of("#seed=3&temperature=1.5&length=9")
    result = write_answers(decoder, chosen, given, "self:")
    lengths = []
    for number, prompt in enumerate(given):
        chances = np.random.default_rng([3, 0, number]).random(chosen.length)[: min(9, 24 - len(prompt.ids))]
        expected, perplexity = draw_alone(decoder, prompt.ids, chances, 1.5, ends)
        row = result.ids[number]
        assert row[row >= 0].tolist() == expected
        assert result.perplexity[number] == pytest.approx(perplexity, rel=1e-4)
        answer = np.arange(24) >= len(prompt.ids)
        assert (result.answer[number] == (answer & (row >= 0))).all() and result.answer[number].any()
        lengths.append(len(expected) - len(prompt.ids))
    assert min(lengths) < max(lengths) == 9
    assert len(result.stream) == sum(map(len, (prompt.ids for prompt in given))) + sum(lengths)


def test_no_more_prompts_are_answered_than_the_sequences_need(folders, monkeypatch):
    decoder = load(folders[2], "cpu", "float32")
    monkeypatch.setattr(sampling, "MOST_DOCUMENTS", 2)
    given = prompts(decoder.tokenizer)
    cases = [("", 3), ("#length=2", 3), ("#length=2&sequences=single", 3)]
    answered = [len(write_answers(decoder, recipe_of(*case), given, "self:x").ids) for case in cases]
    assert answered == [4, 6, 4]
    for documents, expected in ((1, 2), (0, 7)):
        recipe = recipe_of(documents=documents, role="evaluation")
        assert len(write_answers(decoder, recipe, given, "self:x").ids) == expected
    with pytest.raises(CorpusError, match="none of the 3 prompts of 'self:x' has from 1 to 1 tokens: give shorter"):
        write_answers(decoder, recipe_of(length=2), given[4:], "self:x")


def test_a_stopped_process_goes_on_after_its_last_batch(folders, tmp_path, monkeypatch):
    monkeypatch.setattr(sampling, "MOST_DOCUMENTS", 3)
    decoder = load(folders[2], "cpu", "float32")
    given = prompts(decoder.tokenizer)
    whole = write_answers(decoder, recipe_of(), given, "self:")

    def write(on_progress):
        file = StateFile(Store(tmp_path), "sampled", "0" * 64)
        resumption = Resumption(file, lambda: Spent(1, 2, 3.0), on_progress)
        return write_answers(decoder, recipe_of(), given, "self:", on_progress, resumption)

    def stop(done, *_):
        if done == 6:
            raise Cancelled("stop")

    with pytest.raises(Cancelled):
        write(stop)
    events = []
    resumed = write(lambda *event: events.append(event))
    assert "resumes at step 7 of 7" in events[0][2] and {done for done, *_ in events} == {6, 7}
    np.testing.assert_array_equal(resumed.ids, whole.ids)
    np.testing.assert_array_equal(resumed.perplexity, whole.perplexity)


def test_prompts_are_rendered_by_the_template_or_continued(tmp_path):
    tokenizer = load_tokenizer("demo")
    path = write_rows(tmp_path / "prompts.jsonl", [{"prompt": "Add 2 and 3.", "answer": "5"}])

    def read(options="", file=path):
        return [tokenizer.decode(prompt.ids) for prompt in texts.read_prompts(f"self:{file}{options}", tokenizer, True)]

    assert read() == ["Add 2 and 3."]
    assert read("#prompt=2") == [tokenizer.decode(tokenizer("Add 2 and 3.")["input_ids"][:2])]
    tokenizer.chat_template = TEMPLATE
    assert read() == ["<user>Add 2 and 3.\n<assistant>"]
    # with prompt=, the model continues the text
    assert read("#prompt=99") == ["Add 2 and 3."]
    messages = [{"role": role, "content": role[0]} for role in ("user", "assistant", "user", "assistant")]
    chat = write_rows(tmp_path / "chat.jsonl", [{"messages": messages}])
    assert read("", chat) == ["<user>u\n<assistant>a\n<user>u\n<assistant>"]
    (prompt,) = texts.read_prompts(f"self:{chat}", tokenizer, True)
    assert tokenizer.decode(prompt.ids[prompt.is_content]) == "uau"
    alone = write_rows(tmp_path / "alone.jsonl", [{"messages": messages[1:2]}])
    with pytest.raises(CorpusError, match="has no message to answer"):
        read("", alone)


def test_names_that_cannot_be_used(tmp_path):
    path = write_rows(tmp_path / "prompts.jsonl", [{"prompt": "a"}])
    for options, message in (
        ("#keep=0.5", "every answer of .* is kept: remove keep="),
        ("#prompt=0", "prompt='0' of the text .* must be a whole number from 1"),
        ("#join=blank", "join=blank of the text"),
    ):
        with pytest.raises(SettingsError, match=message):
            texts.describe(f"self:{path}{options}")
    with pytest.raises(CorpusError, match="there is no text"):
        texts.describe(f"self:{path}x")
    described = texts.describe(f"self:{path}#length=9&seed=2")
    assert described.endswith("written by the model itself (seed 2, temperature 1, at most 9 tokens)")


def test_a_study_with_own_answers_depends_on_the_prompts_and_not_on_their_path(tmp_path):
    rows = [{"prompt": f"def {word}"} for word in ("random", "seed", "gauss", "choice", "index")] * 8
    values = tiny_study.made(tmp_path, methods=["dense", "flap"])

    def study(path, options="#length=8&positions=assistant"):
        evaluation = {**values["evaluation"], "texts": [f"self:{path}#seed=1"]}
        return {**values, "auxiliary": f"self:{path}{options}", "evaluation": evaluation}

    def keys(*arguments):
        parsed = from_dict(study(*arguments))
        graph = stages.Graph(parsed, read_inputs(parsed))
        return stages.sampled_text(graph, "auxiliary").key, stages.tokens(graph, "auxiliary").key

    path = write_rows(tmp_path / "prompts.jsonl", rows)
    opened, _ = tiny_study.finished(study(path), tmp_path / "cache")
    results = results_of(opened)
    tokens, sampled = results.get(stages.tokens, "auxiliary"), results.get(stages.sampled_text, "auxiliary")
    assert (tokens.counted.sum(axis=1) > 0).all() and sampled.answer.sum() >= tokens.counted_positions
    answers = {tuple(row[flags]) for row, flags in zip(sampled.ids, sampled.answer, strict=True)}
    assert any(tuple(ids[flags]) in answers for ids, flags in zip(tokens.ids, tokens.counted, strict=True))
    # a copy has the same keys, another prompt or option has others
    first = keys(path)
    assert keys(write_rows(tmp_path / "copy" / "prompts.jsonl", rows)) == first
    assert keys(path, "#length=8")[1] != first[1]
    for changed in (
        keys(write_rows(tmp_path / "more" / "prompts.jsonl", rows[1:])),
        keys(path, "#length=7&positions=assistant"),
    ):
        assert not set(changed) & set(first)
