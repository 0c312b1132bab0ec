"""Is the bundled model whole, small, and does it know texts that it never saw in training?"""

import json
import math
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from gprune.data.demo import MODEL_FOLDER, texts

MEGABYTE = 1_000_000
WINDOW = 128
WINDOWS = 24
# Measured over fewer and shorter windows than training.json's, in another arithmetic.
LARGEST_RATIO = 1.5


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    torch.set_num_threads(1)
    return AutoModelForCausalLM.from_pretrained(MODEL_FOLDER, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def training() -> dict:
    return json.loads((MODEL_FOLDER / "training.json").read_text(encoding="utf-8"))


def held_out_windows(name: str, cache: Path) -> torch.Tensor:
    tokenizer = AutoTokenizer.from_pretrained(MODEL_FOLDER)
    text = (tokenizer.eos_token + tokenizer.bos_token).join(texts.documents(name, "test", cache))
    stream = torch.tensor(tokenizer.encode(text, add_special_tokens=False))
    rows = stream[: len(stream) // WINDOW * WINDOW].view(-1, WINDOW)
    return rows[:: len(rows) // WINDOWS][:WINDOWS]


@torch.no_grad()
def perplexity(model: PreTrainedModel, rows: torch.Tensor) -> float:
    return math.exp(model(input_ids=rows, labels=rows).loss.item())


def test_folder_is_small_enough_to_be_bundled():
    assert sum(file.stat().st_size for file in MODEL_FOLDER.rglob("*")) <= 20 * MEGABYTE


def test_tokenizer_keeps_the_text_and_adds_no_token():
    tokenizer = AutoTokenizer.from_pretrained(MODEL_FOLDER)
    text = "def mean(values):\n    return sum(values) / len(values)  # für alle\n"
    assert tokenizer.decode(tokenizer(text).input_ids) == text
    assert len(tokenizer) == 4096
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<s>", "</s>")


@pytest.mark.parametrize("name", texts.NAMES)
def test_held_out_perplexity_is_what_the_training_states(name, model, training, text_cache):
    found = perplexity(model, held_out_windows(name, text_cache))
    assert found < model.config.vocab_size / 20
    # Other versions of Python and the packages carry other texts.
    if training["text_versions"][name] == texts.version(name):
        assert found < LARGEST_RATIO * training["perplexity"][name]
