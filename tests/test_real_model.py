"""The whole path on a trained model and real texts: budgets met, dense perplexity as transformers has it."""

import json

import numpy as np
import pytest
import torch

from gprune import pipeline
from gprune.store import Store
from gprune.study import from_dict

WINDOWS, LENGTH = 8, 128


def quiet(*_):
    pass


@pytest.fixture(scope="module")
def results(shared, built_once):
    def build(folder):
        made = run(shared, Store(folder / "cache"))
        (folder / "results.json").write_text(json.dumps(list(made.items())))

    folder = built_once("real-model", build)
    return Store(folder / "cache"), dict(json.loads((folder / "results.json").read_text()))


def run(shared, store):
    data = shared / "data"
    texts = [data / "wikitext-2" / "test.txt", data / "ptb" / "ptb.valid.txt", data / "c4" / "c4.jsonl"]
    values = {
        "model": str(shared / "models" / "stories260K"),
        "primary": str(data / "wikitext-2" / "valid.txt"),
        "auxiliary": str(data / "ptb" / "ptb.valid.txt"),
        "calibration": {"samples": 64},
        "modularization": {"steps": 20, "restarts": 1},
        "sparsity": {"epochs": 1},
        "evaluation": {"texts": [str(text) for text in texts], "windows": WINDOWS},
    }
    made = {}
    for retention in (0.7, 0.5):
        made[retention] = pipeline.run(from_dict({**values, "retention": retention}), store, quiet)
    return made


@pytest.mark.long
def test_less_is_worse_and_pruned_is_worse_than_dense(results):
    _, made = results
    for text, dense in made[0.5]["perplexity"]["dense"].items():
        for method in ("gprune", "flap", "wanda_sp"):
            mild, harsh = (made[r]["perplexity"][method][text] for r in (0.7, 0.5))
            assert dense < mild < harsh


@pytest.mark.long
def test_dense_perplexity_is_that_of_an_independent_loop(results, shared):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = shared / "models" / "stories260K"
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    _, made = results
    text = str(shared / "data" / "wikitext-2" / "test.txt")
    ids = tokenizer((shared / "data" / "wikitext-2" / "test.txt").read_text(encoding="utf-8"))["input_ids"]
    losses = []
    with torch.no_grad():
        for index in range(WINDOWS):
            window = torch.tensor(ids[index * LENGTH : (index + 1) * LENGTH])[None]
            losses.append(float(model(window, labels=window).loss))
    assert made[0.5]["perplexity"]["dense"][text] == pytest.approx(np.exp(np.mean(losses)), rel=1e-4)
