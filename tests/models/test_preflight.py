"""What loading a model would refuse is refused by every command before anything is computed, in one sentence."""

import json

import pytest
import tiny_study
import torch
from safetensors.torch import load_file, save_file
from transformers import CONFIG_MAPPING
from transformers.utils import is_flash_attn_2_available

import gprune
from gprune.__main__ import main
from gprune.models import identity, inspection, offloading
from gprune.models.export import measurable
from gprune.models.families import FAMILIES, require_prunable
from gprune.models.loadable import attention_notice, require_loadable
from gprune.models.loading import load, read_weights
from gprune.system.errors import GpruneError, ModelError


def changed(folder, **values):
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))
    return folder


def rename(folder, new_name):
    weights = folder / "model.safetensors"
    save_file({new_name(name): tensor for name, tensor in load_file(weights).items()}, weights)


def add_tensor(folder, name, tensor):
    weights = folder / "model.safetensors"
    save_file(load_file(weights) | {name: tensor}, weights)


def drop_tensor(folder, name):
    weights = folder / "model.safetensors"
    save_file({key: tensor for key, tensor in load_file(weights).items() if key != name}, weights)


def drop_tie(folder):
    file = folder / "config.json"
    values = json.loads(file.read_text())
    del values["tie_word_embeddings"]
    file.write_text(json.dumps(values))


def replace_by_adapter(folder):
    for file in folder.iterdir():
        file.unlink()
    add_adapter(folder)


def add_adapter(folder):
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA", "base_model_name_or_path": "owner/base"}')


def quantize_to_bytes(folder):
    weights = folder / "model.safetensors"
    tensors = load_file(weights)
    name = "model.layers.1.mlp.up_proj.weight"
    save_file(tensors | {name: tensors[name].to(torch.float8_e4m3fn)}, weights)


REFUSED = {
    "compiled": (
        lambda folder: rename(folder, "_orig_mod.{}".format),
        r"the tensor names of the model .* have the prefix '_orig_mod\.', .*name\.replace\('_orig_mod\.', ''\)",
    ),
    "data parallel": (lambda folder: rename(folder, "module.{}".format), r"have the prefix 'module\.'"),
    "peft": (lambda folder: rename(folder, "base_model.model.{}".format), r"have the prefix 'base_model\.model\.'"),
    "inner wrappers": (
        lambda folder: rename(folder, lambda name: "module." + name.replace("layers.", "layers._orig_mod.")),
        r"have the prefix 'module\.' and '_orig_mod\.'",
    ),
    "unmerged": (
        lambda folder: add_tensor(folder, "model.layers.0.self_attn.q_proj.lora_A.weight", torch.ones(2, 2)),
        "is a PEFT adapter of another model: merge it first",
    ),
    "prefix in one layer": (
        lambda folder: rename(folder, lambda name: name.replace("model.layers.1", "module.model.layers.1")),
        r"have the prefix 'module\.'",
    ),
    "inside a wrapper": (
        lambda folder: rename(folder, "language_model.{}".format),
        r"have the prefix 'language_model\.'",
    ),
    "untied by default": (drop_tie, "has no lm_head; set tie_word_embeddings to true in config.json"),
    "biases denied": (
        lambda folder: add_tensor(folder, "model.layers.0.self_attn.q_proj.bias", torch.ones(16)),
        "its weights have biases of q_proj, k_proj, v_proj, o_proj, and attention_bias is False",
    ),
    "norm left over": (
        lambda folder: add_tensor(folder, "model.layers.0.self_attn.q_norm.weight", torch.ones(4)),
        r"its weights have model\.layers\.0\.self_attn\.q_norm\.weight, which LLaMA does not have",
    ),
    "norm missing": (
        lambda folder: drop_tensor(folder, "model.layers.1.post_attention_layernorm.weight"),
        r"its weights lack model\.layers\.1\.post_attention_layernorm\.weight, which LLaMA has",
    ),
    "final norm missing": (
        lambda folder: drop_tensor(folder, "model.norm.weight"),
        r"its weights lack model\.norm\.weight, which LLaMA has",
    ),
    "key heads": (lambda folder: changed(folder, num_key_value_heads=4), "layer 0 has 2 key/value groups"),
    "pad token of another type": (lambda folder: changed(folder, pad_token_id="2"), "is '2', which is no whole number"),
    "private attention": (
        lambda folder: changed(folder, _attn_implementation="flash_attention_2"),
        "insists on flash_attention_2: call the field attn_implementation",
    ),
    "untied without head": (
        lambda folder: changed(folder, tie_word_embeddings=False),
        "has no lm_head; set tie_word_embeddings to true in config.json if the head is tied",
    ),
    "adapter": (replace_by_adapter, r"is a PEFT adapter of owner/base: merge it first \(`merge_and_unload`\) or name"),
    "adapter beside a model": (add_adapter, "is a PEFT adapter of owner/base"),
    "pad token": (lambda folder: changed(folder, pad_token_id=320), "pad_token_id of .* is 320, but it has 320 emb"),
    "gptq": (
        lambda folder: changed(folder, quantization_config={"quant_method": "gptq", "bits": 4}),
        r"the weights of the model .* are quantized \(gptq\), which is not supported: use the unquantized checkpoint",
    ),
    "awq": (
        lambda folder: changed(folder, quantization_config={"quant_method": "awq"}),
        r"are quantized \(awq\)",
    ),
    "bitsandbytes": (
        lambda folder: changed(folder, quantization_config={"load_in_8bit": True}),
        r"are quantized \(bitsandbytes\)",
    ),
    "compressed-tensors": (
        lambda folder: changed(folder, compression_config={"quant_method": "compressed-tensors"}),
        r"are quantized \(compressed-tensors\)",
    ),
    "fp8": (lambda folder: changed(folder, quantization_config={"quant_method": "fp8"}), r"are quantized \(fp8\)"),
    "bytes": (quantize_to_bytes, r"are quantized \(model\.layers\.1\.mlp\.up_proj\.weight\)"),
    "packed": (
        lambda folder: add_tensor(folder, "model.layers.0.mlp.up_proj.qweight", torch.ones(2, dtype=torch.int32)),
        r"are quantized \(model\.layers\.0\.mlp\.up_proj\.qweight\)",
    ),
    "classifier": (
        lambda folder: changed(folder, architectures=["LlamaForSequenceClassification"]),
        r"is a classifier \(LlamaForSequenceClassification\) and predicts no tokens",
    ),
    "score": (
        lambda folder: add_tensor(folder, "score.weight", torch.ones(2, 16)),
        r"is a classifier \(score\.weight\)",
    ),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_a_folder_that_cannot_be_loaded_is_refused_before_anything_is_computed(fault, tmp_path, capsys, monkeypatch):
    damage, words = REFUSED[fault]
    values = tiny_study.made(tmp_path)
    folder, cache = tmp_path / "model", tmp_path / "cache"
    damage(folder)
    study = tmp_path / "study.json"
    study.write_text(json.dumps(values))
    monkeypatch.setenv("GPRUNE_CACHE", str(cache))
    named = ["--model", str(folder), "--primary", values["primary"], "--auxiliary", values["auxiliary"]]
    capsys.readouterr()
    sentences = set()
    for arguments in (
        ["study", *named],
        ["study", *named, "--dry-run"],
        ["run", str(study), "--dry-run"],
        ["run", str(study)],
    ):
        assert main(arguments) == 2
        sentences |= {capsys.readouterr().err.strip().removeprefix("error: ")}
    for call in (
        lambda: gprune.run(values, cache=cache, progress=False),
        lambda: load(str(folder), device="cpu"),
        lambda: require_loadable(folder),
        lambda: measurable.load_model(str(folder), "cpu", "float32"),
        lambda: measurable.require_known(str(folder)),
    ):
        with pytest.raises(ModelError, match=words) as error:
            call()
        sentences |= {str(error.value)}
    (sentence,) = sentences
    assert not [file for file in cache.rglob("*") if file.suffix in (".npz", ".safetensors")]
    assert not list(cache.glob("runs/*"))
    try:
        seen = inspection.inspect(str(folder))
        assert seen.prunable == f"nothing: {sentence}"
        assert seen.loads.startswith("not")
    except ModelError as error:
        assert str(error) == sentence


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"pad_token_id": 319},
        {"pad_token_id": -1},
        {"eos_token_id": [1, 2]},
        {"quantization_config": None},
        {"architectures": None},
    ],
)
def test_what_loads_today_is_not_refused(change, tmp_path):
    tiny_study.made(tmp_path)
    folder = changed(tmp_path / "model", **change)
    require_loadable(folder)
    assert load(str(folder), device="cpu").shape.layers == 2


def test_a_model_saved_without_its_head_has_the_names_of_its_family(tmp_path):
    tiny_study.made(tmp_path)
    folder = tmp_path / "model"
    rename(folder, lambda name: name.removeprefix("model."))
    require_loadable(folder)
    assert load(str(folder), device="cpu").shape.layers == 2


def test_a_missing_head_that_the_configuration_does_not_mention_is_named_when_it_is_loaded(tmp_path):
    tiny_study.made(tmp_path)
    file = tmp_path / "model" / "config.json"
    values = json.loads(file.read_text())
    del values["tie_word_embeddings"]
    file.write_text(json.dumps(values))
    with pytest.raises(ModelError, match="has no lm_head; set tie_word_embeddings to true"):
        load(str(tmp_path / "model"), device="cpu")


@pytest.mark.skipif(is_flash_attn_2_available(), reason="flash-attention is installed")
def test_attention_of_the_publishers_machine_gives_way_to_sdpa_with_a_notice(tmp_path, capsys):
    values = tiny_study.made(tmp_path)
    values["methods"] = ["dense"]
    folder = tmp_path / "model"
    assert attention_notice(folder) == ""
    ids = torch.arange(8)[None]
    logits = load(str(folder), device="cpu").model(ids).logits
    changed(folder, attn_implementation="flash_attention_2")
    notice = "config.json asks for flash_attention_2, which is not installed here: the model runs with sdpa"
    decoder = load(str(folder), device="cpu")
    assert decoder.model.config._attn_implementation == "sdpa"
    assert torch.equal(decoder.model(ids).logits, logits)
    device = torch.device("cpu")
    waiting = read_weights(folder, device, "float32", False, offload=True)
    assert torch.equal(waiting(ids).logits, logits) and offloading.present(waiting.model.layers[0].mlp.up_proj)
    assert torch.equal(measurable.load_model(str(folder), "cpu", "float32")(ids).logits, logits)
    assert measurable.load_model(f"random:{folder}", "cpu", "float32").config._attn_implementation == "sdpa"
    assert notice in inspection.inspect(str(folder)).loads
    study = tmp_path / "study.json"
    study.write_text(json.dumps(values))
    assert main(["run", str(study), "--cache", str(tmp_path / "cache"), "--until", "positions"]) == 0
    assert notice in capsys.readouterr().err


def test_eager_attention_stays_as_it_is(tmp_path):
    tiny_study.made(tmp_path)
    folder = changed(tmp_path / "model", attn_implementation="eager")
    assert load(str(folder), device="cpu").model.config._attn_implementation == "eager" and not attention_notice(folder)


@pytest.mark.parametrize(
    ("model_type", "reason"),
    [
        ("gpt_oss", r" \(mixtures of experts are not\)"),
        ("qwen3_next", r" \(layers of linear attention, of a state space or of a recurrence are not\)"),
        ("falcon_mamba", r" \(layers of linear attention, of a state space or of a recurrence are not\)"),
        ("gpt2", r" \(FFNs without a gate are not\)"),
        ("qwen3_vl", ""),
        ("gemma3n", ""),
    ],
)
def test_a_family_is_refused_for_its_true_reason(model_type, reason):
    with pytest.raises(GpruneError, match=f"is of model type '{model_type}', which cannot be pruned here{reason}: "):
        require_prunable({"model_type": model_type}, "the model")


def test_an_adapter_that_names_no_base_is_refused_as_one(tmp_path):
    (tmp_path / "adapter_config.json").write_text("[]")
    with pytest.raises(ModelError, match="is a PEFT adapter of another model"):
        identity.configuration(tmp_path)


@pytest.mark.parametrize("key", ["quantization_config", "architectures", "attn_implementation", "pad_token_id"])
@pytest.mark.parametrize("value", ["word", 3, [[1]], {"a": [1]}])
def test_values_of_another_type_are_no_defect_of_ours(key, value, tmp_path):
    tiny_study.made(tmp_path)
    folder = changed(tmp_path / "model", **{key: value})
    attention_notice(folder)
    try:
        require_loadable(folder)
        load(str(folder), device="cpu")
    except GpruneError:
        pass


def test_no_family_of_the_library_is_taken_for_a_misspelt_one():
    for model_type in CONFIG_MAPPING.keys() - FAMILIES.keys():
        with pytest.raises(ModelError) as error:
            require_prunable({"model_type": model_type}, "the model")
        assert "did you mean" not in str(error.value)


def test_a_text_of_the_model_starts_from_a_token_that_has_an_embedding(tmp_path):
    from gprune.pruning.calibration.sampling import _start

    tiny_study.made(tmp_path)
    decoder = load(str(changed(tmp_path / "model", bos_token_id=320, eos_token_id=[1, 2])), device="cpu")
    decoder.tokenizer.bos_token = decoder.tokenizer.eos_token = None
    assert _start(decoder, "self:")[0] == 1
