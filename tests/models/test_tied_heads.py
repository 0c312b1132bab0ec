"""Folders whose configuration ties the LM head while their file holds another one: the weights decide."""

import json
from pathlib import Path

import pytest
import tiny_study
import torch
from safetensors.torch import load_file, save_file
from tiny_family import tiny_decoder
from transformers import AutoConfig, AutoModelForCausalLM

from gprune import pipeline
from gprune.api import opening
from gprune.models import identity, inspection, loading
from gprune.models.decoder import Decoder
from gprune.models.export import checkpoint, padded
from gprune.models.families import FAMILIES, TIED, language_values
from gprune.pipeline.estimate import dimensions
from gprune.pipeline.stages import inputs
from gprune.store import Store
from gprune.study import from_dict

SIZES = {"hidden": 16, "neurons": 28, "kv_heads": 2, "vocabulary": 320}


def edit_config(folder: Path, **values: object) -> Path:
    """Change a folder's configuration; a value of None takes a field out."""
    file = folder / "config.json"
    changed = json.loads(file.read_text()) | values
    file.write_text(json.dumps({name: value for name, value in changed.items() if value is not None}))
    return folder


def write_folder(folder: Path, family: str, **values: object) -> Path:
    """Write an untied model with random weights, and change its configuration."""
    tiny_decoder(family, **SIZES).model.save_pretrained(folder)
    return edit_config(folder, **values)


@pytest.fixture(params=["llama", "mistral"], scope="module")
def exports(request, tmp_path_factory):
    """Perplexity of FLAP at equal widths, its folder and the dense one: tied by configuration, and the control."""
    folder = tmp_path_factory.mktemp(request.param)
    texts = tiny_study.write_texts(folder / "texts")
    outcome = []
    for tied in (True, False):
        tiny_study.write_model(folder / f"model-{tied}", texts)
        model = write_folder(folder / f"model-{tied}", request.param, **{TIED: tied})
        changes = {"methods": ("dense", "flap"), "sparsity": {"widths": "equal", "epochs": 1}, "device": "cpu"}
        study = from_dict(tiny_study.settings(str(model), texts, **changes))
        store = Store(folder / "cache")
        result = pipeline.run(study, store, tiny_study.silent)
        run = opening.open(result["run"], cache=store.root)
        outcome.append((result["perplexity"], Path(run.export(folder / f"out-{tied}", "flap")), model))
    return outcome


def test_perplexity_and_export_are_those_of_the_control(exports, tmp_path):
    (perplexity, folder, dense), (control_perplexity, control, control_dense) = exports
    assert perplexity == control_perplexity
    ids = torch.arange(3, 43).view(2, 20)
    loaded = [checkpoint.load_verified(path) for path in (folder, control)]
    for path in (folder, control):
        assert json.loads((path / "config.json").read_text())[TIED] is False
        padded.save_padded(path, tmp_path / path.name)
        loaded.append(loading.load_bare_model(str(tmp_path / path.name), "cpu", "float32"))
    with torch.inference_mode():
        logits = [model(ids).logits for model in loaded]
    head = load_file(dense / "model.safetensors")["lm_head.weight"]
    for model, answer in zip(loaded, logits, strict=True):
        assert torch.equal(model.lm_head.weight, head)
        torch.testing.assert_close(answer, logits[1], rtol=0, atol=1e-5)


def test_counts_are_those_of_the_control(exports):
    (_, folder, dense), (_, control, control_dense) = exports
    for path, other in ((folder, control), (dense, control_dense)):
        assert inspection.inspect(str(path)).parameters == inspection.inspect(str(other)).parameters
    assert dimensions.of_model(str(dense)) == dimensions.of_model(str(control_dense))
    stored = load_file(dense / "model.safetensors")
    assert inspection.inspect(str(dense)).parameters == sum(tensor.numel() for tensor in stored.values())
    rows = [line for line in (folder / "README.md").read_text().splitlines() if "| parameters |" in line]
    assert rows == [f"| parameters | {inspection.inspect(str(control)).parameters:,} |"]


@pytest.mark.parametrize("offload", [False, True])
@pytest.mark.parametrize("family", ["llama", "gemma", "gemma3", "mistral3"])
def test_the_head_of_the_file_is_used_in_every_family(family, offload, tmp_path):
    # a family that ties by default says nothing of it
    folder = write_folder(tmp_path, family, **{TIED: True if family == "llama" else None})
    tensors = load_file(folder / "model.safetensors")
    # wrappers store it behind a prefix
    head = next(tensor for name, tensor in tensors.items() if name.endswith("lm_head.weight"))
    model = loading.read_weights(folder, torch.device("cpu"), "float32", False, offload)
    assert model.config.tie_word_embeddings is False and torch.equal(model.lm_head.weight, head)
    assert identity.configuration(folder)[TIED] is False
    assert inspection.inspect(str(folder)).parameters == sum(tensor.numel() for tensor in tensors.values())


def test_an_equal_head_stays_tied_and_counts_once(tmp_path):
    folder = write_folder(tmp_path, "llama", **{TIED: True})
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    model = loading.read_weights(folder, torch.device("cpu"), "float32", False, False)
    assert model.config.tie_word_embeddings and model.lm_head.weight is model.model.embed_tokens.weight
    assert inspection.inspect(str(folder)).parameters == sum(weight.numel() for weight in model.parameters())
    assert dimensions.of_model(str(folder)).tied
    # the answer belongs to the bytes, not to the name: another head in the same file is seen
    tensors["lm_head.weight"][-1, -1] += 1
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    assert not dimensions.of_model(str(folder)).tied


def test_a_head_in_another_file_of_an_index_decides(tmp_path):
    folder = write_folder(tmp_path, "llama", **{TIED: True})
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    files = {name: f"{'b' if name.startswith('lm_head') else 'a'}.safetensors" for name in tensors}
    for file in ("a.safetensors", "b.safetensors"):
        part = {name: tensor for name, tensor in tensors.items() if files[name] == file}
        save_file(part, folder / file, {"format": "pt"})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
    model = loading.read_weights(folder, torch.device("cpu"), "float32", False, False)
    assert model.config.tie_word_embeddings is False
    assert torch.equal(model.lm_head.weight, tensors["lm_head.weight"])
    assert not dimensions.of_model(str(folder)).tied


def test_a_live_model_with_another_head_is_not_tied():
    model = tiny_decoder("mistral", **SIZES).model
    model.config.tie_word_embeddings = True
    assert Decoder.from_model(model).model.config.tie_word_embeddings is False
    tied = tiny_decoder("mistral", **SIZES, tie_word_embeddings=True).model
    assert Decoder.from_model(tied).model.config.tie_word_embeddings is True


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_configuration_leaves_out_of_tying_is_the_default_of_the_family(family):
    config = AutoConfig.for_model(family)
    values = {"model_type": family, "text_config": {}}
    assert bool(language_values(values).get(TIED)) == config.tie_word_embeddings


@pytest.mark.parametrize("field", ["dtype", "torch_dtype"])
def test_the_number_type_is_that_of_the_weights(field, tmp_path, monkeypatch):
    model = tiny_decoder("llama", **SIZES).model.bfloat16()
    model.save_pretrained(tmp_path)
    edit_config(tmp_path, **({"dtype": None} | {field: "float32"}))
    assert identity.number_type(tmp_path) == "bfloat16"
    assert loading.read_model(AutoModelForCausalLM, tmp_path, dtype="auto").dtype == torch.bfloat16
    monkeypatch.setattr(inputs.machine, "has_gpu", lambda: True)
    texts = tiny_study.write_texts(tmp_path / "texts")
    assert inputs.precision_of(from_dict(tiny_study.settings(str(tmp_path), texts))) == "bfloat16"
