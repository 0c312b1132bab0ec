"""A pruned model leaves and comes back as it was, here and where this project is not installed."""

import copy
import json
from typing import Any

import numpy as np
import pytest
import torch
from pruned_folder import masks_of
from transformers import AutoModelForCausalLM

from gprune.api.held import prune
from gprune.models.export import checkpoint, pruning_file
from gprune.models.tiny import tiny_decoder
from gprune.pruning.surgery import cut


def assert_equal_logits(actual, expected):
    """Up to rounding: kernels differ with the alignment of a tensor in memory."""
    relative = 1e-5 if actual.dtype == torch.float32 else 1e-2
    torch.testing.assert_close(actual, expected, rtol=0, atol=relative * float(expected.abs().max()))


def test_folder_holds_weights_configuration_code_tokenizer_and_record(tmp_path, masks, tokenizer, saved, decoder_of):
    folder = saved(cut(decoder_of("llama"), masks), tokenizer, tmp_path / "deep" / "out")
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


def test_the_record_gives_back_the_cut(tmp_path, masks, saved, decoder_of):
    decoder = decoder_of("mistral")
    live: Any = cut(decoder, masks)
    plan = pruning_file.read_record(saved(live, None, tmp_path / "out"))
    assert (plan.source, plan.fingerprint) == ("dense", "f00d")
    assert plan.study == {"model": "dense", "retention": 0.5}
    plan_masks = plan.pruned.masks
    assert (plan_masks.method, plan_masks.retention, plan_masks.target) == ("gprune", 0.51, 0.5)
    np.testing.assert_array_equal(plan_masks.ffn, masks.ffn)
    np.testing.assert_array_equal(plan_masks.heads, masks.heads)
    again: Any = cut(decoder, plan_masks)
    assert_equal_logits(again(torch.arange(9)[None]).logits, live(torch.arange(9)[None]).logits)


@pytest.mark.parametrize("family", ["qwen3", "phi3", "stablelm", "olmo2"])
def test_the_natural_way_works_like_that_of_any_model(family, tmp_path):
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
