"""A pruned model in memory is copied, adapted, trained and saved as any model, and loads again as it was."""

import copy
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from pruned_folder import byte_tokenizer, masks_of, small_decoder
from safetensors.torch import save_file

import gprune
from gprune.models.export import checkpoint, pruning_file
from gprune.system.errors import SettingsError

pytest.importorskip("peft")

PROGRAM = """
import json, sys
from importlib.util import find_spec
trusting = sys.argv[1] == "elsewhere"
assert (find_spec("gprune") is None) == trusting
if not trusting:
    import gprune
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
report = {}
for folder in sys.argv[2:]:
    trust = {"trust_remote_code": True} if trusting else {}
    model = AutoModelForCausalLM.from_pretrained(folder, **trust).eval()
    known = load_file(folder + "/known.safetensors")
    with torch.inference_mode():
        away = model(known["ids"]).logits - known["logits"]
    report[folder] = [float(away.abs().max() / known["logits"].abs().max()), type(model).__name__]
print(json.dumps(report))
"""
IDS = torch.randint(3, 300, (2, 8), generator=torch.Generator().manual_seed(2))


def pruned(family="llama", dense=None):
    """A model as `gprune.prune` gives it, of unequal layers, whose dense weights lie in a folder if asked."""
    decoder = small_decoder(family, heads=8, kv_heads=4)
    if dense is not None:
        decoder.model.save_pretrained(dense)
        byte_tokenizer().save_pretrained(dense)
        decoder.model.name_or_path = str(dense)
    masks = masks_of(decoder, [3, 1, 2], [2, 13, 6])
    return gprune.prune(decoder.model, masks).requires_grad_(True), decoder, masks


def adapted(model):
    """With LoRA on every linear map, a step of training, and merged again."""
    from peft import LoraConfig, get_peft_model

    lora = get_peft_model(model, LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False))
    stepped(lora)
    return lora.merge_and_unload()


def stepped(model):
    """After one step of plain training."""
    optimizer = torch.optim.SGD([parameter for parameter in model.parameters() if parameter.requires_grad], 0.05)
    model(IDS, labels=IDS).loss.backward()
    optimizer.step()
    return model


def trained(model, folder):
    """After one step of transformers' own Trainer, which has saved it."""
    from transformers import Trainer, TrainingArguments

    settings = {"max_steps": 1, "per_device_train_batch_size": 2, "use_cpu": True, "report_to": "none"}
    settings |= {"learning_rate": 0.01, "save_strategy": "no", "disable_tqdm": True}
    rows = [{"input_ids": row, "labels": row} for row in IDS]
    trainer = Trainer(model, TrainingArguments(str(folder / "trainer"), **settings), train_dataset=rows)
    trainer.train()
    trainer.save_model(str(folder))
    return model


def build(folder):
    """One model a way, saved with what it answers."""
    models = {}
    for name, family in (("copied", "glm"), ("adapted", "llama"), ("trained", "qwen2"), ("saved", "mistral")):
        model = pruned(family)[0]
        if name == "copied":
            models[name] = copy.deepcopy(model)
            stepped(model)
        if name == "adapted":
            models[name] = adapted(model)
        if name == "trained":
            models[name] = trained(model, folder / name)
        if name == "saved":
            models[name] = stepped(model)
            gprune.save(model, folder / name)
        if name in ("copied", "adapted"):
            models[name].save_pretrained(folder / name)
    for name, model in models.items():
        with torch.inference_mode():
            reference = {"ids": IDS, "logits": model.eval()(IDS).logits.contiguous()}
        save_file(reference, folder / name / "known.safetensors")
    return list(models)


@pytest.fixture(scope="module")
def ways(built_once):
    return built_once("natural_way", build)


@pytest.mark.process
@pytest.mark.long
@pytest.mark.parametrize("where", ["elsewhere", "here"])
def test_copied_adapted_and_trained_models_load_with_equal_logits(where, ways, project):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HF_"))}
    environment |= {"HF_HOME": str(ways / f"home_{where}"), "HF_HUB_OFFLINE": "1"}
    folders = [str(ways / name) for name in ("copied", "adapted", "trained", "saved")]
    isolated = ["-I"] if where == "elsewhere" else []
    done = subprocess.run(
        [sys.executable, *isolated, "-c", PROGRAM, where, *folders],
        cwd=ways if where == "elsewhere" else project,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    report = {Path(folder).name: result for folder, result in json.loads(done.stdout).items()}
    assert len(report) == 4 and max(difference for difference, _ in report.values()) <= 1e-5
    assert report["adapted"][1] == "GpruneLlamaForCausalLM" and report["copied"][1] == "GpruneGlmForCausalLM"


def test_what_prune_gave_is_saved_with_its_kept_units(tmp_path):
    model, _, masks = pruned(dense=tmp_path / "dense")
    folder = gprune.save(copy.deepcopy(model), tmp_path / "out")
    plan = pruning_file.read_record(folder)
    assert (plan.source, plan.trained) == (str(tmp_path / "dense"), False)
    assert (plan.pruned.masks.ffn == masks.ffn).all() and (plan.pruned.masks.heads == masks.heads).all()
    # the tokenizer came along from the dense model's folder
    assert (folder / "tokenizer.json").is_file() and (folder / "README.md").is_file()


def test_a_trained_model_is_marked_as_trained(tmp_path):
    model, _, _ = pruned(dense=tmp_path / "dense")
    training = stepped(model).train()
    folder = gprune.save(training, tmp_path / "out")
    assert training.training and pruning_file.read_record(folder).trained
    assert "trained after the cut | yes |" in (folder / "README.md").read_text()
    # what was loaded from there and trained again still knows what was pruned
    loaded = checkpoint.load_verified(folder).requires_grad_(True)
    further = gprune.save(stepped(loaded), tmp_path / "further")
    assert pruning_file.read_record(further).trained


def test_what_cannot_be_saved_is_told(tmp_path):
    from peft import LoraConfig, get_peft_model

    model, decoder, _ = pruned()
    with pytest.raises(SettingsError, match=r"does not say what was pruned of it: save one that run\.model"):
        gprune.save(decoder.model, tmp_path / "out")
    lora = get_peft_model(model, LoraConfig(r=2, target_modules="all-linear"))
    with pytest.raises(SettingsError, match=r"adapters beside its weights: save model\.merge_and_unload"):
        gprune.save(lora, tmp_path / "out")
    assert not (tmp_path / "out").exists()
