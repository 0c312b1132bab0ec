"""A pruned model leaves and comes back as it was, here and where this project is not installed."""

import copy
import json

import numpy as np
import pytest
import torch
from pruned_folder import byte_tokenizer, masks_of, save, small_decoder
from tiny_family import assert_close
from transformers import AutoModelForCausalLM

from gprune.api.held import prune
from gprune.models.export import checkpoint, model_card
from gprune.models.tiny import tiny_decoder
from gprune.pruning.surgery import cut


def test_a_folder_holds_weights_configuration_code_tokenizer_and_record(tmp_path):
    decoder, folder = small_decoder(), tmp_path / "deep" / "out"
    masks = masks_of(decoder, [1, 2, 3], [1, 4, 13])
    live = save(decoder, folder, masks=masks, tokenizer=byte_tokenizer())
    names = {file.name for file in folder.iterdir()}
    assert names >= {"config.json", "generation_config.json", "model.safetensors", "modeling_gprune.py"}
    assert names >= {"pruning.json", "tokenizer.json", "tokenizer_config.json"}
    assert not [name for name in names if name.endswith((".bin", ".pt", ".pkl"))]
    assert [file.name for file in folder.parent.iterdir()] == ["out"]
    values = json.loads((folder / "config.json").read_text())
    assert values["model_type"] == "gprune_llama"
    assert values["ffn_widths"] == [1, 4, 13] and values["key_value_groups"] == [1, 2, 3]
    assert not values["o_proj_bias"] and not values["down_proj_bias"]
    assert values["auto_map"]["AutoModelForCausalLM"] == "modeling_gprune.GpruneLlamaForCausalLM"
    record = model_card.read_record(folder)
    assert (record.source, record.fingerprint, record.study) == ("dense", "f00d", {"retention": 0.5})
    loaded_masks = record.pruned.masks
    assert (loaded_masks.method, loaded_masks.retention, loaded_masks.target) == ("gprune", 0.51, 0.5)
    np.testing.assert_array_equal(loaded_masks.ffn, masks.ffn)
    np.testing.assert_array_equal(loaded_masks.heads, masks.heads)
    # up to rounding: kernels differ with the alignment of a tensor in memory
    expected = live(torch.arange(9)[None]).logits
    actual = cut(decoder, loaded_masks)(torch.arange(9)[None]).logits
    assert_close(actual, expected)


@pytest.mark.parametrize("family", ["qwen3", "phi3", "stablelm", "olmo2"])
def test_save_pretrained_and_from_pretrained_work_as_for_any_model(family, tmp_path):
    decoder = tiny_decoder(family, hidden=32, heads=4, kv_heads=2, head_width=8, neurons=13)
    ids, masks = torch.arange(9)[None], masks_of(decoder, [1, decoder.shape.kv_heads], [4, 9])
    model = prune(decoder.model, masks)
    expected = model(ids).logits
    assert model.config.ffn_widths == [4, 9] and decoder.model.config.model_type == family
    model.save_pretrained(tmp_path / "out")
    assert (tmp_path / "out" / "modeling_gprune.py").is_file()
    checkpoint.register_classes()
    for again in (AutoModelForCausalLM.from_pretrained(tmp_path / "out"), copy.deepcopy(model)):
        assert type(again) is type(model) and torch.equal(again(ids).logits, expected)
    again.requires_grad_(True).train()(ids, labels=ids).loss.backward()
    assert all(weight.grad is not None for weight in again.model.layers[0].parameters())
    assert torch.equal(model(ids).logits, expected)
