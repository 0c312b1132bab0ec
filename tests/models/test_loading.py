"""Loading a model folder, and one clear sentence for each way it can fail."""

import hashlib
import json
from pathlib import Path

import pytest
import tiny_study
import torch
from safetensors.torch import load_file, save_file
from tiny_tokenizer import byte_level
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast

from gprune.models import identity, inspection
from gprune.models.loading import load, load_tokenizer, quiet
from gprune.models.tiny import tiny_decoder
from gprune.records import ModelShape
from gprune.system.errors import ModelError, SettingsError


def make_folder(folder, family="llama", dtype=torch.float32):
    decoder = tiny_decoder(family, hidden=8, neurons=13, heads=4, kv_heads=2, head_width=6, dtype=dtype)
    words = Tokenizer(WordLevel({f"w{index}": index for index in range(64)}, unk_token="w0"))
    words.pre_tokenizer = Whitespace()
    with quiet():
        decoder.model.save_pretrained(folder)
        PreTrainedTokenizerFast(tokenizer_object=words, unk_token="w0").save_pretrained(folder)
    return folder


@pytest.fixture
def folder(tmp_path):
    return make_folder(tmp_path / "model")


def change_config(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
def test_a_saved_model_loads_as_it_was(tmp_path, family, capfd):
    folder = make_folder(tmp_path / family, family)
    capfd.readouterr()
    decoder = load(str(folder), device="cpu")
    assert capfd.readouterr() == ("", "")
    expected = tiny_decoder(family, hidden=8, neurons=13, heads=4, kv_heads=2, head_width=6)
    assert decoder.shape == ModelShape(2, 13, 4, 2, 6, 8)
    ids = torch.arange(10)[None]
    assert torch.equal(decoder.model(ids).logits, expected.model(ids).logits)


@pytest.mark.parametrize(
    ("dtype", "expected"), [("auto", torch.float32), ("bfloat16", torch.bfloat16), ("float16", torch.float16)]
)
def test_number_type_on_a_cpu(tmp_path, dtype, expected):
    folder = make_folder(tmp_path / "half", dtype=torch.float16)
    decoder = load(str(folder), device="cpu", dtype=dtype)
    assert decoder.dtype == expected and decoder.device.type == "cpu"


def test_a_number_type_or_device_that_is_not_there_is_named(folder):
    with pytest.raises(SettingsError, match="float32, bfloat16, float16 .*'int8'"):
        load(str(folder), device="cpu", dtype="int8")
    with pytest.raises(SettingsError, match="'cuda:99', but torch sees .* CUDA devices"):
        load(str(folder), device="cuda:99")
    with pytest.raises(SettingsError, match="device must be auto, cpu or cuda .*'gpu'"):
        load(str(folder), device="gpu")


def test_a_damaged_tokenizer_is_named(folder):
    (folder / "tokenizer.json").write_text('{"model": 3}')
    with pytest.raises(ModelError, match="the tokenizer in .* cannot be read"):
        load(str(folder))


@pytest.mark.parametrize(
    ("name", "value", "dtype", "words"),
    [
        ("model.layers.1.mlp.up_proj.weight", float("nan"), "auto", "1 values that are NaN"),
        ("model.layers.1.mlp.up_proj.weight", -float("inf"), "auto", "1 values that are NaN"),
        ("model.embed_tokens.weight", 1e6, "float16", "infinite in float16: use float32 or bfloat16"),
    ],
)
def test_weights_that_are_not_finite_are_refused(folder, name, value, dtype, words):
    tensors = load_file(folder / "model.safetensors")
    tensors[name].view(-1)[3] = value
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=f"{name} .* {words}"):
        load(str(folder), device="cpu", dtype=dtype)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"intermediate_size": 12}, r"layer 0 has \d+ neurons, but its configuration says 12"),
        ({"vocab_size": 65}, r"embed_tokens\.weight has 64 rows, but its configuration says vocab_size 65"),
        ({"num_hidden_layers": 3}, "its weights have 2 layers, but its configuration says 3"),
        ({"num_hidden_layers": 1}, "its weights have 2 layers, but its configuration says 1"),
        ({"num_key_value_heads": 1}, r"layer 0 has 2 key/value groups, but its configuration says 1"),
        ({"attention_bias": True}, "its weights lack .*self_attn.k_proj.bias, and attention_bias is True"),
    ],
)
def test_a_configuration_that_disagrees_with_the_weights(folder, values, words):
    change_config(folder, **values)
    with pytest.raises(ModelError, match=f"does not fit its config.json: {words}"):
        load(str(folder))


def test_a_configuration_that_contradicts_itself(folder):
    change_config(folder, num_attention_heads=3)
    with pytest.raises(ModelError, match="cannot be read.*multiple of the number of attention heads"):
        load(str(folder))


def test_code_of_a_model_runs_only_where_asked_for(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    ran = tmp_path / "ran"
    (folder / "own.py").write_text(
        "from transformers import LlamaConfig, LlamaForCausalLM\n"
        f"open({str(ran)!r}, 'w').close()\n"
        "class OwnConfig(LlamaConfig):\n    pass\n"
        "class OwnModel(LlamaForCausalLM):\n    config_class = OwnConfig\n"
    )
    change_config(folder, auto_map={"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"})
    assert type(load(str(folder)).model).__name__ == "LlamaForCausalLM"
    assert not ran.exists()
    assert type(load(str(folder), trust_remote_code=True).model).__name__ == "OwnModel"
    assert ran.exists()


@pytest.fixture
def named_folder(tmp_path):
    """Files with the right names; their content does not matter here."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "model.safetensors").write_bytes(b"weights" * 1000)
    (folder / "tokenizer.json").write_text("{}")
    (folder / "tokenizer_config.json").write_text("{}")
    return folder


def test_fingerprint_is_the_hash_of_config_and_weights(named_folder):
    digest = hashlib.sha256()
    for name in ("config.json", "model.safetensors"):
        content = hashlib.sha256((named_folder / name).read_bytes()).hexdigest()
        digest.update(f"{name}:{content}\n".encode())
    assert identity.fingerprint(str(named_folder)) == digest.hexdigest()


def test_tokenizer_fingerprint_follows_the_tokenizer_alone(named_folder):
    before = identity.tokenizer_fingerprint(str(named_folder))
    (named_folder / "config.json").write_text("{}")
    assert identity.tokenizer_fingerprint(str(named_folder)) == before
    (named_folder / "tokenizer_config.json").write_text('{"add_bos_token": false}')
    changed = identity.tokenizer_fingerprint(str(named_folder))
    (named_folder / "chat_template.jinja").write_text("{{ messages }}")
    assert len({before, changed, identity.tokenizer_fingerprint(str(named_folder))}) == 3


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("/no/such/folder", "there is no model folder '/no/such/folder'"),
        ("./no-such-folder", "there is no model folder"),
        ("~/no-such-folder", "there is no model folder"),
        ("typo", "there is no model folder 'typo'"),
        ("a/b/c", "there is no model folder 'a/b/c'"),
        ("own er/na me", "neither a folder on this machine nor a hub name"),
        ("no-such-owner/no-such-model", "has not been downloaded yet.*a local model folder"),
    ],
)
def test_names_without_a_model(name, words):
    with pytest.raises(ModelError, match=words):
        identity.fingerprint(name)


def test_what_is_no_model_folder_is_told(named_folder):
    with pytest.raises(ModelError, match="is a file: give the folder"):
        identity.fingerprint(str(named_folder / "config.json"))
    (named_folder / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match="has no tokenizer: it needs one of tokenizer.json"):
        identity.tokenizer_fingerprint(str(named_folder))


def test_sentence_pieces_alone_are_refused_with_the_way_to_a_whole_tokenizer(tmp_path):
    """transformers reads the file alone without the blank and the token before a text, and says nothing."""
    model = Path(tiny_study.workshop(tmp_path)["model"])
    (model / "tokenizer.json").rename(model / "tokenizer.model")
    for entrance in (load_tokenizer, identity.tokenizer_fingerprint):
        with pytest.raises(ModelError, match=r"has tokenizer.model alone.*add_bos_token=True"):
            entrance(str(model))
    assert inspection.inspect(str(model)).tokenizer.startswith("none: the folder")
    (model / "tokenization_own.py").write_text("", encoding="utf-8")
    assert len(identity.tokenizer_fingerprint(str(model))) == 64


def test_a_tokenizer_that_loses_blanks_is_refused_with_what_comes_back(tmp_path):
    # as transformers 5.17 builds a byte-level tokenizer that is labelled as LLaMA's
    model = tiny_study.workshop(tmp_path)["model"]
    assert load_tokenizer(model).decode(load_tokenizer(model)("the cat")["input_ids"]) == "the cat"
    path = Path(model) / "tokenizer.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    values["pre_tokenizer"] = {"type": "Whitespace"}
    values["decoder"] = {"type": "Fuse"}
    path.write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(ModelError, match="loses the spaces between words: 'the cat' is decoded as 'thecat'"):
        load_tokenizer(model)


def test_a_label_that_gives_other_tokens_than_tokenizer_json_is_refused(tmp_path):
    folder = Path(tiny_study.workshop(tmp_path)["model"])
    bytewise = byte_level(["    def walk(self):\n        return self.steps\n\n" * 20], 300)
    bytewise.save(str(folder / "tokenizer.json"))

    def labelled(label, **values):
        (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": label, **values}))
        return load_tokenizer(str(folder))

    text = "    def walk(self):\n        return self"
    assert labelled("PreTrainedTokenizerFast")(text)["input_ids"] == bytewise.encode(text).ids
    assert labelled("GPT2TokenizerFast", add_prefix_space=True)("the cat")["input_ids"]
    with pytest.raises(ModelError, match=r"is read as Qwen2Tokenizer and splits .* Set tokenizer_class in tok"):
        labelled("Qwen2TokenizerFast")
