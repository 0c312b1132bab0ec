"""Are the demo's questions held out, the same every time, well formed, and can the demo model answer them?"""

import ast
import json
import math

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from gprune.data.demo import MODEL_FOLDER, questions, texts
from gprune.evaluation.accuracy import answered
from gprune.models.loading import load
from gprune.study import EvaluationSettings

PROSE = ("python-reference", "science-docs")
ASKED = 60


def accuracy(*arguments, **options):
    return {task: each.accuracy for task, each in answered(*arguments, **options).items()}


@pytest.fixture(scope="module")
def asked(text_cache):
    return {name: questions.questions(name, text_cache) for name in questions.NAMES}


@pytest.mark.parametrize("name", questions.NAMES)
def test_questions_are_many_and_distinct_with_one_right_choice(name, asked):
    found = asked[name]
    assert 150 <= len(found) <= 200
    for question in found:
        assert len(set(question.choices)) == len(question.choices) == questions.CHOICES[name]
        assert all(choice.strip() == choice for choice in question.choices)
        assert 0 <= question.answer < questions.CHOICES[name]
    assert len({(question.question, question.choices) for question in found}) == len(found)


@pytest.mark.long
def test_continuations_are_held_out_and_follow_their_passage(asked, text_cache):
    held_out = {" ".join(line.split()) for name in PROSE for line in lines(name, "test", text_cache)}
    trained = {" ".join(line.split()) for name in PROSE for line in lines(name, "train", text_cache)}
    for question in asked["demo_continuation"]:
        lines_of = [f"{question.question} {choice}" for choice in question.choices]
        whole = lines_of.pop(question.answer)
        assert any(line.startswith(whole) for line in held_out)
        assert not any(line.startswith(whole) for line in trained)
        assert not any(line.startswith(tuple(lines_of)) for line in held_out | trained)


def lines(name, split, cache):
    return [line for document in texts.documents(name, split, cache) for line in document.split("\n\n")]


def test_orders_hold_the_same_words_and_only_the_right_one_is_a_sentence(asked, text_cache):
    held_out, trained = (
        "\n".join(" ".join(line.split()) for name in PROSE for line in lines(name, split, text_cache))
        for split in texts.SPLITS[::-1]
    )
    for question in asked["demo_order"]:
        right, wrong = (question.choices[place] for place in (question.answer, 1 - question.answer))
        assert question.question == ""
        assert sorted(right.split()) == sorted(wrong.split())
        assert sum(a != b for a, b in zip(right.split(), wrong.split(), strict=True)) == 2
        assert right in held_out and right not in trained
        assert wrong not in held_out


def test_clozes_stand_in_held_out_code_and_the_version_follows_the_texts(asked, text_cache, monkeypatch):
    documents = texts.documents("python-code", "test", text_cache)
    trained = texts.documents("python-code", "train", text_cache)
    assert all(ast.parse(document) for document in documents)
    for question in asked["demo_cloze"]:
        right = question.choices[question.answer]
        assert any(question.question + right in document for document in documents)
        assert right in question.question
        assert not any(choice in question.question for choice in question.choices if choice != right)
        assert not any(question.question + right in document for document in trained)
    before = {name: questions.version(name) for name in questions.NAMES}
    assert len(set(before.values())) == len(questions.NAMES)
    monkeypatch.setattr(texts, "version", lambda name: "other" if name == "science-docs" else name)
    changed = {name: questions.version(name) for name in questions.NAMES}
    monkeypatch.setattr(texts, "version", lambda name: name)
    plain = {name: questions.version(name) for name in questions.NAMES}
    assert [name for name in questions.NAMES if changed[name] != plain[name]] == [
        "demo_continuation",
        "demo_order",
    ]


@pytest.mark.long
def test_the_bundled_model_answers_above_chance(text_cache):
    demo = load("demo", device="cpu")
    settings = EvaluationSettings(limit=ASKED)
    found = accuracy(demo.model, demo.tokenizer, questions.NAMES, settings, cache=text_cache)
    for name, result in found.items():
        assert result.samples == ASKED
        assert result.chance == pytest.approx(1 / questions.CHOICES[name], rel=1e-12)
    assert found["demo_order"].acc > 0.8
    assert found["demo_cloze"].acc > 0.3
    assert found["demo_continuation"].acc_norm > 0.25


MEGABYTE = 1_000_000
WINDOW = 128
WINDOWS = 24
# Measured over fewer and shorter windows than training.json's, in another arithmetic.
LARGEST_RATIO = 1.5


@pytest.fixture(scope="module")
def model():
    torch.set_num_threads(1)
    return AutoModelForCausalLM.from_pretrained(MODEL_FOLDER, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def training():
    return json.loads((MODEL_FOLDER / "training.json").read_text(encoding="utf-8"))


def held_out_windows(name, cache):
    tokenizer = AutoTokenizer.from_pretrained(MODEL_FOLDER)
    text = (tokenizer.eos_token + tokenizer.bos_token).join(texts.documents(name, "test", cache))
    stream = torch.tensor(tokenizer.encode(text, add_special_tokens=False))
    rows = stream[: len(stream) // WINDOW * WINDOW].view(-1, WINDOW)
    return rows[:: len(rows) // WINDOWS][:WINDOWS]


@torch.no_grad()
def perplexity(model, rows):
    return math.exp(model(input_ids=rows, labels=rows).loss.item())


def test_folder_is_small_enough_to_be_bundled_and_tokenizer_keeps_the_text_and_adds_no_token():
    assert sum(file.stat().st_size for file in MODEL_FOLDER.rglob("*")) <= 20 * MEGABYTE
    tokenizer = AutoTokenizer.from_pretrained(MODEL_FOLDER)
    text = "def mean(values):\n    return sum(values) / len(values)  # für alle\n"
    assert tokenizer.decode(tokenizer(text).input_ids) == text
    assert len(tokenizer) == 4096
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<s>", "</s>")


@pytest.mark.parametrize("name", texts.TRAINED)
def test_held_out_perplexity_is_what_the_training_states(name, model, training, text_cache):
    found = perplexity(model, held_out_windows(name, text_cache))
    assert found < model.config.vocab_size / 20
    # Other versions of Python and the packages carry other texts.
    if training["text_versions"][name] == texts.version(name):
        assert found < LARGEST_RATIO * training["perplexity"][name]
