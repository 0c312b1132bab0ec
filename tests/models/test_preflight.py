"""What loading a model would refuse is refused by every command before anything is computed, in one sentence."""

import json

import pytest
import tiny_study
import torch
from safetensors.torch import load_file, save_file
from transformers.utils import is_flash_attn_2_available

import gprune
from gprune.__main__ import main
from gprune.models import devices, identity, inspection, loading
from gprune.models.families import require_prunable
from gprune.models.loadable import attention_notice, require_loadable
from gprune.models.loading import load, read_weights
from gprune.system.errors import GpruneError, ModelError


def edit_json(file, **values):
    content = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(content | values))


def edit_config(folder, **values):
    edit_json(folder / "config.json", **values)
    return folder


def edit_weights(folder, edit):
    weights = folder / "model.safetensors"
    save_file(edit(load_file(weights)), weights)


def config(**values):
    return lambda folder: edit_config(folder, **values)


def generation(**values):
    return lambda folder: edit_json(folder / "generation_config.json", **values)


def tokenizer_class(name):
    return lambda folder: edit_json(folder / "tokenizer_config.json", tokenizer_class=name)


def renamed(new_name):
    return lambda folder: edit_weights(folder, lambda tensors: {new_name(name): t for name, t in tensors.items()})


def extra_tensor(name, *shape, dtype=torch.float32):
    return lambda folder: edit_weights(folder, lambda tensors: tensors | {name: torch.ones(shape, dtype=dtype)})


def missing_tensor(name):
    return lambda folder: edit_weights(folder, lambda tensors: {key: t for key, t in tensors.items() if key != name})


def float8_tensor(name):
    return lambda folder: edit_weights(folder, lambda tensors: tensors | {name: tensors[name].to(torch.float8_e4m3fn)})


def other_files(*names):
    """Replace all files of the folder."""

    def replace_files(folder):
        for file in folder.iterdir():
            file.unlink()
        for name in names:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text("{}")

    return replace_files


def drop_tie(folder):
    file = folder / "config.json"
    values = json.loads(file.read_text())
    del values["tie_word_embeddings"]
    file.write_text(json.dumps(values))


def add_adapter(folder):
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA", "base_model_name_or_path": "owner/base"}')


def replace_by_adapter(folder):
    other_files()(folder)
    add_adapter(folder)


LAYER, OF_META = "model.layers.0.", "is in Meta's or Mistral's own format: choose the copy that transformers reads"
REFUSED = {
    "compiled": (
        renamed("_orig_mod.{}".format),
        r"the tensor names of the model .* have the prefix '_orig_mod\.', .*name\.replace\('_orig_mod\.', ''\)",
    ),
    "data parallel": (renamed("module.{}".format), r"have the prefix 'module\.'"),
    "peft": (renamed("base_model.model.{}".format), r"have the prefix 'base_model\.model\.'"),
    "inside a wrapper": (renamed("language_model.{}".format), r"have the prefix 'language_model\.'"),
    "unmerged": (
        extra_tensor(f"{LAYER}self_attn.q_proj.lora_A.weight", 2, 2),
        "is a PEFT adapter of another model: merge it first .* or name the merged folder, which has neither",
    ),
    "unmerged base layers": (
        renamed(lambda name: name.replace("q_proj", "q_proj.base_layer")),
        "is a PEFT adapter of another model",
    ),
    "untied by default": (drop_tie, "has no lm_head: set tie_word_embeddings to true in config.json"),
    "untied without head": (config(tie_word_embeddings=False), "true in config.json if the head is tied"),
    "biases denied": (
        extra_tensor(f"{LAYER}self_attn.q_proj.bias", 16),
        r"its weights have model\.layers\.0\.self_attn\.q_proj\.bias, and attention_bias is False",
    ),
    "biases of a family that always has them": (
        config(model_type="qwen2"),
        r"its weights lack model\.layers\.0\.self_attn\.k_proj\.bias, which Qwen2 has",
    ),
    "map missing": (
        missing_tensor(f"{LAYER}self_attn.v_proj.weight"),
        r"its weights lack model\.layers\.0\.self_attn\.v_proj\.weight, which LLaMA has",
    ),
    "final norm missing": (missing_tensor("model.norm.weight"), r"weights lack model\.norm\.weight, which LLaMA has"),
    "value head": (
        extra_tensor("v_head.summary.weight", 1, 16),
        r"its weights have v_head\.summary\.weight, which LLaMA does not have",
    ),
    "norm left over": (
        extra_tensor(f"{LAYER}self_attn.q_norm.weight", 4),
        r"its weights have model\.layers\.0\.self_attn\.q_norm\.weight, which LLaMA does not have",
    ),
    "number type of another spelling": (
        config(dtype="bf16"),
        "dtype of the model .* is 'bf16', which torch lacks: use bfloat16, float16 or float32",
    ),
    "experts": (
        config(experts_implementation="grouped_mm"),
        "experts_implementation of the model .* is 'grouped_mm', but it has no experts: remove it",
    ),
    "compilation": (
        generation(compile_config={"mode": "max-autotune"}),
        "compile_config in generation_config.json of the model .* cannot be read by transformers: remove it",
    ),
    "tokenizer of BERT": (
        tokenizer_class("BertTokenizerFast"),
        'cannot be read as BertTokenizerFast, which needs "WordPiece" in .*: set tokenizer_class in tokenizer_conf',
    ),
    "tokenizer of Gemma": (tokenizer_class("GemmaTokenizer"), 'as GemmaTokenizer, which needs "<unk>'),
    "private attention": (
        config(_attn_implementation="flash_attention_2"),
        "has the field _attn_implementation with 'flash_attention_2': rename it attn_implementation",
    ),
    "gguf": (
        other_files("model-Q4_K_M.gguf"),
        "holds a GGUF file, which is not read: choose the folder of safetensors that model-Q4_K_M.gguf was made from",
    ),
    "diffusers": (
        other_files("model_index.json", "unet/config.json"),
        "is a diffusers pipeline, which predicts no tokens: choose a causal language model",
    ),
    "format of Meta": (other_files("consolidated.00.pth", "params.json"), OF_META),
    "parameters of Meta": (other_files("params.json"), OF_META),
    "checkpoints": (
        other_files("checkpoint-100/adapter_config.json", "checkpoint-50/config.json"),
        "holds checkpoints of a training: choose one of them, such as checkpoint-100",
    ),
    "trainer state": (
        other_files("trainer_state.json", "optimizer.pt"),
        "is a training state without a model: use save_pretrained",
    ),
    "adapter": (replace_by_adapter, r"is a PEFT adapter of owner/base: merge it first \(`merge_and_unload`\) or name"),
    "adapter beside a model": (add_adapter, "is a PEFT adapter of owner/base"),
    "pad token": (config(pad_token_id=320), "pad_token_id in .* is 320, but it has 320 emb"),
    "pad token of another type": (config(pad_token_id="2"), "is '2', which is not an integer"),
    "end beyond": (
        config(eos_token_id=[1, 400]),
        "eos_token_id in config.json of the model .* is 400, but it has 320 embeddings: set it to null",
    ),
    "gptq": (
        config(quantization_config={"quant_method": "gptq", "bits": 4}),
        r"the weights of the model .* are quantized \(gptq\), which is not supported: use the original checkpoint",
    ),
    "compressed-tensors": (config(compression_config={"a": 1}), r"are quantized \(compressed-tensors\)"),
    "mlx": (config(quantization={"bits": 4, "group_size": 64}), r"are quantized \(MLX\)"),
    "bytes": (
        float8_tensor("model.layers.1.mlp.up_proj.weight"),
        r"are quantized \(model\.layers\.1\.mlp\.up_proj\.weight\)",
    ),
    "packed": (
        extra_tensor(f"{LAYER}mlp.up_proj.qweight", 2, dtype=torch.int32),
        r"are quantized \(model\.layers\.0\.mlp\.up_proj\.qweight\)",
    ),
    "classifier": (
        config(architectures=["LlamaForSequenceClassification"]),
        r"is a classifier \(LlamaForSequenceClassification\) and predicts no tokens",
    ),
    "score": (extra_tensor("score.weight", 2, 16), r"is a classifier \(score\.weight\)"),
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
    for arguments in (["study", *options], ["run", str(study), "--dry-run"], ["run", str(study)]):
        assert main(arguments) == 2
        sentences |= {capsys.readouterr().err.strip().removeprefix("error: ")}
    for call in (
        lambda: gprune.run(values, cache=cache, progress=False),
        lambda: load(str(folder), device="cpu"),
        lambda: require_loadable(folder),
        lambda: loading.load_bare_model(str(folder), "cpu", "float32"),
        lambda: loading.require_loadable_name(str(folder)),
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
    "edit",
    [
        config(),
        config(pad_token_id=319),
        config(pad_token_id=-1),
        config(eos_token_id=[1, 2]),
        config(experts_implementation="batched_mm"),
        config(quantization_config=None),
        config(architectures=None),
        # a model that was saved without its head
        renamed(lambda name: name.removeprefix("model.")),
    ],
)
def test_what_loads_today_is_not_refused(edit, tmp_path):
    tiny_study.made(tmp_path)
    edit(tmp_path / "model")
    require_loadable(tmp_path / "model")
    assert load(str(tmp_path / "model"), device="cpu").shape.layers == 2


@pytest.mark.skipif(is_flash_attn_2_available(), reason="flash-attention is installed")
def test_attention_of_the_publishers_machine_gives_way_to_sdpa_with_a_notice(tmp_path, capsys):
    values = tiny_study.made(tmp_path)
    values["methods"] = ["dense"]
    folder = tmp_path / "model"
    assert attention_notice(folder) == ""
    ids = torch.arange(8)[None]
    logits = load(str(folder), device="cpu").model(ids).logits
    edit_config(folder, attn_implementation="flash_attention_2")
    notice = "config.json requests flash_attention_2, which cannot run here: the model runs with sdpa"
    decoder = load(str(folder), device="cpu")
    assert decoder.model.config._attn_implementation == "sdpa"
    assert torch.equal(decoder.model(ids).logits, logits)
    device = torch.device("cpu")
    waiting = read_weights(folder, device, "float32", False, offload=True)
    assert torch.equal(waiting(ids).logits, logits) and devices.keep_present(waiting.model.layers[0].mlp.up_proj)
    assert torch.equal(loading.load_bare_model(str(folder), "cpu", "float32")(ids).logits, logits)
    assert loading.load_bare_model(f"random:{folder}", "cpu", "float32").config._attn_implementation == "sdpa"
    assert notice in inspection.inspect(str(folder)).loads
    study = tmp_path / "study.json"
    study.write_text(json.dumps(values))
    assert main(["run", str(study), "--cache", str(tmp_path / "cache"), "--until", "drift"]) == 0
    assert notice in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="flex_attention runs on a GPU")
def test_attention_without_a_backward_pass_on_a_cpu_gives_way_to_sdpa(tmp_path):
    tiny_study.made(tmp_path)
    folder = edit_config(tmp_path / "model", attn_implementation="flex_attention")
    model = load(str(folder), device="cpu").model.requires_grad_(True)
    model(torch.arange(8)[None]).logits.sum().backward()
    assert model.model.layers[0].mlp.up_proj.weight.grad.abs().sum() > 0
    assert attention_notice(folder).startswith("config.json requests flex_attention, which cannot run here")


def test_a_private_attention_of_the_language_model_alone_gives_way_too(tmp_path):
    tiny_study.made(tmp_path)
    edit_config(tmp_path / "model", text_config={"_attn_implementation": "flash_attention_2"})
    require_loadable(tmp_path / "model")
    assert "requests flash_attention_2, which cannot run here" in attention_notice(tmp_path / "model")


def test_eager_attention_stays_as_it_is(tmp_path):
    tiny_study.made(tmp_path)
    folder = edit_config(tmp_path / "model", attn_implementation="eager")
    assert load(str(folder), device="cpu").model.config._attn_implementation == "eager" and not attention_notice(folder)


@pytest.mark.parametrize(
    ("model_type", "reason"),
    [
        ("gpt_oss", r" \(only studies with methods such as experts_reap prune mixtures of experts\)"),
        ("dbrx", r" \(mixtures of experts are not supported\)"),
        ("qwen3_next", r" \(linear attention, state-space and recurrent layers are not supported\)"),
        ("falcon_mamba", r" \(linear attention, state-space and recurrent layers are not supported\)"),
        ("gpt2", r" \(FFNs without a gate are not supported\)"),
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
    from gprune.pruning.calibration.sampling import _start_token

    tiny_study.made(tmp_path)
    decoder = load(str(edit_config(tmp_path / "model", eos_token_id=[1, 2])), device="cpu")
    decoder.config.bos_token_id = 320
    decoder.tokenizer.bos_token = decoder.tokenizer.eos_token = None
    assert _start_token(decoder, "self:")[0] == 1
