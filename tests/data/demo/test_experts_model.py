"""The bundled mixture of experts: size, routing by text, held-out perplexity, and its demo study."""

import json

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from gprune.__main__ import main
from gprune.data.demo import EXPERTS_FOLDER, MODEL_FOLDERS, texts
from gprune.models import identity
from gprune.models.expert_decoder import ExpertDecoder
from gprune.pipeline import opened, stages
from gprune.pipeline.stages.inputs import is_local
from gprune.store import Store
from gprune.study import demo

# measured by the demo: 192, 107 and 86
LARGEST = {"python-reference": 240, "science-docs": 135, "python-code": 110}


def test_the_folder_is_small_and_shares_the_tokenizer_of_the_demo():
    assert sum(file.stat().st_size for file in EXPERTS_FOLDER.rglob("*")) < 3_000_000
    assert identity.tokenizer_fingerprint("demo-experts") == identity.tokenizer_fingerprint("demo")
    for name, folder in MODEL_FOLDERS.items():
        assert is_local(name) and identity.locate(name) == folder
    training = json.loads((EXPERTS_FOLDER / "training.json").read_text("utf-8"))
    assert training["finished"] and training["text_versions"].items() <= texts.VERSIONS.items()


@pytest.mark.long
def test_the_demo_study_routes_its_texts_to_different_experts(tmp_path, capsys):
    model = AutoModelForCausalLM.from_pretrained(EXPERTS_FOLDER, dtype=torch.float32)
    shape = ExpertDecoder.from_model(model).shape
    assert len(shape.layers) == 4 and shape.experts >= 16

    assert main(["run", "demo-experts", "--json", "--cache", str(tmp_path)]) == 0
    result, study = json.loads(capsys.readouterr().out), demo.experts_demo()
    assert demo.name_of(study) == "demo-experts" and not result["unavailable"]
    perplexity = result["perplexity"]
    assert perplexity.keys() == set(study.methods)
    assert all(perplexity["dense"][text] < LARGEST[text] for text in texts.TRAINED)
    for text in texts.TRAINED:
        assert perplexity["dense"][text] < perplexity["experts_reap"][text] < perplexity["experts_random"][text]

    # the share of tokens that would have to change their expert between the texts, and between the halves of a text
    results = opened(study, Store(tmp_path))
    first, second = (results.get(stages.expert_statistics, role).routed for role in stages.PAIR)
    shares = [routed / routed.sum(-1, keepdims=True) for routed in (first.sum(0), second.sum(0), *_halves(first))]
    distance = abs(shares[0] - shares[1]).sum(-1) / 2
    assert distance.min() > 3 * (abs(shares[2] - shares[3]).sum(-1) / 2).max()
    drift = result["expert_drift"]["reap"]
    assert drift["cold"] <= 3 and drift["drift"] > 2 * max(drift["resample_primary"], drift["resample_auxiliary"])


def _halves(routed: np.ndarray) -> list[np.ndarray]:
    return [routed[start::2].sum(0) for start in (0, 1)]
