"""What loading a model would refuse is refused by every command before anything is computed, in one sentence."""

import json

import pytest
import tiny_study
import torch
from safetensors.torch import load_file, save_file
from transformers.utils import is_flash_attn_2_available

import gprune
from gprune.__main__ import main
from gprune.models import identity, inspection, offloading
from gprune.models.export import measurable
from gprune.models.families import require_prunable
from gprune.models.loadable import attention_notice, require_loadable
from gprune.models.loading import load, read_weights
from gprune.system.errors import GpruneError, ModelError


def changed(folder, **values):
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))
    return folder


def generating(folder, **values):
    (folder / "generation_config.json").write_text(json.dumps(values))


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


def replace_by(folder, *names):
    for file in folder.iterdir():
        file.unlink()
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("{}")


def replace_by_adapter(folder):
    replace_by(folder)
    add_adapter(folder)


def add_adapter(folder):
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA", "base_model_name_or_path": "owner/base"}')


def quantize_to_bytes(folder):
    weights = folder / "model.safetensors"
    tensors = load_file(weights)
    name = "model.layers.1.mlp.up_proj.weight"
    save_file(tensors | {name: tensors[name].to(torch.float8_e4m3fn)}, weights)


def labelled(folder, name):
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name}))


REFUSED = {
    "compiled": (
        lambda folder: rename(folder, "_orig_mod.{}".format),
        r"the tensor names of the model .* have the prefix '_orig_mod\.', .*name\.replace\('_orig_mod\.', ''\)",
    ),
    "data parallel": (lambda folder: rename(folder, "module.{}".format), r"have the prefix 'module\.'"),
    "peft": (lambda folder: rename(folder, "base_model.model.{}".format), r"have the prefix 'base_model\.model\.'"),
    "unmerged": (
        lambda folder: add_tensor(folder, "model.layers.0.self_attn.q_proj.lora_A.weight", torch.ones(2, 2)),
        "is a PEFT adapter of another model: merge it first",
    ),
    "inside a wrapper": (
        lambda folder: rename(folder, "language_model.{}".format),
        r"have the prefix 'language_model\.'",
    ),
    "untied by default": (drop_tie, "has no lm_head; set tie_word_embeddings to true in config.json"),
    "biases denied": (
        lambda folder: add_tensor(folder, "model.layers.0.self_attn.q_proj.bias", torch.ones(16)),
        r"its weights have model\.layers\.0\.self_attn\.q_proj\.bias, and attention_bias is False",
    ),
    "biases of a family that always has them": (
        lambda folder: changed(folder, model_type="qwen2"),
        r"its weights lack model\.layers\.0\.self_attn\.k_proj\.bias, which Qwen2 has",
    ),
    "map missing": (
        lambda folder: drop_tensor(folder, "model.layers.1.self_attn.v_proj.weight"),
        r"its weights lack model\.layers\.1\.self_attn\.v_proj\.weight, which LLaMA has",
    ),
    "value head": (
        lambda folder: add_tensor(folder, "v_head.summary.weight", torch.ones(1, 16)),
        r"its weights have v_head\.summary\.weight, which LLaMA does not have",
    ),
    "unmerged base layers": (
        lambda folder: rename(folder, lambda name: name.replace("q_proj", "q_proj.base_layer")),
        "is a PEFT adapter of another model: merge it first .* or name the merged folder, which has neither",
    ),
    "norm left over": (
        lambda folder: add_tensor(folder, "model.layers.0.self_attn.q_norm.weight", torch.ones(4)),
        r"its weights have model\.layers\.0\.self_attn\.q_norm\.weight, which LLaMA does not have",
    ),
    "final norm missing": (
        lambda folder: drop_tensor(folder, "model.norm.weight"),
        r"its weights lack model\.norm\.weight, which LLaMA has",
    ),
    "pad token of another type": (lambda folder: changed(folder, pad_token_id="2"), "is '2', which is no whole number"),
    "number type of another spelling": (
        lambda folder: changed(folder, dtype="bf16"),
        "dtype of the model .* is 'bf16', which torch lacks: write bfloat16, float16 or float32",
    ),
    "experts": (
        lambda folder: changed(folder, experts_implementation="grouped_mm"),
        "experts_implementation of the model .* is 'grouped_mm', but it has no experts: take it out",
    ),
    "unknown experts": (
        lambda folder: changed(folder, experts_implementation="sonic"),
        "experts_implementation of the model .* is 'sonic', but it has no experts: take it out",
    ),
    "compilation": (
        lambda folder: generating(folder, compile_config={"mode": "max-autotune"}),
        "compile_config in generation_config.json of the model .* cannot be read by transformers: take it out",
    ),
    "tokenizer of BERT": (
        lambda folder: labelled(folder, "BertTokenizerFast"),
        'cannot be read as BertTokenizerFast, which needs "WordPiece" in .*: set tokenizer_class in tokenizer_conf',
    ),
    "tokenizer of Gemma": (lambda folder: labelled(folder, "GemmaTokenizer"), 'as GemmaTokenizer, which needs "<unk>'),
    "private attention": (
        lambda folder: changed(folder, _attn_implementation="flash_attention_2"),
        "insists on flash_attention_2: call the field attn_implementation",
    ),
    "untied without head": (
        lambda folder: changed(folder, tie_word_embeddings=False),
        "has no lm_head; set tie_word_embeddings to true in config.json if the head is tied",
    ),
    "gguf": (
        lambda folder: replace_by(folder, "model-Q4_K_M.gguf"),
        "holds a GGUF file, which is not read: choose the folder of safetensors that model-Q4_K_M.gguf was made from",
    ),
    "diffusers": (
        lambda folder: replace_by(folder, "model_index.json", "unet/config.json"),
        "is a diffusers pipeline, which predicts no tokens: choose a causal language model",
    ),
    "format of Meta": (
        lambda folder: replace_by(folder, "consolidated.00.pth", "params.json"),
        "is in the own format of Meta or Mistral: choose the copy that transformers reads, or convert it",
    ),
    "parameters of Meta": (lambda folder: replace_by(folder, "params.json"), "is in the own format of Meta or Mistral"),
    "checkpoints": (
        lambda folder: replace_by(folder, "checkpoint-100/adapter_config.json", "checkpoint-50/config.json"),
        "holds checkpoints of a training: choose one of them, such as checkpoint-100",
    ),
    "trainer state": (
        lambda folder: replace_by(folder, "trainer_state.json", "optimizer.pt"),
        "is a training state without a model: use save_pretrained",
    ),
    "adapter": (replace_by_adapter, r"is a PEFT adapter of owner/base: merge it first \(`merge_and_unload`\) or name"),
    "adapter beside a model": (add_adapter, "is a PEFT adapter of owner/base"),
    "pad token": (lambda folder: changed(folder, pad_token_id=320), "pad_token_id in .* is 320, but it has 320 emb"),
    "end beyond": (
        lambda folder: changed(folder, eos_token_id=[1, 400]),
        "eos_token_id in config.json of the model .* is 400, but it has 320 embeddings: set it to null",
    ),
    "gptq": (
        lambda folder: changed(folder, quantization_config={"quant_method": "gptq", "bits": 4}),
        r"the weights of the model .* are quantized \(gptq\), which is not supported: use the unquantized checkpoint",
    ),
    "compressed-tensors": (
        lambda folder: changed(folder, compression_config={"quant_method": "compressed-tensors"}),
        r"are quantized \(compressed-tensors\)",
    ),
    "mlx": (lambda folder: changed(folder, quantization={"bits": 4, "group_size": 64}), r"are quantized \(MLX\)"),
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
def test_a_folder_that_cannot_be_loaded_is_refused_in_one_sentence(fault, tmp_path):
    damage, words = REFUSED[fault]
    tiny_study.made(tmp_path)
    damage(tmp_path / "model")
    with pytest.raises(ModelError, match=words):
        require_loadable(tmp_path / "model")


@pytest.mark.parametrize("fault", ["compiled", "tokenizer of BERT", "gguf", "classifier"])
def test_every_command_refuses_such_a_folder_before_anything_is_computed(fault, tmp_path, capsys, monkeypatch):
    damage, words = REFUSED[fault]
    values = tiny_study.made(tmp_path)
    folder, cache = tmp_path / "model", tmp_path / "cache"
    damage(folder)
    study = tmp_path / "study.json"
    study.write_text(json.dumps(values))
    monkeypatch.setenv("GPRUNE_CACHE", str(cache))
    options = ["--model", str(folder), "--primary", values["primary"], "--auxiliary", values["auxiliary"]]
    capsys.readouterr()
    sentences = set()
    for arguments in (
        ["study", *options],
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
        inspected = inspection.inspect(str(folder))
        assert inspected.prunable == f"nothing: {sentence}"
        assert inspected.loads.startswith("not")
    except ModelError as error:
        assert str(error) == sentence


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"pad_token_id": 319},
        {"pad_token_id": -1},
        {"eos_token_id": [1, 2]},
        {"experts_implementation": "batched_mm"},
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


@pytest.mark.skipif(is_flash_attn_2_available(), reason="flash-attention is installed")
def test_attention_of_the_publishers_machine_gives_way_to_sdpa_with_a_notice(tmp_path, capsys):
    values = tiny_study.made(tmp_path)
    values["methods"] = ["dense"]
    folder = tmp_path / "model"
    assert attention_notice(folder) == ""
    ids = torch.arange(8)[None]
    logits = load(str(folder), device="cpu").model(ids).logits
    changed(folder, attn_implementation="flash_attention_2")
    notice = "config.json asks for flash_attention_2, which cannot run here: the model runs with sdpa"
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
    assert main(["run", str(study), "--cache", str(tmp_path / "cache"), "--until", "drift"]) == 0
    assert notice in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="flex_attention runs on a GPU")
def test_attention_without_a_backward_pass_on_a_cpu_gives_way_to_sdpa(tmp_path):
    tiny_study.made(tmp_path)
    folder = changed(tmp_path / "model", attn_implementation="flex_attention")
    model = load(str(folder), device="cpu").model.requires_grad_(True)
    model(torch.arange(8)[None]).logits.sum().backward()
    assert model.model.layers[0].mlp.up_proj.weight.grad.abs().sum() > 0
    assert attention_notice(folder).startswith("config.json asks for flex_attention, which cannot run here")


def test_a_private_attention_of_the_language_model_alone_gives_way_too(tmp_path):
    tiny_study.made(tmp_path)
    changed(tmp_path / "model", text_config={"_attn_implementation": "flash_attention_2"})
    require_loadable(tmp_path / "model")
    assert "asks for flash_attention_2, which cannot run here" in attention_notice(tmp_path / "model")


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
    for content in ("[]", '{"base_model_name_or_path": null}'):
        (tmp_path / "adapter_config.json").write_text(content)
        with pytest.raises(ModelError, match="is a PEFT adapter of another model"):
            identity.configuration(tmp_path)


def test_a_text_of_the_model_starts_from_a_token_that_has_an_embedding(tmp_path):
    from gprune.pruning.calibration.sampling import _start

    tiny_study.made(tmp_path)
    decoder = load(str(changed(tmp_path / "model", eos_token_id=[1, 2])), device="cpu")
    decoder.config.bos_token_id = 320
    decoder.tokenizer.bos_token = decoder.tokenizer.eos_token = None
    assert _start(decoder, "self:")[0] == 1
