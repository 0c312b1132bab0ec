"""A cut model whose layers all have the same width is an ordinary one, or says why it is not."""

import json
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard
from pruned_folder import byte_tokenizer, masks_of, save, small_decoder, with_biases
from safetensors.torch import load_file
from tiny_family import assert_close
from transformers import AutoModelForCausalLM, AutoTokenizer

import gprune
from gprune.models import identity, inspection, loading
from gprune.models.decoder import Decoder
from gprune.models.export import checkpoint, gguf, model_card, ordinary, padded
from gprune.models.families import FAMILIES
from gprune.pruning.origin import remember_origin
from gprune.pruning.surgery import cut
from gprune.system.errors import CheckpointError

IDS = torch.randint(3, 300, (2, 9), generator=torch.Generator().manual_seed(5))


def equal(decoder: Decoder, groups: int = 2, neurons: int = 6) -> Any:
    return masks_of(decoder, [groups] * 3, [neurons] * 3)


def saved(folder, family="llama", groups=2, compensated=False, **sizes):
    """A folder of equal widths, the live model that it was made from, and the dense one as a folder."""
    decoder = small_decoder(family, **sizes)
    decoder.model.save_pretrained(folder / "dense")
    byte_tokenizer().save_pretrained(folder / "dense")
    tokenizer = loading.load_tokenizer(str(folder / "dense"))
    names = {"masks": equal(decoder, groups), "compensated": compensated, "tokenizer": tokenizer}
    names["fingerprint"] = identity.fingerprint(str(folder / "dense"))
    return folder / "out", save(decoder, folder / "out", **names), decoder


def values_of(folder):
    return json.loads((folder / "config.json").read_text())


@pytest.mark.parametrize(
    ("family", "groups", "compensated", "expected"),
    [
        ("llama", 2, False, "llama"),
        ("llama", 2, True, "llama"),
        ("mistral", 2, False, "mistral"),
        # without a window in use a mistral is a llama, which has the biases
        ("mistral", 2, True, "llama"),
        ("qwen2", 2, True, "llama"),
        ("qwen3", 2, False, "qwen3"),
        # llama wants heads that divide the hidden size, 24, and five do not
        ("llama", 5, False, "mistral"),
        ("qwen2", 5, False, "qwen2"),
        ("granite", 2, True, "granite"),
        ("smollm3", 5, True, "smollm3"),
    ],
)
@torch.no_grad()
def test_every_writer_gives_the_stock_architecture(family, groups, compensated, expected, tmp_path):
    sizes = {"heads": 6, "kv_heads": 6} if groups == 5 else {}
    folder, live, _ = saved(tmp_path, family, groups, compensated, **sizes)
    live.save_pretrained(tmp_path / "natural")
    padded.save_padded(folder, tmp_path / "padded")
    pruned = model_card.read_record(folder).pruned
    gprune.save(remember_origin(live, pruned, source="dense", fingerprint="f00d"), tmp_path / "by_api")
    assert type(live).__module__ == f"transformers.models.{expected}.modeling_{expected}"
    for location in (folder, tmp_path / "natural", tmp_path / "padded", tmp_path / "by_api"):
        values = values_of(location)
        assert values["model_type"] == expected and values["architectures"] == [type(live).__name__]
        assert not list(location.glob("*.py")) and not {"auto_map", "ffn_widths", "unit_slices"} & values.keys()
        names = ("intermediate_size", "num_key_value_heads", "num_attention_heads", "head_dim")
        size = 1 if groups == 5 else 2
        assert [values[name] for name in names] == [6, groups, groups * size, 4]
        loaded = AutoModelForCausalLM.from_pretrained(location)
        assert type(loaded) is type(live) and torch.equal(loaded(IDS).logits, live(IDS).logits)
        options = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
        options["attention_mask"] = torch.ones_like(IDS)
        generations = [loaded.generate(IDS, use_cache=use_cache, **options) for use_cache in (True, False)]
        assert torch.equal(*generations)
    read = [AutoTokenizer.from_pretrained(location)("the town").input_ids for location in (folder, tmp_path / "dense")]
    assert read[0] == read[1]


@torch.no_grad()
def test_biases_of_a_repair_stand_beside_zeros_where_the_family_has_one_switch_for_several(tmp_path):
    folder, live, decoder = saved(tmp_path, compensated=True)
    values, tensors = values_of(folder), load_file(folder / "model.safetensors")
    assert values["attention_bias"] and values["mlp_bias"]
    for name, zero in (("q", True), ("k", True), ("v", True), ("o", False)):
        assert bool(tensors[f"model.layers.1.self_attn.{name}_proj.bias"].any()) is not zero
    for name, zero in (("gate", True), ("up", True), ("down", False)):
        assert bool(tensors[f"model.layers.1.mlp.{name}_proj.bias"].any()) is not zero
    plain = cut(decoder, model_card.read_record(folder).pruned.masks)
    assert plain.model.layers[1].mlp.down_proj.bias is None and not plain.config.mlp_bias
    # the dense model has none of it
    assert decoder.model.config.intermediate_size == 13 and decoder.down_proj(1).bias is None
    assert not torch.allclose(plain(IDS).logits, live(IDS).logits, atol=1e-3)


@pytest.mark.parametrize(
    ("family", "options", "compensated"),
    [
        # no place for biases of o_proj and down_proj
        ("qwen3", {}, True),
        ("mistral", {"sliding_window": 4}, True),
        # a number of heads that the configuration refuses, or that decides their width
        ("llama", {"heads": 6, "kv_heads": 6, "attention_bias": True}, False),
        ("stablelm", {"heads": 6, "kv_heads": 3}, False),
    ],
)
@torch.no_grad()
def test_what_no_ordinary_model_holds_stays_ours_and_says_so(family, options, compensated, tmp_path):
    groups = 5 if options.get("kv_heads") == 6 else 2
    folder, live, _ = saved(tmp_path, family, groups, compensated, **options)
    assert values_of(folder)["model_type"] == f"gprune_{family}" and ordinary.has_own_class(live)
    card = ModelCard.load(folder / "README.md").text
    assert "Every layer has the same width, but no stock transformers model has exactly these weights" in card
    assert "trust_remote_code=True" in card
    result = inspection.inspect(str(folder))
    assert result.form.endswith("every layer of the same width, but no stock model has these weights")
    assert_close(checkpoint.load_verified(folder)(IDS).logits, live(IDS).logits)


def test_layers_of_other_widths_and_a_model_over_several_gpus_are_no_other_family(monkeypatch):
    decoder = small_decoder("mistral")
    layout = FAMILIES["mistral"]
    uneven = cut(decoder, masks_of(decoder, [2, 2, 2], [6, 6, 7]))
    assert ordinary.find_stock_model(uneven, layout) is None
    # of a model on one device the map is removed
    decoder.model.hf_device_map = {"": 0}
    assert not ordinary.has_own_class(cut(decoder, with_biases(decoder, equal(decoder))))
    monkeypatch.setattr("gprune.models.devices.release_hooks", lambda _: None)
    spread = cut(decoder, with_biases(decoder, equal(decoder)))
    assert ordinary.has_own_class(spread) and ordinary.find_stock_model(spread, layout) is None


def test_card_and_inspection_say_the_same_of_it(tmp_path):
    folder, live, _ = saved(tmp_path)
    card = ModelCard.load(folder / "README.md").text
    assert "trust_remote_code" not in card and "padded" not in card
    assert "This is a stock transformers model without custom code: every layer has the same width" in card
    assert "`pruning.json` lists the kept units" in card
    result = inspection.inspect(str(folder))
    assert (result.neurons, result.groups) == ((6, 6, 6), (2, 2, 2))
    assert (result.dense_neurons, result.dense_groups, result.loads) == (13, 3, "without custom code")
    assert result.form == (
        "pruned here by gprune to 51.00% of the decoder's weights, every layer of the same width: a stock model"
    )
    assert result.parameters == sum(parameter.numel() for parameter in live.parameters())
    assert not (folder / "modeling_gprune.py").exists()


@pytest.mark.parametrize("family", ["qwen3", "granite"])
def test_llama_cpps_own_converter_is_named_where_ours_does_not_serve(family, tmp_path, monkeypatch):
    monkeypatch.setattr(gguf, "find_spec", lambda name: True)
    folder, _, _ = saved(tmp_path, family)
    with pytest.raises(CheckpointError, match="convert the folder with llama.cpp's own converter"):
        gguf.save_gguf(folder, tmp_path / "out.gguf")
