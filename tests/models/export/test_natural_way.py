"""A pruned model in memory is copied, adapted, trained and saved as any model, and loads again as it was."""

import copy

import pytest
import torch
from pruned_folder import byte_tokenizer, masks_of, small_decoder
from transformers import AutoModelForCausalLM

import gprune
from gprune.models.export import checkpoint, model_card
from gprune.system.errors import SettingsError

pytest.importorskip("peft")

IDS = torch.randint(3, 300, (2, 8), generator=torch.Generator().manual_seed(2))


def pruned(family="llama", dense=None):
    """Return a model of `gprune.prune` with unequal layers; save its dense weights in the folder `dense`, if any."""
    decoder = small_decoder(family, heads=8, kv_heads=4)
    if dense is not None:
        decoder.model.save_pretrained(dense)
        byte_tokenizer().save_pretrained(dense)
        decoder.model.name_or_path = str(dense)
    masks = masks_of(decoder, [3, 1, 2], [2, 13, 6])
    return gprune.prune(decoder.model, masks).requires_grad_(True), decoder, masks


def adapted(model):
    """Train LoRA on every linear map for a step, and merge it."""
    from peft import LoraConfig, get_peft_model

    lora = get_peft_model(model, LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False))
    stepped(lora)
    return lora.merge_and_unload()


def stepped(model):
    """Train the model for one step, and return it."""
    optimizer = torch.optim.SGD([parameter for parameter in model.parameters() if parameter.requires_grad], 0.05)
    model(IDS, labels=IDS).loss.backward()
    optimizer.step()
    return model


def trained(model, folder):
    """Train the model for one step with transformers' Trainer, and save it."""
    from transformers import Trainer, TrainingArguments

    settings = {"max_steps": 1, "per_device_train_batch_size": 2, "use_cpu": True, "report_to": "none"}
    settings |= {"learning_rate": 0.01, "save_strategy": "no", "disable_tqdm": True}
    rows = [{"input_ids": row, "labels": row} for row in IDS]
    trainer = Trainer(model, TrainingArguments(str(folder / "trainer"), **settings), train_dataset=rows)
    trainer.train()
    trainer.save_model(str(folder))
    return model


def copied(model, folder):
    copy_of_model = copy.deepcopy(model)
    stepped(model)
    copy_of_model.save_pretrained(folder)
    return copy_of_model


def adapted_and_saved(model, folder):
    merged = adapted(model)
    merged.save_pretrained(folder)
    return merged


def stepped_and_saved(model, folder):
    gprune.save(stepped(model), folder)
    return model


WAYS = {copied: "glm", adapted_and_saved: "llama", trained: "qwen2", stepped_and_saved: "mistral"}
CLASSES = {"glm": "Glm", "llama": "Llama", "qwen2": "Qwen2", "mistral": "Mistral"}


@pytest.mark.slow
@pytest.mark.parametrize("change", WAYS, ids=lambda change: change.__name__)
def test_copied_adapted_and_trained_models_load_with_equal_logits(change, tmp_path):
    model, _, _ = pruned(WAYS[change])
    model = change(model, tmp_path / "out").eval()
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    name = f"Gprune{CLASSES[WAYS[change]]}ForCausalLM"
    assert type(loaded).__name__ == name
    # the folder brings its code, for machines without this project
    assert loaded.config.auto_map["AutoModelForCausalLM"] == f"modeling_gprune.{name}"
    assert (tmp_path / "out" / "modeling_gprune.py").is_file()
    with torch.inference_mode():
        expected = model(IDS).logits
        assert float((loaded(IDS).logits - expected).abs().max()) <= 1e-5 * float(expected.abs().max())


def test_what_prune_gave_is_saved_with_its_kept_units(tmp_path):
    model, _, masks = pruned(dense=tmp_path / "dense")
    folder = gprune.save(copy.deepcopy(model), tmp_path / "out")
    record = model_card.read_record(folder)
    assert (record.source, record.trained) == (str(tmp_path / "dense"), False)
    assert (record.pruned.masks.ffn == masks.ffn).all() and (record.pruned.masks.heads == masks.heads).all()
    # the tokenizer came along from the dense model's folder
    assert (folder / "tokenizer.json").is_file() and (folder / "README.md").is_file()


def test_a_trained_model_is_marked_as_trained(tmp_path):
    model, _, _ = pruned(dense=tmp_path / "dense")
    training = stepped(model).train()
    folder = gprune.save(training, tmp_path / "out")
    assert training.training and model_card.read_record(folder).trained
    assert "trained after pruning | yes |" in (folder / "README.md").read_text()
    # what was loaded from there and trained again still knows what was pruned
    loaded = checkpoint.load_verified(folder).requires_grad_(True)
    further = gprune.save(stepped(loaded), tmp_path / "further")
    assert model_card.read_record(further).trained


def test_what_cannot_be_saved_is_told(tmp_path):
    from peft import LoraConfig, get_peft_model

    model, decoder, _ = pruned()
    with pytest.raises(SettingsError, match=r"has no record of its pruning: save one from run\.model"):
        gprune.save(decoder.model, tmp_path / "out")
    lora = get_peft_model(model, LoraConfig(r=2, target_modules="all-linear"))
    with pytest.raises(SettingsError, match=r"unmerged adapters: save model\.merge_and_unload"):
        gprune.save(lora, tmp_path / "out")
    assert not (tmp_path / "out").exists()
