"""A whole tiny study of every family, and its pruned model where this project cannot be imported."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_study
import torch
from family_switches import SIZES, SWITCHES
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from gprune import pipeline
from gprune.evaluation.perplexity import perplexity, windows
from gprune.models.export import checkpoint, padded
from gprune.models.families import FAMILIES
from gprune.models.loading import load, load_tokenizer
from gprune.models.tiny import tiny_decoder
from gprune.pipeline import stages
from gprune.pipeline.preflight import estimate_study
from gprune.pruning.surgery import Silenced
from gprune.records import Array
from gprune.store import Store
from gprune.study import EvaluationSettings, from_dict

pytestmark = [pytest.mark.long, pytest.mark.process]

METHODS = ("dense", "gprune", "gates", "llm_pruner", "wanda_sp", "flap", "flap_no_bias", "fang")
METHODS += ("fang_pooled", "osscar", "slimllm", "recommended")
"""every way in which a method looks at a model or changes it; the others combine what these have measured"""
ELSEWHERE = """
import json, sys
from importlib.util import find_spec
assert find_spec("gprune") is None
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
for folder in map(str.strip, sys.stdin):
    own = "auto_map" in json.load(open(folder + "/config.json"))
    trust = {"trust_remote_code": True} if own else {}
    model = AutoModelForCausalLM.from_pretrained(folder, **trust).eval()
    known = load_file(folder + "/known.safetensors")
    ids, expected = known["ids"], known["logits"]
    options = dict(do_sample=False, pad_token_id=0, min_new_tokens=6, max_new_tokens=6)
    options["attention_mask"] = torch.ones_like(ids)
    with torch.inference_mode():
        logits = model(ids).logits
        made = [model.generate(ids, use_cache=cached, **options) for cached in (True, False)]
        losses = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    report = {
        "difference": float((logits - expected).abs().max() / expected.abs().max()),
        "same": torch.equal(*made), "loss": float(losses), "own": own,
        "beside": sum(
            int(one.detach().view(torch.int32).sum(dtype=torch.int64))
            for name, one in model.named_parameters()
            if "vision" in name or "visual" in name or "projector" in name
        ),
    }
    if "windows" in known:
        windows = known["windows"]
        with torch.inference_mode():
            scores = model(windows).logits[:, :-1].flatten(0, 1)
        mean = torch.nn.functional.cross_entropy(scores.double(), windows[:, 1:].flatten())
        report["perplexity"] = float(mean.exp())
    assert "gprune" not in sys.modules
    print(json.dumps(report), flush=True)
"""


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """A process where this project cannot be imported; it loads the folders that it is told one by one."""
    home = tmp_path_factory.mktemp("elsewhere")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "HF_"))}
    environment |= {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1"}
    with (
        (home / "errors.txt").open("w+") as errors,
        subprocess.Popen(
            [sys.executable, "-I", "-c", ELSEWHERE],
            cwd=home,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):

        def loaded(folder: str) -> dict[str, Any]:
            assert process.stdin and process.stdout
            print(folder, file=process.stdin, flush=True)
            told = process.stdout.readline()
            assert told, (home / "errors.txt").read_text()[-3000:]
            return json.loads(told)

        yield loaded


def write_model(folder: Path, family: str, texts: tuple[str, ...]) -> str:
    """A model of the family with its odd switches, and the tokenizer of the tiny study."""
    tiny_study.write_model(folder, texts)
    sizes = SIZES | {"neurons": 48, "vocabulary": 320}
    decoder = tiny_decoder(family, **sizes, **SWITCHES[family][0])
    decoder.model.save_pretrained(folder)
    return str(folder)


def studied(place: Path, family: str, texts: tuple[str, str, str]) -> dict[str, Any]:
    """Runs a study of the family, and looks at what it leaves."""
    model = write_model(place / "model", family, texts)
    values = tiny_study.settings(model, texts, methods=METHODS, substitute=texts[2], device="cpu")
    values["calibration"] = {"samples": 8, "length": 12, "batch": 8}
    values["evaluation"] |= {"texts": [texts[2]]}
    if FAMILIES[family].normalised:
        values["repair"] = {"target": "dense_inputs"}
    values["baselines"] = {"taylor_samples": 2, "taylor_length": 12}
    study, store = from_dict(values), Store(place / "cache")
    forecast = estimate_study(study)
    result = pipeline.run(study, store, tiny_study.silent)
    results = pipeline.opened(study, store)
    questions = place / "questions.jsonl"
    questions.write_text('{"question": "def", "choices": ["a", "b"], "answer": 0}\n')
    asked = {"methods": ("dense", "gprune"), "evaluation.tasks": (str(questions),)}
    answers = pipeline.run(study.with_settings(asked), store, tiny_study.silent)
    folder = results.model_folder(stages.checkpoint(results.graph))
    pruned = checkpoint.load_checkpoint(folder, "cpu")
    ids = torch.arange(3, 43).view(2, 20)
    with torch.inference_mode():
        save_file({"ids": ids, "logits": pruned(ids).logits.contiguous()}, folder / "known.safetensors")
    equal, measured = equal_folder(study, store, texts[2])
    return {
        "folder": str(folder),
        "equal": equal,
        "equal_perplexity": measured,
        "unavailable": result["unavailable"],
        "retention": result["retention"],
        "perplexity": result["perplexity"],
        "accuracy": sorted(answers["accuracy"]),
        "masked": masked_perplexity(results, family, texts[2]),
        "estimate": [forecast.model.shape.kv_heads, forecast.model.note, len(forecast.stages)],
        "beside": beside(model),
        "padded": padding(folder, place / "padded", ids),
    }


def equal_folder(study: Any, store: Store, text: str) -> tuple[str, float]:
    """The folder of GPrune's model of equal widths, with what is to be asked of it, and its perplexity."""
    changes = {"methods": ("dense", "gprune"), "sparsity.widths": "equal"}
    study = study.with_settings(changes)
    pipeline.run(study, store, tiny_study.silent)
    results = pipeline.opened(study, store)
    folder = results.model_folder(stages.checkpoint(results.graph))
    model, ids = checkpoint.load_checkpoint(folder, "cpu"), torch.arange(3, 43).view(2, 20)
    tokens = load_tokenizer(study.model)(Path(text).read_text(), add_special_tokens=False).input_ids
    measured = results.record(stages.perplexity(results.graph, "gprune", text))
    settings = EvaluationSettings(preset="16", windows=6, batch=study.evaluation.batch)
    read = torch.from_numpy(windows(model, np.array(tokens), text, settings).astype(np.int64))
    with torch.inference_mode():
        known = {"ids": ids, "logits": model(ids).logits.contiguous(), "windows": read.contiguous()}
    save_file(known, folder / "known.safetensors")
    return str(folder), measured.perplexity


def beside(model: str) -> int:
    """Numbers in the parts beside the language model of a dense folder: their bits, as one sum."""
    parts = load(model, "cpu").model.named_parameters()
    return sum(
        int(one.detach().view(torch.int32).sum(dtype=torch.int64))
        for name, one in parts
        if "vision" in name or "visual" in name or "projector" in name
    )


def masked_perplexity(results: Any, family: str, text: str) -> list[float]:
    """What the dense model with silent units says on a text, and what the cut one said in the run."""
    study = results.graph.study
    decoder = load(study.model, "cpu")
    stage = stages.perplexity(results.graph, "flap_no_bias", text)
    cut = results.record(stage)
    tokens: Array = np.array(decoder.tokenizer(Path(text).read_text(), add_special_tokens=False).input_ids)
    settings = EvaluationSettings(preset="16", windows=6, batch=study.evaluation.batch)
    masks = results.get(stages.masks, "flap")
    with Silenced(decoder, masks).applied():
        silent = perplexity(decoder.model, tokens, text, settings)
    return [silent.perplexity, cut.perplexity]


def padding(folder: Path, out: Path, ids: torch.Tensor) -> Any:
    """How far the padded model's logits are from the pruned one's; why it is refused where it is."""
    try:
        padded.save_padded(folder, out)
    except Exception as error:
        return str(error)
    with torch.inference_mode():
        expected = checkpoint.load_checkpoint(folder, "cpu")(ids).logits
        found = AutoModelForCausalLM.from_pretrained(out).eval()(ids).logits
    return float((found - expected).abs().max() / expected.abs().max())


@pytest.mark.parametrize("family", FAMILIES)
def test_a_study_of_methods_of_every_kind_passes_and_its_model_loads_elsewhere(family, elsewhere, tmp_path):
    found = studied(tmp_path, family, tiny_study.write_texts(tmp_path / "texts"))
    layout, there, alike = FAMILIES[family], elsewhere(found["folder"]), elsewhere(found["equal"])
    assert not found["unavailable"]
    assert found["perplexity"].keys() == set(METHODS) and found["accuracy"] == ["dense", "gprune"]
    assert all(np.isfinite(value) for values in found["perplexity"].values() for value in values.values())
    kept = [share for method, share in found["retention"].items() if method != "dense"]
    assert kept == pytest.approx([0.5] * len(kept), abs=0.06)
    silent, cut = found["masked"]
    assert cut == pytest.approx(silent, rel=1e-5)
    groups, note, count = found["estimate"]
    told = not layout.heads or bool(layout.text)
    assert count > 20 and bool(note) == told and groups == (2 if layout.heads else 1)
    assert there["difference"] <= 1e-5 and there["same"]
    assert alike["difference"] <= 1e-5 and alike["same"]
    assert alike["perplexity"] == pytest.approx(found["equal_perplexity"], rel=1e-5)
    # the width of heads follows from their number, or other parts stand beside the language model
    assert alike["own"] is (family in ("helium", "stablelm") or bool(layout.text))
    if layout.text:
        assert "parts stand beside its language model" in found["padded"]
        assert found["beside"] == there["beside"] != 0
    elif isinstance(found["padded"], str):
        assert f"an ordinary {family} model has no bias in" in found["padded"]
    else:
        assert found["padded"] <= 1e-5
