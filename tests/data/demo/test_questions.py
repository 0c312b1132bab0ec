"""The demo's questions are held out and well formed, and the demo model can answer them."""

import ast
import hashlib
import json
import math

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from gprune.data.demo import MODEL_FOLDER, questions, texts
from gprune.evaluation.accuracy import measure_tasks
from gprune.models.loading import load
from gprune.study import EvaluationSettings

PROSE = ("python-reference", "science-docs")
ASKED = 60


@pytest.fixture(scope="module")
def bundled():
    return {name: questions.questions(name) for name in questions.NAMES}


DIGESTS = {
    "demo_continuation": ("b4d692019993", "ad3c1b6017e866124f84089458c8215f4eb054ca9d09d2b0d0cce548e2731e62"),
    "demo_order": ("1d8387fec7a2", "0066cfa8185d606e11c9ee67c1a9ce978e680742ca2e9aaad2442af7f33ee4f2"),
    "demo_cloze": ("bb2b273d9371", "540de288d49dcbc64e7368b9cb039a8254b2451c1f4043b18d0b239556c1b706"),
}
"""SHA-256 of the questions under the versions of `questions.VERSIONS`"""


@pytest.mark.parametrize("name", questions.NAMES)
def test_a_version_stands_for_the_questions_which_are_many_and_distinct_with_one_right_choice(name, bundled):
    result = bundled[name]
    assert (questions.VERSIONS[name], hashlib.sha256(repr(result).encode()).hexdigest()) == DIGESTS[name]
    assert len({(question.question, question.choices) for question in result}) == len(result) == 200
    for question in result:
        assert len(set(question.choices)) == len(question.choices) == questions.CHOICES[name]
        assert all(choice.strip() == choice for choice in question.choices)
        assert 0 <= question.answer < questions.CHOICES[name]


@pytest.mark.long
def test_continuations_are_held_out_and_follow_their_passage(bundled):
    held_out = {" ".join(line.split()) for name in PROSE for line in lines(name, "test")}
    trained = {" ".join(line.split()) for name in PROSE for line in lines(name, "train")}
    for question in bundled["demo_continuation"]:
        lines_of = [f"{question.question} {choice}" for choice in question.choices]
        full = lines_of.pop(question.answer)
        assert any(line.startswith(full) for line in held_out)
        assert not any(line.startswith(full) for line in trained)
        assert not any(line.startswith(tuple(lines_of)) for line in held_out | trained)


def lines(name, split):
    return [line for document in texts.documents(name, split) for line in document.split("\n\n")]


def test_orders_hold_the_same_words_and_only_the_right_one_is_a_sentence(bundled):
    held_out, trained = (
        "\n".join(" ".join(line.split()) for name in PROSE for line in lines(name, split))
        for split in texts.SPLITS[::-1]
    )
    for question in bundled["demo_order"]:
        right, wrong = (question.choices[location] for location in (question.answer, 1 - question.answer))
        assert question.question == ""
        assert sorted(right.split()) == sorted(wrong.split())
        assert sum(a != b for a, b in zip(right.split(), wrong.split(), strict=True)) == 2
        assert right in held_out and right not in trained
        assert wrong not in held_out


def test_clozes_stand_in_held_out_code(bundled):
    documents, trained = (texts.documents("python-code", split) for split in ("test", "train"))
    assert all(ast.parse(document) for document in documents)
    for question in bundled["demo_cloze"]:
        right = question.choices[question.answer]
        assert any(question.question + right in document for document in documents)
        assert right in question.question
        assert not any(choice in question.question for choice in question.choices if choice != right)
        assert not any(question.question + right in document for document in trained)


@pytest.mark.long
def test_the_bundled_model_answers_above_chance():
    demo = load("demo", device="cpu")
    settings = EvaluationSettings(limit=ASKED)
    least = {"demo_order": ("acc", 0.8), "demo_cloze": ("acc", 0.3), "demo_continuation": ("acc_norm", 0.25)}
    for name in questions.NAMES:
        result = measure_tasks(demo.model, demo.tokenizer, name, settings).accuracy
        figure, bound = least[name]
        assert result.samples == ASKED and getattr(result, figure) > bound
        assert result.chance == pytest.approx(1 / questions.CHOICES[name], rel=1e-12)


WINDOW = 128
WINDOWS = 24
# Measured over fewer and shorter windows than training.json's, in another arithmetic.
LARGEST_RATIO = 1.5


@pytest.fixture(scope="module")
def model():
    torch.set_num_threads(1)
    return AutoModelForCausalLM.from_pretrained(MODEL_FOLDER, dtype=torch.float32).eval()


def held_out_windows(name):
    tokenizer = AutoTokenizer.from_pretrained(MODEL_FOLDER)
    text = (tokenizer.eos_token + tokenizer.bos_token).join(texts.documents(name, "test"))
    stream = torch.tensor(tokenizer.encode(text, add_special_tokens=False))
    rows = stream[: len(stream) // WINDOW * WINDOW].view(-1, WINDOW)
    return rows[:: len(rows) // WINDOWS][:WINDOWS]


def test_folder_is_small_enough_to_be_bundled_and_tokenizer_keeps_the_text_and_adds_no_token():
    assert sum(file.stat().st_size for file in MODEL_FOLDER.rglob("*")) <= 20_000_000
    tokenizer = AutoTokenizer.from_pretrained(MODEL_FOLDER)
    text = "def mean(values):\n    return sum(values) / len(values)  # für alle\n"
    assert tokenizer.decode(tokenizer(text).input_ids) == text
    assert len(tokenizer) == 4096
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<s>", "</s>")


@pytest.mark.parametrize("name", texts.TRAINED)
@torch.no_grad()
def test_held_out_perplexity_is_what_the_training_states(name, model):
    rows, training = held_out_windows(name), json.loads((MODEL_FOLDER / "training.json").read_text("utf-8"))
    result = math.exp(model(input_ids=rows, labels=rows).loss.item())
    assert result < model.config.vocab_size / 20
    assert training["text_versions"][name] == texts.VERSIONS[name]
    assert result < LARGEST_RATIO * training["perplexity"][name]
